//! `join` of two closures on the caller's stack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::support::child::alone;
use crate::support::machine::{cpus, two_cpus};
use crate::support::{queue, until, watchdog};
use uwork::join;

fn fib(n: u64, leaves: &AtomicUsize) -> u64 {
    if n < 2 {
        leaves.fetch_add(1, Ordering::Relaxed);
        return n;
    }
    let (a, b) = join(|| fib(n - 1, leaves), || fib(n - 2, leaves));
    a + b
}

/// Calls `attempt` until it says that a worker has taken the second half. Nothing asks a worker for
/// help where all CPUs have one: on a machine with one CPU, and beside the items of other tests.
fn until_taken(attempt: impl FnMut() -> bool) {
    if two_cpus().is_some() {
        until("a worker takes a half", attempt);
    }
}

/// How long a first half waits for a worker to take the second.
fn enough() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

/// Whether the calling thread is another one than `here`.
fn is_elsewhere(here: ThreadId) -> bool {
    thread::current().id() != here
}

/// Waits until `taken` is set, or until `enough`.
fn wait_for(taken: &AtomicBool, enough: Instant) -> bool {
    while !taken.load(Ordering::SeqCst) && Instant::now() < enough {
        thread::yield_now();
    }
    taken.load(Ordering::SeqCst)
}

// Catches: a half that is lost, or runs twice, while thieves and owners compete for small halves.
#[test]
fn every_half_of_a_deep_tree_runs_once_on_threads_and_in_items() {
    let _watchdog = watchdog();
    let queue = queue("halves-tree").build().unwrap();
    let leaves = AtomicUsize::new(0);
    let rounds = 10;
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for _ in 0..rounds {
                    assert_eq!(fib(16, &leaves), 987);
                }
            });
        }
        uwork::scope(&queue, |scope| {
            for _ in 0..rounds {
                scope.spawn(|| assert_eq!(fib(16, &leaves), 987));
            }
        });
    });
    assert_eq!(leaves.load(Ordering::SeqCst), 4 * rounds * 1_597);
}

// Catches: a caller that no worker helps.
#[test]
fn an_idle_worker_takes_the_second_half() {
    alone("an_idle_worker_takes_the_second_half", || {
        let _watchdog = watchdog();
        let here = thread::current().id();
        until_taken(|| {
            let taken = AtomicBool::new(false);
            let second = || taken.store(is_elsewhere(here), Ordering::SeqCst);
            join(|| wait_for(&taken, enough()), second).0
        });
    });
}

// Catches: a frame that unwinds while a thief is in the half that it holds.
#[test]
fn a_panic_in_the_first_half_leaves_after_a_second_half_that_was_taken_has_ended() {
    let name = "a_panic_in_the_first_half_leaves_after_a_second_half_that_was_taken_has_ended";
    alone(name, || {
        let _watchdog = watchdog();
        let here = thread::current().id();
        let ended = AtomicU64::new(0);
        until_taken(|| {
            let taken = AtomicBool::new(false);
            let before = ended.load(Ordering::SeqCst);
            let first = || {
                wait_for(&taken, enough());
                panic!("the first, on purpose");
            };
            let second = || {
                taken.store(is_elsewhere(here), Ordering::SeqCst);
                // The first half panics meanwhile.
                (0..1_000).for_each(|_| thread::yield_now());
                ended.fetch_add(1, Ordering::SeqCst);
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| join::<_, _, (), _>(first, second)));
            let payload = outcome.expect_err("the first half panics");
            assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "the first, on purpose");
            let taken = taken.load(Ordering::SeqCst);
            assert_eq!(
                ended.load(Ordering::SeqCst) - before,
                u64::from(taken),
                "ended, or dropped"
            );
            taken
        });
    });
}

// Catches: a lost payload, or one of the wrong half.
#[test]
fn a_panic_in_the_second_half_reaches_the_caller_wherever_it_runs() {
    let name = "a_panic_in_the_second_half_reaches_the_caller_wherever_it_runs";
    alone(name, || {
        let _watchdog = watchdog();
        let here = thread::current().id();
        let panics = |wait: bool| {
            let taken = AtomicBool::new(false);
            let first = || wait && wait_for(&taken, enough());
            let second = || {
                taken.store(is_elsewhere(here), Ordering::SeqCst);
                panic!("the second, on purpose");
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| join::<_, _, _, ()>(first, second)));
            let payload = outcome.expect_err("the second half panics");
            assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "the second, on purpose");
            taken.load(Ordering::SeqCst)
        };
        until_taken(|| panics(true));
        until("the caller takes its half back", || !panics(false));
    });
}

// Catches: a join that needs a permit of its own queue, or a worker of its own pod.
#[test]
fn a_join_in_an_item_of_a_limited_queue_needs_no_permit() {
    let _watchdog = watchdog();
    let builders = [
        queue("halves-ordered").ordered(),
        queue("halves-one").max_active(1),
        queue("halves-cpu").per_cpu(),
        queue("halves-bh").bh(),
    ];
    for builder in builders {
        let queue = builder.build().unwrap();
        let sum = queue.spawn(|| {
            let leaves = AtomicUsize::new(0);
            (fib(12, &leaves), leaves.into_inner())
        });
        // No helper: a BH item runs on its own worker only.
        queue.flush().unwrap();
        assert_eq!(sum.join().unwrap(), (144, 233), "{}", queue.name());
    }
}

// Catches: a deque that overflows, and threads that are made for halves.
#[test]
fn a_recursion_deeper_than_the_deque_runs_on_the_caller() {
    fn descend(depth: usize, most: &AtomicUsize) -> usize {
        if depth == 0 {
            most.fetch_max(threads(), Ordering::SeqCst);
            return 0;
        }
        let (a, b) = join(|| descend(depth - 1, most), || 1);
        a + b
    }
    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }
    let name = "a_recursion_deeper_than_the_deque_runs_on_the_caller";
    alone(name, || {
        let _watchdog = watchdog();
        let queue = queue("halves-warm-up").build().unwrap();
        queue.execute(|| ()).unwrap();
        queue.flush().unwrap();
        let most_expected = threads() + 2 * cpus().len() + 2;
        let most = AtomicUsize::new(0);
        assert_eq!(descend(2_000, &most), 2_000);
        let most = most.into_inner();
        // Workers that help, and threads that watch over them.
        assert!(most <= most_expected, "{most} threads, at most {most_expected} expected");
    });
}

// Catches: results that are dropped twice or leaked, by either thread.
#[test]
fn results_and_captures_are_dropped_once() {
    let _watchdog = watchdog();
    let live = std::sync::Arc::new(());
    for _ in 0..1_000 {
        let (a, b) = (live.clone(), live.clone());
        let (a, b) = join(move || Box::new(a), move || vec![b]);
        assert_eq!(b.len(), 1);
        drop(a);
    }
    let (a, b) = (live.clone(), live.clone());
    let first = move || -> std::sync::Arc<()> {
        let _a = a;
        panic!("on purpose");
    };
    assert!(catch_unwind(AssertUnwindSafe(|| join(first, move || b))).is_err());
    assert_eq!(std::sync::Arc::strong_count(&live), 1);
}
