//! fork(2): the parent continues; the child starts afresh and runs none of the parent's items.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::child::alone;
use crate::support::filter::refuse_here;
use crate::support::flag::SetOnDrop;
use crate::support::forked::{fork, in_child, leave};
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::machine::cpus;
use crate::support::tiers::{collect_reports, reports};
use crate::support::{queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, ErrorKind, Queue, Report, Shutdown, rcu, sysfs};

/// Uses old and new queues in every way that a child must be able to.
fn use_uwork(queues: &[&Queue]) {
    for queue in queues {
        let handles: Vec<_> = (0..100).map(|n| queue.spawn(move || n)).collect();
        queue.flush().expect("not from an item");
        let sum: i32 = handles.into_iter().map(|handle| handle.join().expect("it ran")).sum();
        assert_eq!(sum, 99 * 100 / 2);
        // A join helps: it runs the item here, with a slot that helpers keep.
        (0..100).for_each(|n| assert_eq!(queue.spawn(move || n).join().expect("it ran"), n));
        let (job, timed) = (Job::new(|_| {}), Later::new(|_| {}));
        assert!(queue.enqueue(job.clone()).is_queued());
        assert!(queue.enqueue_delayed(timed.clone(), Duration::from_millis(1)).is_queued());
        timed.work.flush();
        queue.flush().expect("not from an item");
        assert_eq!((job.tally.finished(), timed.tally.finished()), (1, 1));
        queue.drain().expect("not from an item");
    }
    uwork::on_each_cpu(|_| {}).expect("not from an item");
    let again = queue("child").build().expect("a queue");
    assert_eq!(again.spawn(|| 7).join().expect("it ran"), 7);
    assert_eq!(uwork::join(|| 1, || 2), (1, 2));
}

#[test]
fn a_child_uses_existing_and_new_queues() {
    let _watchdog = watchdog();
    let queues = [
        queue("unbound").build().unwrap(),
        queue("percpu").per_cpu().build().unwrap(),
        queue("ordered").ordered().build().unwrap(),
        queue("reclaim").mem_reclaim().build().unwrap(),
        queue("dedicated").dedicated().build().unwrap(),
        queue("bh").bh().build().unwrap(),
        queue("limited").max_active(1).build().unwrap(),
    ];
    let all: Vec<&Queue> = queues.iter().collect();
    use_uwork(&all);
    in_child(|| {
        use_uwork(&all);
        // A child of the child.
        in_child(|| use_uwork(&all));
        use_uwork(&all);
    });
    use_uwork(&all);
}

#[test]
fn a_fork_in_a_flood_harms_neither_parent_nor_child() {
    let _watchdog = watchdog();
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let queues =
        [queue("flood").build().unwrap(), queue("flood").per_cpu().max_active(2).build().unwrap()];
    let stop = Arc::new(AtomicBool::new(false));
    let over = SetOnDrop(&stop);
    let submitters: Vec<_> = (0..2)
        .map(|_| {
            let (queues, stop) = (queues.clone(), stop.clone());
            thread::spawn(move || {
                let mut queued = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    for queue in &queues {
                        drop(queue.spawn(|| RUNS.fetch_add(1, Ordering::Relaxed)));
                        queued += 1;
                    }
                    if queued.is_multiple_of(1_000) {
                        queues.iter().for_each(|queue| queue.flush().expect("not from an item"));
                    }
                }
                queued
            })
        })
        .collect();
    for _ in 0..20 {
        let before = RUNS.load(Ordering::Relaxed);
        until("the flood goes on", || RUNS.load(Ordering::Relaxed) > before + 100);
        in_child(|| {
            let runs = RUNS.load(Ordering::Relaxed);
            use_uwork(&[&queues[0], &queues[1]]);
            assert_eq!(RUNS.load(Ordering::Relaxed), runs, "nothing of the parent's has run");
        });
    }
    drop(over);
    let queued: u32 = submitters.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    queues.iter().for_each(|queue| queue.flush().unwrap());
    assert_eq!(RUNS.load(Ordering::Relaxed), queued, "nothing was lost in the parent");
}

