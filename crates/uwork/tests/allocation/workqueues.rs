//! Queueing, waiting and cancelling allocate nothing, and an item is small. The allocator of this
//! process counts per thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use crate::support::counting::counted;
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::machine::cpus;
use crate::support::{queue, until, watchdog};
use uwork::rcu::RcuWork;
use uwork::{Queue, WorkItem};

/// How often `f` allocates on the calling thread.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = counted();
    f();
    counted() - before
}

/// Queues share their workers: a test that occupies some of them would make others spawn more.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes every CPU busy with computing items, with others waiting behind them. The threads that the
/// engine starts for that exist afterwards.
fn make_all_cpus_busy() {
    let queue = queue("alloc-busy").build().unwrap();
    let may_stop = Gate::new();
    for cpu in cpus() {
        let (computes, stop) = (Gate::new(), may_stop.clone());
        let entered = computes.clone();
        let job = Job::new(move |_| {
            entered.open();
            stop.wait();
        });
        assert!(queue.enqueue_on(cpu, job).unwrap().is_queued());
        computes.wait();
    }
    for cpu in cpus() {
        assert!(queue.enqueue_on(cpu, Job::counting()).unwrap().is_queued());
    }
    may_stop.open();
    queue.flush().unwrap();
}

/// Spawns every worker that the queue may have running at once: a submitter that finds none idle
/// would spawn one.
fn warm_up(queue: &Queue) {
    static BUSY: Once = Once::new();
    BUSY.call_once(make_all_cpus_busy);
    for cpu in cpus() {
        let gates: Vec<(Gate, Gate)> = (0..cpus().len() + 2).map(|_| Default::default()).collect();
        for (started, may_end) in &gates {
            let held = Job::held(started, may_end);
            assert!(queue.enqueue_on(cpu, held).unwrap().is_queued());
        }
        let limit = if queue.is_ordered() { 1 } else { gates.len() };
        gates[..limit].iter().for_each(|(started, _)| started.wait());
        gates.iter().for_each(|(_, may_end)| may_end.open());
        queue.flush().unwrap();
    }
}

fn kinds() -> [Queue; 3] {
    [queue("alloc"), queue("alloc").per_cpu(), queue("alloc").ordered()]
        .map(|builder| builder.build().unwrap())
}

// Catches: an allocation for a half, or for the visit that a worker is called for.
#[test]
fn joins_of_two_closures_allocate_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    warm_up(&queue("alloc").build().unwrap());
    // The first call of a thread makes its deque, the first of the process the queue of the visits.
    uwork::join(|| (), || ());
    let joins = || (0..1_000).for_each(|_| assert_eq!(uwork::join(|| 1, || 2), (1, 2)));
    assert_eq!(allocations(joins), 0);
}

// Catches: an allocation on an item's path to its queue.
#[test]
fn queueing_allocates_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let cpus = cpus();
    for queue in kinds() {
        warm_up(&queue);
        let jobs: Vec<_> = (0..2_000).map(|_| Job::counting()).collect();
        let local = allocations(|| {
            for job in &jobs {
                assert!(queue.enqueue(job.clone()).is_queued());
            }
        });
        queue.flush().unwrap();
        let remote = allocations(|| {
            for (number, job) in jobs.iter().enumerate() {
                let cpu = cpus[number % cpus.len()];
                assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
            }
        });
        let again = allocations(|| {
            for job in &jobs {
                drop(queue.enqueue(job.clone()));
            }
        });
        queue.flush().unwrap();
        assert_eq!((local, remote, again), (0, 0, 0), "{queue:?}");
    }
}

/// What a batch of items or closures allocates, on a queue whose only worker is held meanwhile.
fn while_held(queue: &Queue, submit: impl FnOnce()) -> u64 {
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let count = allocations(submit);
    may_end.open();
    queue.flush().unwrap();
    count
}

// Catches: an allocation for each closure without a handle.
#[test]
fn closures_without_a_handle_allocate_once_for_127() {
    const CHUNKS: u64 = 10;
    let (_watchdog, _alone) = (watchdog(), alone());
    let queue = queue("alloc-execute").ordered().build().unwrap();
    warm_up(&queue);
    static SUM: AtomicU64 = AtomicU64::new(0);
    // It owns eight bytes: its block is a cache line.
    let closure = |n: u64| move || _ = SUM.fetch_add(n, Ordering::Relaxed);
    let count = 127 * CHUNKS;
    // This thread's chunk may have room left, and the last chunk is not full then.
    let expected = CHUNKS..=CHUNKS + 1;
    let one_by_one =
        while_held(&queue, || (0..count).for_each(|n| queue.execute(closure(n)).unwrap()));
    assert!(expected.contains(&one_by_one), "{one_by_one}");
    let closures = (0..count).map(closure);
    let at_once =
        while_held(&queue, || assert_eq!(queue.execute_all(closures).unwrap() as u64, count));
    assert!(expected.contains(&at_once), "{at_once}");
    assert_eq!(SUM.load(Ordering::Relaxed), count * (count - 1));
}

