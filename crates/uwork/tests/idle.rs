//! After the load is over, nothing happens: worker threads sleep, and nobody wakes them.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::items::{Job, Later};
use support::{queue, watchdog};
use uwork::{Scope, ScopeChoice};

/// How long nothing must happen.
const WINDOW: Duration = Duration::from_secs(1);

/// The context switches so far of every worker thread of this process, by thread id.
fn switches_of_workers() -> BTreeMap<u32, u64> {
    let mut switches = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/task").expect("threads in /proc") {
        let path = entry.expect("an entry").path();
        let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("comm").starts_with("uw/") {
            let count = |line: &str| {
                let (key, value) = line.split_once(':')?;
                key.ends_with("voluntary_ctxt_switches")
                    .then(|| value.trim().parse::<u64>().ok())?
            };
            let thread = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            let thread = thread.expect("a thread id");
            switches.insert(thread, read("status").lines().filter_map(count).sum());
        }
    }
    switches
}

fn load() {
    let queues = [
        queue("idle").build().unwrap(),
        queue("idle").per_cpu().build().unwrap(),
        queue("idle").ordered().build().unwrap(),
        queue("idle").max_active(2).build().unwrap(),
        queue("idle").affinity_scope(ScopeChoice::Explicit(Scope::System)).build().unwrap(),
    ];
    let jobs: Vec<_> =
        (0..200).map(|_| Job::new(|_| uwork::blocking(std::thread::yield_now))).collect();
    for _ in 0..50 {
        for queue in &queues {
            for job in &jobs {
                drop(queue.enqueue(job.clone()));
            }
        }
        queues.iter().for_each(|queue| queue.flush().unwrap());
    }
    for queue in &queues {
        let later = Later::counting();
        assert!(queue.enqueue_delayed(later.clone(), Duration::from_millis(1)).is_queued());
        later.work.flush();
        // Timers that were taken off in time must not leave a wake-up behind.
        assert!(queue.enqueue_delayed(later.clone(), WINDOW / 2).is_queued());
        assert!(later.work.cancel().is_some());
    }
}

// Catches: polling, a heartbeat, a timer that is left armed, workers that wake each other.
#[test]
fn after_the_load_there_are_no_wake_ups() {
    let _watchdog = watchdog();
    load();
    // Until the last worker lies down, which takes a few of them more than one look.
    let mut before = switches_of_workers();
    assert!(!before.is_empty(), "there are workers");
    support::until("the workers have come to rest", || {
        for _ in 0..1_000 {
            std::thread::yield_now();
        }
        let now = switches_of_workers();
        let at_rest = now == before;
        before = now;
        at_rest
    });
    // tidy: allow(test-sleep): the window in which nothing may happen is what is measured
    std::thread::sleep(WINDOW);
    assert_eq!(switches_of_workers(), before, "context switches by thread");
}