/// Whatever state an item had in the parent, it is idle in the child, and can be queued there.
#[test]
fn pending_items_are_idle_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("pending").max_active(1).build().unwrap();
    let (gate, started) = (Gate::new(), Gate::new());
    let (inside, begun) = (gate.clone(), started.clone());
    let running = Job::new(move |_| {
        begun.open();
        inside.wait();
    });
    assert!(queue.enqueue(running.clone()).is_queued());
    started.wait();
    let (queued, armed) = (Job::new(|_| {}), Later::new(|_| {}));
    assert!(queue.enqueue(queued.clone()).is_queued());
    assert!(queue.enqueue(running.clone()).is_queued(), "again, behind itself");
    assert!(queue.enqueue_delayed(armed.clone(), Duration::from_secs(3_600)).is_queued());
    in_child(|| {
        assert!(!running.work.is_pending() && !queued.work.is_pending());
        assert!(!armed.work.is_pending());
        assert!(!running.work.busy().running, "its worker is in the parent");
        // No wait is needed, and no item is cancelled.
        assert!(!queued.work.flush() && !armed.work.flush());
        assert!(queued.work.cancel_sync().unwrap().is_none());
        queue.flush().expect("not from an item");
        assert_eq!((queued.tally.started(), armed.tally.started()), (0, 0));
        assert!(queue.enqueue(queued.clone()).is_queued());
        assert!(queue.enqueue_delayed(armed.clone(), Duration::from_millis(1)).is_queued());
        armed.work.flush();
        queue.flush().expect("not from an item");
        assert_eq!((queued.tally.finished(), armed.tally.finished()), (1, 1));
    });
    assert!(queued.work.is_pending() && running.work.is_pending() && armed.work.is_pending());
    gate.open();
    queue.flush().unwrap();
    assert_eq!((running.tally.finished(), queued.tally.finished()), (2, 1));
    assert!(armed.work.cancel().is_some());
}

/// Items of queues that inherit: queued, taken by a worker, and queued again while they run.
#[test]
fn a_child_runs_the_pending_items_of_queues_that_it_inherits() {
    let _watchdog = watchdog();
    let inheriting = |name| queue(name).fork_inherited(true);
    for queue in [
        inheriting("heir").max_active(1).build().unwrap(),
        inheriting("heir-ordered").ordered().build().unwrap(),
        inheriting("heir-percpu").per_cpu().max_active(1).build().unwrap(),
    ] {
        let (gate, started) = (Gate::new(), Gate::new());
        let (inside, begun) = (gate.clone(), started.clone());
        let parent = std::process::id();
        let running = Job::new(move |_| {
            begun.open();
            if std::process::id() == parent {
                inside.wait();
            }
        });
        // All on one CPU, whichever this thread runs on: a per-CPU queue runs one item on each.
        let enqueue = |item: &Arc<Job>| {
            assert!(queue.enqueue_on(cpus()[0], item.clone()).unwrap().is_queued());
        };
        enqueue(&running);
        started.wait();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let item = |number: usize| {
            let order = order.clone();
            Job::new(move |_| order.lock().unwrap().push(number))
        };
        let items: Vec<_> = (0..100).map(item).collect();
        items.iter().for_each(enqueue);
        // Again, behind itself.
        enqueue(&running);
        let armed = Later::new(|_| {});
        assert!(queue.enqueue_delayed(armed.clone(), Duration::from_secs(3_600)).is_queued());
        let has_run = || {
            let order = order.lock().unwrap().clone();
            // Items of a per-CPU or unbound queue may start on several CPUs.
            assert!(order.is_sorted() || !queue.name().ends_with("ordered"), "{order:?}");
            order.len()
        };
        let everything_runs = || {
            assert!(items[7].work.is_pending() && !armed.work.is_pending());
            assert!(items[7].work.cancel().is_some(), "it is found");
            queue.flush().expect("not from an item");
            assert_eq!((has_run(), items[7].tally.started()), (99, 0));
            assert_eq!(running.tally.finished(), 1);
            use_uwork(&[&queue]);
        };
        in_child(|| {
            // A child of the child inherits what has not started.
            in_child(everything_runs);
            everything_runs();
        });
        // Without a wait: a submission to another queue suffices.
        in_child(|| {
            queue_and_forget();
            until("the inherited items", || has_run() == 100);
        });
        assert!(items.iter().all(|item| item.work.is_pending()) && armed.work.is_pending());
        gate.open();
        queue.flush().unwrap();
        assert_eq!((has_run(), running.tally.finished()), (100, 2));
        assert!(armed.work.cancel().is_some());
    }
}

/// Queues an item on a new queue, which stays.
fn queue_and_forget() {
    let other = queue("other").build().expect("a queue");
    assert!(other.enqueue(Job::new(|_| {})).is_queued());
    std::mem::forget(other);
}

