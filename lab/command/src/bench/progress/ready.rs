//! Case `ready-after-wait`: an item is queued behind an item that waits for some microseconds and
//! then computes.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use uwork::{Queue, Work, WorkItem};

use super::child::HANGS;
use super::crew::Crew;
use crate::UserError;
use crate::bench::timers::Draw;

const WAIT_MIN: Duration = Duration::from_micros(1);
const WAIT_MAX: Duration = Duration::from_micros(500);
const COMPUTES_MAX: Duration = Duration::from_millis(60);
const SEED: u64 = 0x5eed;

/// The description above the table.
pub(super) fn about() -> String {
    format!(
        "an item waits {} to {} us, declared, then computes until a second one starts, for at most {} ms; the second \
         one is queued on that CPU during the wait; figures: how late it starts",
        WAIT_MIN.as_micros(),
        WAIT_MAX.as_micros(),
        COMPUTES_MAX.as_millis()
    )
}

/// The state that the two items of a try and the submitter share.
#[derive(Default)]
struct Try {
    wait_ns: AtomicU64,
    waits: AtomicBool,
    times: Mutex<Times>,
    has_started: Condvar,
    /// The same event as `times.late`, for the item that computes.
    over: AtomicBool,
}

#[derive(Default)]
struct Times {
    queued: Option<Instant>,
    /// How late the second item started.
    late: Option<Duration>,
}

impl Try {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct First {
    work: Work<First>,
    shared: &'static Try,
}

uwork::has_work!(impl HasWork for First { work });

impl WorkItem for First {
    type Pointer = &'static First;

    fn run(this: &'static First) {
        let wait = Duration::from_nanos(this.shared.wait_ns.load(Ordering::Relaxed));
        uwork::blocking(|| {
            this.shared.waits.store(true, Ordering::Release);
            sleep_precisely(wait);
        });
        let start = Instant::now();
        while !this.shared.over.load(Ordering::Acquire) && start.elapsed() < COMPUTES_MAX {
            hint::spin_loop();
        }
    }
}

struct Second {
    work: Work<Second>,
    shared: &'static Try,
}

uwork::has_work!(impl HasWork for Second { work });

impl WorkItem for Second {
    type Pointer = &'static Second;

    fn run(this: &'static Second) {
        let now = Instant::now();
        {
            let mut times = this.shared.times();
            let queued = times.queued.expect("set before it was queued");
            times.late = Some(now.saturating_duration_since(queued));
        }
        this.shared.over.store(true, Ordering::Release);
        this.shared.has_started.notify_all();
    }
}

/// Sleeps without the timer slack of 50 us that the kernel adds for ordinary threads.
fn sleep_precisely(time: Duration) {
    let set_slack = |ns: libc::c_ulong| {
        // SAFETY: no pointers; the setting affects the calling thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
    };
    set_slack(1);
    thread::sleep(time);
    // 0 restores the default.
    set_slack(0);
}

/// The lateness of the second item in each try. `first_try` is the number of the first try.
pub(super) fn measure(samples: usize, first_try: usize) -> Result<Vec<Duration>, UserError> {
    let failed = |error: uwork::Error| UserError(error.to_string());
    let queue = Queue::builder("bench-ready").per_cpu().build().map_err(failed)?;
    let cpu = queue.cpumask().last().expect("a queue has a CPU");
    let crew = Crew::of(&queue, cpu);
    // Leaked, because the engine may access them until the process ends.
    let shared: &'static Try = Box::leak(Box::default());
    let first: &'static First = Box::leak(Box::new(First { work: Work::new(), shared }));
    let second: &'static Second = Box::leak(Box::new(Second { work: Work::new(), shared }));

    // The pool exists once an item has run.
    uwork::work_on_cpu(cpu, || ()).map_err(failed)?;
    let mut draw = Draw(SEED);
    // Skips the draws of earlier tries. A try draws twice: for its wait, and for the time of the
    // second submission.
    for _ in 0..2 * first_try {
        draw.below(1);
    }
    let mut late = Vec::with_capacity(samples);
    for _ in 0..samples {
        crew.rest()?;
        let wait = logarithmic(&mut draw);
        let until_queued = Duration::from_nanos(draw.below(wait.as_nanos() as u64));
        shared.wait_ns.store(wait.as_nanos() as u64, Ordering::Relaxed);
        late.push(try_once(&queue, cpu, shared, (first, second), until_queued)?);
    }
    Ok(late)
}

/// A logarithmically distributed duration between the bounds, so that every magnitude is equally
/// frequent.
fn logarithmic(draw: &mut Draw) -> Duration {
    const STEPS: u64 = 1 << 20;
    let part = draw.below(STEPS) as f64 / STEPS as f64;
    WAIT_MIN.mul_f64((WAIT_MAX.as_secs_f64() / WAIT_MIN.as_secs_f64()).powf(part))
}

fn try_once(
    queue: &Queue,
    cpu: u32,
    shared: &'static Try,
    (first, second): (&'static First, &'static Second),
    until_queued: Duration,
) -> Result<Duration, UserError> {
    shared.waits.store(false, Ordering::Relaxed);
    shared.over.store(false, Ordering::Relaxed);
    *shared.times() = Times::default();
    assert!(queue.enqueue_on(cpu, first).is_ok_and(|queued| queued.is_queued()), "it is idle");
    while !shared.waits.load(Ordering::Acquire) {
        // The item may be waiting for the CPU of this thread.
        thread::yield_now();
    }
    let begin = Instant::now();
    while begin.elapsed() < until_queued {
        hint::spin_loop();
    }
    shared.times().queued = Some(Instant::now());
    assert!(queue.enqueue_on(cpu, second).is_ok_and(|queued| queued.is_queued()), "it is idle");
    let pending = |times: &mut Times| times.late.is_none();
    let waited = shared.has_started.wait_timeout_while(shared.times(), HANGS, pending);
    let late = waited.unwrap_or_else(PoisonError::into_inner).0.late;
    let late = late.ok_or_else(|| {
        UserError(format!("an item has not started {} s after it was queued", HANGS.as_secs()))
    })?;
    first.work.flush();
    second.work.flush();
    Ok(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_of_every_magnitude_between_their_bounds() {
        let mut draw = Draw(SEED);
        let waits: Vec<_> = (0..10_000).map(|_| logarithmic(&mut draw)).collect();
        assert!(waits.iter().all(|wait| (WAIT_MIN..=WAIT_MAX).contains(wait)));
        // On the logarithmic scale from 1 to 500, 10 is at 37 % and 100 at 74 %.
        let below = |us| waits.iter().filter(|wait| **wait < Duration::from_micros(us)).count();
        assert!((3_500..3_900).contains(&below(10)), "{}", below(10));
        assert!((7_200..7_600).contains(&below(100)), "{}", below(100));
    }
}
