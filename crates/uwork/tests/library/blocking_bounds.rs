//! The cost of detecting blocked workers is bounded: files, workers, observed threads. The bounds
//! hold for any number of pools, beside other processes on the CPUs, and while threads end. Each
//! scene is a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::blocks::{compute, compute_first};
use crate::support::child::alone_each;
use crate::support::forked::{end_with_parent, fork, in_child, leave};
use crate::support::items::Job;
use crate::support::left_out::not_here;
use crate::support::machine::{cpus, mask};
use crate::support::tiers::{
    BLOCKED, Blocked, VARIABLE, collect_reports, perf_files, reported, scene,
};
use crate::support::{queue, until, watchdog};
use uwork::Queue;
use uwork::dump::PoolDump;

/// The maximum of threads observed at once, and the file that keeps the tier usable.
const FILES_MAX: usize = 64 + 1;
const TIERS: [&str; 3] = ["standby", "events", "sampling"];

/// Prints a note that the test is skipped where the system refuses records.
fn are_refused(test: &str) -> bool {
    let reported = reported();
    if !reported.is_empty() {
        not_here(test, format!("{reported:?}"));
    }
    !reported.is_empty()
}

/// Plays scenes. A worker that gets a CPU too late is not observed.
fn until_some_worker_is_observed() {
    until("some worker is observed", || {
        scene();
        perf_files() >= 2
    });
}

// Catches: the file of an ended thread that is never closed; an ending thread that is taken for a
// blocked one, or waited for.
#[test]
fn workers_end_while_they_are_observed() {
    let test = "workers_end_while_they_are_observed";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        let _watchdog = watchdog();
        collect_reports();
        let mut most = 0;
        // A scene's queue is destroyed at its end, and with it its pools and their workers.
        for _ in 0..100 {
            scene();
            most = most.max(perf_files());
        }
        until("all workers have ended", || {
            uwork::dump().pools.iter().all(|pool| !pool.retired || pool.nr_workers == 0)
        });
        assert!(most <= FILES_MAX, "{most}");
        if tier == "events" && !are_refused(test) {
            until_some_worker_is_observed();
            until("no worker is observed any more", || perf_files() == 1);
        }
        scene();
    });
}

/// Queues in many pools: some have a pool each, and others differ in the attributes that determine
/// the pool.
fn many_queues() -> Vec<(Queue, bool)> {
    let dedicated = (0..920).map(|_| (queue("one").dedicated().build().unwrap(), false));
    let mut queues: Vec<_> = dedicated.collect();
    let all = cpus();
    for nice in -20..20 {
        for strict in [false, true] {
            for mask in [mask(&all[..1]), mask(&all)] {
                let builder = queue("kind").nice(nice).affinity_strict(strict).max_active(4);
                queues.push((builder.cpumask(mask).build().unwrap(), true));
            }
        }
    }
    queues
}

// Catches: files or threads per pool; a pool that is missed among many; wrong counts.
#[test]
fn a_thousand_pools_block_at_once() {
    let test = "a_thousand_pools_block_at_once";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |_| {
        let _watchdog = watchdog();
        collect_reports();
        let queues = many_queues();
        let blocked: Vec<_> = queues
            .iter()
            .map(|(queue, is_pool)| {
                let places = if *is_pool { 3 } else { 1 };
                Blocked::queue(queue, Arc::new(compute_first(places)), places)
            })
            .collect();
        let behind: Vec<_> = queues
            .iter()
            .map(|(queue, _)| {
                let item = Job::counting();
                assert!(queue.enqueue(item.clone()).is_queued());
                item
            })
            .collect();
        let mut most = 0;
        for (blocked, (_, is_pool)) in blocked.iter().zip(&queues) {
            blocked.until_inside(if *is_pool { 3 } else { 1 });
            most = most.max(perf_files());
        }
        for (item, (_, is_pool)) in behind.iter().zip(&queues) {
            // A pool with exactly one worker is not given another, so its items wait.
            if *is_pool {
                until("what is behind has run", || item.tally.finished() == 1);
            } else {
                assert_eq!(item.tally.started(), 0);
            }
            most = most.max(perf_files());
        }
        let pools = uwork::dump().pools;
        assert!(pools.len() >= 1_000, "{} pools", pools.len());
        for pool in &pools {
            assert!(pool.nr_workers <= pool.workers_max, "{}", uwork::dump());
        }
        assert!(most <= FILES_MAX, "{most}");
        blocked.into_iter().for_each(Blocked::release);
        queues.iter().for_each(|(queue, _)| queue.flush().unwrap());
        assert!(behind.iter().all(|item| (item.tally.started(), item.tally.finished()) == (1, 1)));
    });
}