#[test]
fn a_fork_inside_an_item() {
    let _watchdog = watchdog();
    let queue = queue("forks").build().unwrap();
    let (inner, allowed) = (queue.clone(), queue.cpumask().len());
    let forks = move || {
        in_child(|| {
            use_uwork(&[&inner]);
            assert_eq!(cpus().len(), allowed, "the worker's CPUs are not the child's");
        });
        uwork::blocking(|| in_child(|| use_uwork(&[&inner])));
        // The child returns from the item and ends with it.
        fork()
    };
    // On a worker: a join may run the item on this thread, a flush does not.
    let handle = queue.spawn(forks.clone());
    queue.flush().unwrap();
    assert_eq!(handle.join().unwrap(), Some(0));
    queue.flush().unwrap();
}

/// A helping thread is inside the item as well; in the child it continues after the help.
#[test]
fn a_fork_while_helping() {
    let _watchdog = watchdog();
    let queue = queue("helped").ordered().build().unwrap();
    let (gate, started) = (Gate::new(), Gate::new());
    let (inside, begun) = (gate.clone(), started.clone());
    let first = queue.spawn(move || {
        begun.open();
        inside.wait();
    });
    started.wait();
    let second = queue.spawn(fork);
    gate.open();
    first.join().unwrap();
    let status = second.join().unwrap();
    if status.is_none() {
        let outcome = catch_unwind(AssertUnwindSafe(|| use_uwork(&[&queue])));
        leave(outcome.is_ok());
    }
    assert_eq!(status, Some(0));
    use_uwork(&[&queue]);
}

/// Counts its runs.
struct Reclaim {
    work: rcu::RcuWork<Reclaim>,
    ran: AtomicU32,
}

uwork::has_work!(impl HasRcuWork for Reclaim { work });

impl uwork::WorkItem for Reclaim {
    type Pointer = Arc<Reclaim>;
    fn run(this: Arc<Reclaim>) {
        this.ran.fetch_add(1, Ordering::Relaxed);
    }
}

impl Reclaim {
    fn new() -> Arc<Reclaim> {
        Arc::new(Reclaim { work: rcu::RcuWork::new(), ran: AtomicU32::new(0) })
    }
}

// Catches: a child in which the guard that the forking thread holds protects nothing.
#[test]
fn a_read_side_of_the_forking_thread_protects_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let looks = || {
        let queues = uwork::counters().queues;
        queues.iter().find(|queue| queue.name == "uwork/rcu_gp").map_or(0, |queue| queue.started)
    };
    let protects = || {
        assert!(rcu::is_read_locked());
        let (item, before) = (Reclaim::new(), looks());
        assert!(queue.enqueue_rcu(item.clone()).is_queued());
        assert!(!item.work.flush(), "it would wait for itself");
        // The driver looks repeatedly only while a reader delays it.
        until("three looks at the readers", || looks() >= before + 3);
        assert!(item.work.is_pending() && item.ran.load(Ordering::Relaxed) == 0);
        item
    };
    let ends = |item: &Reclaim| {
        assert!(!rcu::is_read_locked());
        item.work.flush();
        assert_eq!((item.work.is_pending(), item.ran.load(Ordering::Relaxed)), (false, 1));
    };
    let mut guard = Some(rcu::read_lock());
    in_child(|| {
        protects();
        let inner = rcu::read_lock();
        in_child(|| {
            let item = protects();
            drop(guard.take());
            protects();
            drop(inner);
            ends(&item);
        });
    });
    in_child(|| {
        let item = protects();
        // A guard of the child does not count as one of the parent's.
        drop(rcu::read_lock());
        protects();
        drop(guard.take());
        ends(&item);
        let own = rcu::read_lock();
        let item = protects();
        drop(own);
        ends(&item);
    });
    let item = protects();
    drop(guard);
    ends(&item);
}

#[test]
fn readers_of_the_parent_delay_no_grace_period_in_the_child() {
    let _watchdog = watchdog();
    let queue = queue("rcu").build().unwrap();
    let item = Reclaim::new;
    let before = item();
    assert!(queue.enqueue_rcu(before.clone()).is_queued());
    before.work.flush();
    let (gate, reads) = (Gate::new(), Gate::new());
    let (held, reading) = (gate.clone(), reads.clone());
    let reader = thread::spawn(move || {
        let _guard = rcu::read_lock();
        reading.open();
        held.wait();
    });
    reads.wait();
    let waiting = item();
    assert!(queue.enqueue_rcu(waiting.clone()).is_queued());
    in_child(|| {
        assert!(!waiting.work.is_pending());
        let fresh = item();
        assert!(queue.enqueue_rcu(fresh.clone()).is_queued());
        fresh.work.flush();
        assert_eq!(
            (fresh.ran.load(Ordering::Relaxed), waiting.ran.load(Ordering::Relaxed)),
            (1, 0)
        );
    });
    assert_eq!(waiting.ran.load(Ordering::Relaxed), 0);
    gate.open();
    reader.join().unwrap();
    waiting.work.flush();
    assert_eq!(waiting.ran.load(Ordering::Relaxed), 1);
}

