//! Cases `timer-sleep` and `timer-compute`: a timer that expires beside an item that sleeps or
//! computes.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uwork::{DelayedWork, Queue, Work, WorkItem};

use super::child::HANGS;
use super::crew::Crew;
use crate::UserError;
use crate::bench::uwork_pool;

const DELAY: Duration = Duration::from_millis(50);
/// The other item ends after this time at the latest.
const BESIDE_MAX: Duration = Duration::from_secs(2);

/// The description above the table.
pub(super) fn about(computes: bool) -> String {
    format!(
        "a timer of {} ms beside an item that {} until the timer's item has run, for at most {} s; \
         figures: how late the timer's item starts",
        DELAY.as_millis(),
        if computes { "computes" } else { "sleeps" },
        BESIDE_MAX.as_secs()
    )
}

/// The properties of the tries.
pub(super) struct Way {
    /// The item beside the timer computes; otherwise it sleeps.
    pub(super) computes: bool,
    /// The item declares its sleep.
    pub(super) declares: bool,
    /// Several workers are idle when a try begins; otherwise exactly one is.
    pub(super) spare: bool,
    pub(super) samples: usize,
}

/// The state that the two items of a try and its waiter share.
#[derive(Default)]
struct Try {
    times: Mutex<Times>,
    has_run: Condvar,
    /// The same event as `times.late`, for the item that computes.
    over: AtomicBool,
}

#[derive(Default)]
struct Times {
    due: Option<Instant>,
    /// How late the timer's item started.
    late: Option<Duration>,
}

impl Try {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the timer's item has run, for at most `limit`.
    fn wait(&self, limit: Duration) -> Option<Duration> {
        let pending = |times: &mut Times| times.late.is_none();
        let waited = self.has_run.wait_timeout_while(self.times(), limit, pending);
        waited.unwrap_or_else(PoisonError::into_inner).0.late
    }
}

struct Alarm {
    work: DelayedWork<Alarm>,
    shared: &'static Try,
}

uwork::has_work!(impl HasDelayedWork for Alarm { work });

impl WorkItem for Alarm {
    type Pointer = &'static Alarm;

    fn run(this: &'static Alarm) {
        let now = Instant::now();
        {
            let mut times = this.shared.times();
            let due = times.due.expect("set before it was armed");
            times.late = Some(now.saturating_duration_since(due));
        }
        this.shared.over.store(true, Ordering::Release);
        this.shared.has_run.notify_all();
    }
}

struct Beside {
    work: Work<Beside>,
    shared: &'static Try,
    computes: bool,
    declares: bool,
}

uwork::has_work!(impl HasWork for Beside { work });

impl WorkItem for Beside {
    type Pointer = &'static Beside;

    fn run(this: &'static Beside) {
        let sleep = || _ = this.shared.wait(BESIDE_MAX);
        match (this.computes, this.declares) {
            (true, _) => this.compute(),
            (false, true) => uwork::blocking(sleep),
            (false, false) => sleep(),
        }
    }
}

impl Beside {
    fn compute(&self) {
        let start = Instant::now();
        while !self.shared.over.load(Ordering::Acquire) && start.elapsed() < BESIDE_MAX {
            hint::spin_loop();
        }
    }
}

/// The lateness of the timer's item in each try.
pub(super) fn measure(way: &Way) -> Result<Vec<Duration>, UserError> {
    let queue = uwork_pool::queue("system");
    let cpu = queue.cpumask().first().expect("a queue has a CPU");
    let mut crew = Crew::of(&queue, cpu);
    // Leaked, because the engine may access them until the process ends.
    let shared: &'static Try = Box::leak(Box::default());
    let alarm: &'static Alarm = Box::leak(Box::new(Alarm { work: DelayedWork::new(), shared }));
    let Way { computes, declares, .. } = *way;
    let beside = Beside { work: Work::new(), shared, computes, declares };
    let beside: &'static Beside = Box::leak(Box::new(beside));

    // The pool exists once an item has run.
    queue.spawn(|| ()).join().expect("it does not panic");
    let mut late = Vec::with_capacity(way.samples);
    for _ in 0..way.samples {
        match way.spare {
            true => crew.leave_several_idle()?,
            false => crew.leave_one_idle()?,
        }
        late.push(try_once(&queue, shared, alarm, beside)?);
    }
    Ok(late)
}

fn try_once(
    queue: &Queue,
    shared: &'static Try,
    alarm: &'static Alarm,
    beside: &'static Beside,
) -> Result<Duration, UserError> {
    shared.over.store(false, Ordering::Relaxed);
    *shared.times() = Times { due: Some(Instant::now() + DELAY), late: None };
    assert!(queue.enqueue_delayed(alarm, DELAY).is_queued(), "an idle item is armed");
    assert!(queue.enqueue(beside).is_queued(), "an idle item is queued");
    let late = shared.wait(DELAY + HANGS).ok_or_else(|| {
        UserError(format!("a timer's item has not run {} s after it was due", HANGS.as_secs()))
    })?;
    beside.work.flush();
    alarm.work.flush();
    Ok(late)
}
