//! Many timers that are due at one moment. Each test runs in a process of its own, which counts its
//! threads.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::child::alone;
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

/// Arms timers for one moment, and waits until all have run. Returns the most threads meanwhile.
fn most_threads(queue: &Queue, timer: impl Fn() -> DelayedWork<Later>) -> usize {
    let (ran, mut most) = (Arc::new(AtomicUsize::new(0)), 0);
    let moment = Instant::now() + AHEAD;
    let items: Vec<_> = (0..TIMERS)
        .map(|_| {
            let ran = ran.clone();
            Later::of(timer(), move |_| _ = ran.fetch_add(1, Ordering::Relaxed))
        })
        .collect();
    for item in &items {
        let delay = moment.saturating_duration_since(Instant::now());
        assert!(queue.enqueue_delayed(item.clone(), delay).is_queued());
    }
    until("all timers have run", || {
        most = most.max(threads());
        ran.load(Ordering::Relaxed) == TIMERS
    });
    queue.flush().unwrap();
    assert!(items.iter().all(|item| item.tally.finished() == 1), "each runs once");
    most
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