/// A pod keeps a permit of the shared limit between its items; the child begins without.
#[test]
fn a_limit_that_pods_share_holds_in_a_child() {
    let _watchdog = watchdog();
    let queue = queue("shared")
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
        .max_active(4)
        .build()
        .unwrap();
    let fill = || {
        let (gate, running) = (Gate::new(), Arc::new(AtomicU32::new(0)));
        let handles: Vec<_> = (0..8)
            .map(|_| {
                let (gate, running) = (gate.clone(), running.clone());
                queue.spawn(move || {
                    let others = running.fetch_add(1, Ordering::SeqCst);
                    gate.wait_blocking();
                    running.fetch_sub(1, Ordering::SeqCst);
                    others
                })
            })
            .collect();
        until("the limit is reached", || running.load(Ordering::SeqCst) >= 4);
        gate.open();
        queue.flush().unwrap();
        let others = handles.into_iter().map(|handle| handle.join().unwrap()).max();
        assert_eq!(others, Some(3));
    };
    for _ in 0..5 {
        // The last run of each pod keeps a permit.
        fill();
        in_child(|| {
            fill();
            use_uwork(&[&queue]);
        });
    }
}

// Catches: a report that a child does not make because its parent has made it.
#[test]
fn a_child_reports_again_that_all_workers_of_a_pool_block() {
    alone("a_child_reports_again_that_all_workers_of_a_pool_block", || {
        let _watchdog = watchdog();
        collect_reports();
        sysfs::set("module/parameters/pool_workers_max", "2").unwrap();
        let queue = queue("capped").per_cpu().build().unwrap();
        let reported =
            || reports(|report| matches!(report, Report::WorkersMax { .. }).then_some(())).len();
        let block_all = || {
            let (before, gate) = (reported(), Gate::new());
            let items: Vec<_> = (0..4)
                .map(|_| {
                    let gate = gate.clone();
                    Job::new(move |_| gate.wait_blocking())
                })
                .collect();
            for item in &items {
                assert!(queue.enqueue_on(cpus()[0], item.clone()).unwrap().is_queued());
            }
            until("the report", || reported() > before);
            gate.open();
            queue.flush().unwrap();
            assert!(items.iter().all(|item| item.tally.finished() == 1));
        };
        block_all();
        in_child(block_all);
    });
}

// Catches: a child whose queues refuse all items although they can be made, because the thread that
// would end the parent's shutdown does not exist there.
#[test]
fn a_shutdown_that_has_begun_is_complete_in_the_child() {
    alone("a_shutdown_that_has_begun_is_complete_in_the_child", || {
        let _watchdog = watchdog();
        let (old, started, gate) = (queue("old").build().unwrap(), Gate::new(), Gate::new());
        let item = Job::held(&started, &gate);
        assert!(old.enqueue(item.clone()).is_queued());
        started.wait();
        let drains = thread::spawn(|| uwork::shutdown(Shutdown::Drain, Duration::MAX));
        until("the shutdown has begun", || !old.enqueue(Job::counting()).is_queued());
        in_child(|| {
            let error = queue("new").build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains("shut down"), "{error}");
            assert!(!old.enqueue(Job::counting()).is_queued());
            assert!(uwork::shutdown(Shutdown::Drain, Duration::MAX).unwrap().is_complete());
        });
        gate.open();
        assert!(drains.join().unwrap().unwrap().is_complete());
        assert_eq!(item.tally.finished(), 1);
    });
}

// Catches: handlers of a fork that end the parent where they get no memory, though the fork itself
// needs no address space.
#[test]
fn a_fork_needs_no_new_address_space() {
    alone("a_fork_needs_no_new_address_space", || {
        let queues: Vec<Queue> = (0..200).map(|_| queue("full").build().unwrap()).collect();
        let last = queues.last().unwrap();
        use_uwork(&[last]);
        // To the thread that forks only: another one may be about to allocate.
        let forks = || {
            for call in [libc::SYS_mmap, libc::SYS_mremap, libc::SYS_brk] {
                refuse_here(call, libc::ENOMEM);
            }
            (0..3).for_each(|_| in_child(|| {}));
        };
        thread::scope(|scope| scope.spawn(forks).join().unwrap());
        use_uwork(&[last]);
    });
}
