//! Many timers that are due at one moment, or that became due in a stop. Each test runs in
//! a process of its own, which counts its threads.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::child::{Other, alone, asked, say};
use crate::support::items::Later;
use crate::support::machine::cpus;
use crate::support::{queue, until, watchdog};
use uwork::{DelayedWork, Queue};

const TIMERS: usize = 100_000;
/// More time than it takes to arm all of them.
const AHEAD: Duration = Duration::from_millis(500);

fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("it is mounted").count()
}

/// The most threads that this process may have: those that run items, one that fires and one that
/// keeps the timers in each pool, and those of the library and of the test.
fn threads_max() -> usize {
    const OTHERS: usize = 8;
    4 * cpus().len() + OTHERS
}

/// Timers of a queue.
struct Timers<'a> {
    queue: &'a Queue,
    items: Vec<Arc<Later>>,
    ran: Arc<AtomicUsize>,
}

impl Timers<'_> {
    /// Arms timers for one moment, or for as many moments, in equal steps until `spread` later.
    fn arm(queue: &Queue, spread: Duration, timer: impl Fn() -> DelayedWork<Later>) -> Timers<'_> {
        let ran = Arc::new(AtomicUsize::new(0));
        let items: Vec<_> = (0..TIMERS)
            .map(|_| {
                let ran = ran.clone();
                Later::of(timer(), move |_| _ = ran.fetch_add(1, Ordering::Relaxed))
            })
            .collect();
        let first = Instant::now() + AHEAD;
        for (number, item) in items.iter().enumerate() {
            let moment = first + spread.mul_f64(number as f64 / TIMERS as f64);
            let delay = moment.saturating_duration_since(Instant::now());
            assert!(queue.enqueue_delayed(item.clone(), delay).is_queued());
        }
        Timers { queue, items, ran }
    }

    /// Waits until all have run. Returns the most threads meanwhile.
    fn most_threads(self) -> usize {
        let mut most = 0;
        until("all timers have run", || {
            most = most.max(threads());
            self.ran.load(Ordering::Relaxed) == TIMERS
        });
        self.queue.flush().unwrap();
        assert!(self.items.iter().all(|item| item.tally.finished() == 1), "each runs once");
        most
    }
}

/// Arms timers for one moment, and waits until all have run. Returns the most threads meanwhile.
fn most_threads(queue: &Queue, timer: impl Fn() -> DelayedWork<Later>) -> usize {
    Timers::arm(queue, Duration::ZERO, timer).most_threads()
}

// Catches: a worker that is brought for overdue timers which another worker fires.
#[test]
fn timers_at_one_moment_make_no_threads() {
    alone("timers_at_one_moment_make_no_threads", || {
        let _watchdog = watchdog();
        let queues = [
            queue("at-once").build().unwrap(),
            queue("at-once-cpu").per_cpu().build().unwrap(),
            queue("at-once-power").power_efficient().build().unwrap(),
            queue("at-once-ordered").ordered().build().unwrap(),
            queue("at-once-dedicated").dedicated().build().unwrap(),
        ];
        for queue in &queues {
            let most = most_threads(queue, DelayedWork::new);
            assert!(most <= threads_max(), "{most} threads on {}", queue.name());
        }
        let slack = || DelayedWork::new().with_slack(Duration::from_millis(10));
        let most = most_threads(&queues[0], slack);
        assert!(most <= threads_max(), "{most} threads with slack");
    });
}

/// The time in which timers become due, most of it in a stop.
const SPREAD: Duration = Duration::from_secs(2);

/// Stops a process, continues it when `moment` has passed, and returns with the process running.
fn stop_until(process: libc::pid_t, moment: Instant) {
    // SAFETY: numbers, and a live status. The process is a child that was not waited for.
    unsafe {
        assert_eq!(libc::kill(process, libc::SIGSTOP), 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(process, &raw mut status, libc::WUNTRACED), process);
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
    }
    until("all timers are due", || Instant::now() >= moment);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(process, libc::SIGCONT) }, 0);
}

// Catches: a worker that is brought for each timer that became due in a stop.
#[test]
fn timers_that_became_due_in_a_stop_make_no_threads() {
    let test = "timers_that_became_due_in_a_stop_make_no_threads";
    let body = || {
        let _watchdog = watchdog();
        let queues =
            [queue("stopped").build().unwrap(), queue("stopped-cpu").per_cpu().build().unwrap()];
        for queue in &queues {
            let timers = Timers::arm(queue, SPREAD, DelayedWork::new);
            say("armed");
            assert_eq!(asked().as_deref(), Some("continued"));
            let most = timers.most_threads();
            assert!(most <= threads_max(), "{most} threads on {}", queue.name());
            say("ran");
        }
    };
    let Some(mut other) = Other::start(test, |_| {}, body) else { return };
    for _ in 0..2 {
        assert_eq!(other.hear(), "armed");
        stop_until(other.pid(), Instant::now() + AHEAD + SPREAD);
        other.ask("continued");
        assert_eq!(other.hear(), "ran");
    }
    other.end();
}