// Catches: an allocation for the groups of a batch of items.
#[test]
fn a_batch_of_items_allocates_nothing_unless_an_item_is_returned() {
    let (_watchdog, _alone) = (watchdog(), alone());
    for queue in kinds() {
        warm_up(&queue);
        let jobs: Vec<_> = (0..1_000).map(|_| Job::counting()).collect();
        for _ in 0..3 {
            let items = jobs.iter().cloned();
            let count = allocations(|| {
                let outcome = queue.enqueue_all(items);
                assert_eq!((outcome.queued, outcome.returned.len()), (1_000, 0));
            });
            queue.flush().unwrap();
            assert_eq!(count, 0, "{queue:?}");
        }
    }
}

// Catches: an allocation for a waiter.
#[test]
fn flush_allocates_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    for queue in kinds() {
        warm_up(&queue);
        let jobs: Vec<_> = (0..100).map(|_| Job::counting()).collect();
        let mut counted = 0;
        for _ in 0..20 {
            counted += allocations(|| {
                for job in &jobs {
                    drop(queue.enqueue(job.clone()));
                }
                for job in jobs.iter().step_by(7) {
                    job.work.flush();
                }
                queue.flush().unwrap();
            });
        }
        assert_eq!(counted, 0, "{queue:?}");
        assert!(jobs.iter().all(|job| !job.work.is_pending()));
    }
}

// Catches: an allocation when an item is cancelled, in the queue or behind a run.
#[test]
fn cancelling_allocates_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    for queue in kinds() {
        warm_up(&queue);
        let jobs: Vec<_> = (0..100).map(|_| Job::counting()).collect();
        let mut counted = 0;
        for _ in 0..20 {
            counted += allocations(|| {
                for (number, job) in jobs.iter().enumerate() {
                    drop(queue.enqueue(job.clone()));
                    match number % 4 {
                        0 => drop(job.work.cancel()),
                        1 => drop(job.work.cancel_sync().unwrap()),
                        2 => {
                            drop(job.work.disable().unwrap());
                            drop(queue.enqueue(job.clone()));
                            assert!(job.work.enable().unwrap());
                        }
                        _ => {
                            drop(job.work.disable_sync().unwrap());
                            assert!(job.work.enable().unwrap());
                        }
                    }
                }
            });
            queue.flush().unwrap();
        }
        assert_eq!(counted, 0, "{queue:?}");
    }
}

// Catches: an allocation for a flush of a running item (the waiter is on its own stack).
#[test]
fn waiting_for_a_run_allocates_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let queue = queue("alloc").build().unwrap();
    warm_up(&queue);
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    assert!(queue.enqueue(job.clone()).is_queued());
    started.wait();
    let cancelled = job.clone();
    let waits = std::thread::spawn(move || {
        allocations(|| assert!(cancelled.work.cancel_sync().unwrap().is_none()))
    });
    until("it waits", || job.disable_depth() == 1);
    may_end.open();
    assert_eq!(waits.join().unwrap(), 0);
}

// Catches: a timer that is allocated when it is armed (the wheel is made once).
#[test]
fn arming_a_timer_allocates_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let queue = queue("alloc").build().unwrap();
    warm_up(&queue);
    let items: Vec<_> = (0..100).map(|_| Later::counting()).collect();
    let arm_all = || {
        for (number, item) in items.iter().enumerate() {
            let delay = Duration::from_secs(60 + (number as u64) * 977);
            for &cpu in &cpus() {
                let outcome = queue.enqueue_delayed_on(cpu, item.clone(), delay).unwrap();
                assert!(outcome.is_queued());
                drop(queue.mod_delayed(item.clone(), delay * 2));
                assert!(item.work.cancel().is_some());
            }
        }
    };
    arm_all();
    let cpus = allocations(|| drop(cpus()));
    assert_eq!(allocations(arm_all), cpus * items.len() as u64, "only the list of CPUs");
}

// Catches: an item that grew.
#[test]
fn an_item_has_at_most_48_bytes() {
    assert!(size_of::<uwork::Work<Job>>() <= 48);
    assert!(size_of::<Arc<Job>>() == size_of::<usize>());
}

/// An item that waits for a grace period.
struct Graced {
    work: RcuWork<Graced>,
}

uwork::has_work!(impl HasRcuWork for Graced { work });

impl WorkItem for Graced {
    type Pointer = Arc<Graced>;

    fn run(_this: Arc<Graced>) {}
}

// Catches: a heap allocation for each item on the stack, call on a CPU, or item that waits for a
// grace period.
#[test]
fn items_on_the_stack_and_after_a_grace_period_allocate_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let cpu = cpus()[0];
    kinds().iter().for_each(warm_up);
    let queue = queue("alloc").build().unwrap();
    let item = Arc::new(Graced { work: RcuWork::new() });
    let all = || {
        uwork::on_stack(
            |_| {},
            |stacked| {
                assert!(stacked.enqueue(&queue).is_queued());
                stacked.flush();
            },
        );
        assert_eq!(uwork::work_on_cpu(cpu, || 1), Ok(1));
        assert!(queue.enqueue_rcu(item.clone()).is_queued());
        item.work.flush();
        drop(uwork::rcu::read_lock());
    };
    // The first use creates the library's own queues and this thread's reader entry.
    all();
    assert_eq!(allocations(|| (0..100).for_each(|_| all())), 0);
}