/// A process that only computes, until this is dropped.
struct Burner(libc::pid_t);

impl Burner {
    /// Forks before other threads exist, because the child would lack them.
    fn start() -> Burner {
        let parent = std::process::id() as libc::pid_t;
        // SAFETY: the child makes two system calls and then none.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                end_with_parent(parent);
                loop {
                    std::hint::spin_loop();
                }
            }
            child => Burner(child),
        }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        // SAFETY: our own child, which has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Items of the flood, and how long each computes.
const ITEMS: u32 = 6_000;
const ITEM: Duration = Duration::from_micros(50);

/// How often pools are looked at while floods are in progress.
const LOOKS: u32 = 10;

/// Plays a flood, and calls `look` with every pool again and again. Returns how often the flood
/// was in progress afterwards.
fn looks_during_a_flood(queues: &[Queue], look: impl Fn(&PoolDump)) -> u32 {
    let ran = Arc::new(AtomicU32::new(0));
    let item = || {
        let ran = ran.clone();
        Job::new(move |_| {
            compute(ITEM);
            ran.fetch_add(1, Ordering::Relaxed);
        })
    };
    // Kept until the flood is over: a worker that frees an item may sleep on a lock of the
    // allocator, and is replaced then.
    let items: Vec<_> = (0..ITEMS).map(|_| item()).collect();
    for (item, queue) in items.iter().zip(queues.iter().cycle()) {
        assert!(queue.enqueue(item.clone()).is_queued());
    }
    let mut looks = 0;
    until("the flood is over", || {
        uwork::dump().pools.iter().for_each(&look);
        let is_over = ran.load(Ordering::Relaxed) == ITEMS;
        looks += u32::from(!is_over);
        is_over
    });
    looks
}

// Catches: a preempted worker that is taken for a blocked one.
#[test]
fn preempted_workers_are_not_replaced() {
    let test = "preempted_workers_are_not_replaced";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        let _watchdog = watchdog();
        let _burners: Vec<_> = (0..std::thread::available_parallelism().unwrap().get())
            .map(|_| Burner::start())
            .collect();
        let queues = [queue("flood").build().unwrap(), queue("flood").per_cpu().build().unwrap()];
        let mut looks = 0;
        // A flood that is over at the first look shows nothing.
        while looks < LOOKS {
            looks += looks_during_a_flood(&queues, |pool| {
                let (workers, target) = (pool.nr_workers, pool.target);
                assert!(workers <= target + 1, "{tier}: {workers} workers for {target}");
            });
        }
        queues.iter().for_each(|queue| queue.flush().unwrap());
    });
}

/// Forks. A file that the watcher opens during the fork is not in its list yet, and stays open in
/// that child.
fn child_has_no_file() -> bool {
    match fork() {
        None => leave(perf_files() == 0),
        Some(status) => status == 0,
    }
}

// Catches: the parent's files that stay open in a child; a child, or afterwards its parent, that
// detects no blocked worker.
#[test]
fn a_fork_while_workers_are_observed() {
    let test = "a_fork_while_workers_are_observed";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        let _watchdog = watchdog();
        collect_reports();
        for _ in 0..10 {
            // On a pool that the child's scenes do not use.
            let queue = queue("parent").nice(2).max_active(BLOCKED as u32 + 1).build().unwrap();
            let blocked = Blocked::queue(&queue, Arc::new(compute_first(BLOCKED)), BLOCKED);
            blocked.until_inside(BLOCKED);
            until("a child has no file of its parent's", child_has_no_file);
            in_child(|| {
                assert!(perf_files() <= 1, "at most the one that was being opened");
                (0..5).for_each(|_| scene());
                if tier == "events" && reported().is_empty() {
                    until_some_worker_is_observed();
                }
            });
            blocked.release();
            scene();
        }
        if tier == "events" && !are_refused(test) {
            until_some_worker_is_observed();
        }
    });
}
