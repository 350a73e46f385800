//! After the load, the engine is idle: worker threads sleep, and none is woken.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::items::{Job, Later};
use crate::support::{queue, watchdog};
use uwork::rcu::RcuWork;
use uwork::{AffinityScope, AffinityScopeChoice, WorkItem};

/// The time during which no thread may wake up.
const WINDOW: Duration = Duration::from_secs(1);

/// A thread of this process, as /proc shows it.
struct Thread {
    id: u32,
    name: String,
    asleep: bool,
    switches: u64,
}

fn threads() -> Vec<Thread> {
    let entries = std::fs::read_dir("/proc/self/task").expect("threads in /proc");
    // A thread that ends meanwhile has no files any more.
    entries.filter_map(|entry| thread(&entry.ok()?.path())).collect()
}

fn thread(path: &Path) -> Option<Thread> {
    let status = std::fs::read_to_string(path.join("status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_else(|| panic!("no {name} in {}", path.display()))
    };
    let count = |name| field(name).parse::<u64>().expect("a number");
    Some(Thread {
        id: field("Pid").parse().expect("a thread id"),
        name: field("Name").to_owned(),
        asleep: field("State").starts_with('S'),
        switches: count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches"),
    })
}

/// The context switches so far of every worker thread, by thread id. `None` while any thread except
/// the caller's is awake (a thread that was just created has no worker's name yet).
fn switches_at_rest() -> Option<BTreeMap<u32, u64>> {
    let threads = threads();
    let awake = threads.iter().filter(|thread| !thread.asleep).count();
    let workers = threads.iter().filter(|thread| thread.name.starts_with("uw/"));
    (awake == 1).then(|| workers.map(|worker| (worker.id, worker.switches)).collect())
}

/// An item that waits for a grace period.
struct Graced {
    work: RcuWork<Graced>,
    ran: AtomicBool,
}

uwork::has_work!(impl HasRcuWork for Graced { work });

impl WorkItem for Graced {
    type Pointer = Arc<Graced>;

    fn run(this: Arc<Graced>) {
        this.ran.store(true, Ordering::Relaxed);
    }
}

/// A grace period that a reader delays for several polls, so that the driver arms its timer.
fn grace_period() {
    let queue = queue("idle").build().unwrap();
    let item = Arc::new(Graced { work: RcuWork::new(), ran: AtomicBool::new(false) });
    let reader = uwork::rcu::read_lock();
    assert!(queue.enqueue_rcu(item.clone()).is_queued());
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), Duration::from_millis(10)).is_queued());
    crate::support::until("some looks later", || later.tally.finished() == 1);
    assert!(!item.ran.load(Ordering::Relaxed));
    drop(reader);
    crate::support::until("it has run", || item.ran.load(Ordering::Relaxed));
}

fn load() {
    grace_period();
    let queues = [
        queue("idle").build().unwrap(),
        queue("idle").per_cpu().build().unwrap(),
        queue("idle").ordered().build().unwrap(),
        queue("idle").max_active(2).build().unwrap(),
        queue("idle")
            .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))
            .build()
            .unwrap(),
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
        crate::support::until("it has run", || later.tally.finished() == 1);
        // Armed far beyond the window: no thread may wake for it earlier.
        assert!(queue.enqueue_delayed(later, Duration::from_secs(3_600)).is_queued());
    }
}

/// The threads of the library with context switches in a window, or that were awake before it.
fn woken_in_a_window() -> Vec<String> {
    let Some(before) = switches_at_rest() else { return vec!["a thread was awake".to_owned()] };
    assert!(!before.is_empty(), "there are workers");
    // tidy: allow(test-sleep): the window in which nothing may happen is what is measured
    std::thread::sleep(WINDOW);
    let woken = |thread: &Thread| before.get(&thread.id) != Some(&thread.switches);
    let all = threads().into_iter().filter(|thread| thread.name.starts_with("uw/"));
    all.filter(woken).map(|thread| format!("{} ({})", thread.name, thread.id)).collect()
}

// Catches: polling, a heartbeat, a timer that stays armed, workers that wake each other.
#[test]
fn after_the_load_there_are_no_wake_ups() {
    alone("after_the_load_there_are_no_wake_ups", || {
        let _watchdog = watchdog();
        load();
        // The watcher checks the CPUs once more, 250 ms after the last item, and forgets its samples
        // a second after its last scan. On a busy machine it is late.
        crate::support::until("no thread wakes up in a window", || {
            let woken = woken_in_a_window();
            if !woken.is_empty() {
                eprintln!("woken in the window: {woken:?}");
            }
            woken.is_empty()
        });
    });
}
