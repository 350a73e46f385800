//! Shutting down. The engine is process-wide, so each test is a process: this program again, with
//! one test and a mark in its environment.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::{received, until, watchdog, within};
use uwork::{Enqueued, ErrorKind, JoinError, Queue, Shutdown, shutdown, system};

/// A limit that is never reached.
const LONG: Duration = Duration::from_secs(3_600);

/// Runs `body` in a process of its own.
#[track_caller]
fn in_a_process(test: &str, body: fn()) {
    alone(test, || {
        let _watchdog = watchdog();
        body();
    });
}

/// Worker threads of this process.
fn worker_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with("uw/")).count()
}

#[test]
fn a_draining_shutdown_runs_all_items_and_then_refuses_all() {
    in_a_process("a_draining_shutdown_runs_all_items_and_then_refuses_all", || {
        let (sum, own) = (Arc::new(AtomicU32::new(0)), Queue::builder("own").build().unwrap());
        let ordered = Queue::builder("ordered").ordered().build().unwrap();
        let queues = [&own, &ordered, system::percpu(), system::dfl()];
        for _ in 0..250 {
            for queue in queues {
                let sum = sum.clone();
                drop(queue.spawn(move || sum.fetch_add(1, Ordering::Relaxed)));
            }
        }
        let later = Later::counting();
        assert!(own.enqueue_delayed(later.clone(), LONG).is_queued());
        // A thread sets its name once it runs.
        until("there are workers", || worker_threads() > 0);
        let report = shutdown(Shutdown::Drain, LONG).unwrap();
        assert!(report.is_complete(), "{report}");
        assert_eq!(sum.load(Ordering::Relaxed), 1_000);
        assert_eq!(
            (report.released, later.tally.started(), later.work.is_pending()),
            (1, 0, false)
        );
        assert_eq!(Arc::strong_count(&later), 1, "it was released");
        for queue in queues {
            assert!(matches!(queue.spawn(|| 1).join(), Err(JoinError::Refused)));
            assert!(matches!(queue.enqueue(Job::counting()), Enqueued::Refused(_)));
        }
        // A system queue that was never used before.
        assert!(matches!(system::long().spawn(|| 1).join(), Err(JoinError::Refused)));
        let late = Queue::builder("late").build().expect_err("no queue is made any more");
        assert_eq!(late.kind(), ErrorKind::Refused);
        assert!(late.to_string().contains("uwork was shut down in this process"), "{late}");
        // Calls that make a queue of the library's own do not panic.
        assert_eq!(uwork::join(|| 1, || 2), (1, 2));
        assert!(matches!(system::dfl().spawn_future(async {}).join(), Err(JoinError::Refused)));
        until("the workers have ended", || worker_threads() == 0);
    });
}

#[test]
fn a_draining_shutdown_accepts_items_queued_by_running_items() {
    in_a_process("a_draining_shutdown_accepts_items_queued_by_running_items", || {
        let (queue, other) =
            (Queue::builder("a").build().unwrap(), Queue::builder("b").build().unwrap());
        let (started, gate) = (Gate::new(), Gate::new());
        let (own, elsewhere) = (queue.clone(), other.clone());
        let (begun, may_end) = (started.clone(), gate.clone());
        let chain = queue.spawn(move || {
            begun.open();
            may_end.wait_blocking();
            (own.spawn(|| 1), elsewhere.spawn(|| 2))
        });
        started.wait();
        let ending = thread::spawn(|| shutdown(Shutdown::Drain, LONG).unwrap());
        until("the queue is shut", || {
            matches!(queue.enqueue(Job::counting()), Enqueued::Refused(_))
        });
        gate.open();
        assert!(ending.join().unwrap().is_complete());
        let (own, elsewhere) = chain.join().unwrap();
        assert_eq!((own.join().unwrap(), elsewhere.join().unwrap()), (1, 2));
    });
}

#[test]
fn a_cancelling_shutdown_releases_items_that_have_not_started() {
    in_a_process("a_cancelling_shutdown_releases_items_that_have_not_started", || {
        let queue = Queue::builder("q").ordered().build().unwrap();
        let (started, gate) = (Gate::new(), Gate::new());
        let held = Job::held(&started, &gate);
        assert!(queue.enqueue(held.clone()).is_queued());
        started.wait();
        let waiting: Vec<_> = (0..100).map(|n| queue.spawn(move || n)).collect();
        let future = queue.spawn_future(async { 7 });
        let job = Job::counting();
        assert!(queue.enqueue(job.clone()).is_queued());
        // The running item is queued once more: that queueing is deferred to the end of the run.
        assert!(queue.enqueue(held.clone()).is_queued());
        let ending = thread::spawn(|| shutdown(Shutdown::Cancel, LONG).unwrap());
        // A join of a cancelled closure returns while the running item still runs.
        for handle in waiting {
            let outcome = within("join of a cancelled closure", move || handle.join());
            assert!(matches!(outcome, Err(JoinError::Cancelled)), "{outcome:?}");
        }
        assert!(within("join of a cancelled future", move || future.join()).is_err());
        until("the items are released", || Arc::strong_count(&job) == 1);
        gate.open();
        let report = ending.join().unwrap();
        assert!(report.is_complete() && report.released == 103, "{report}");
        assert_eq!((held.tally.finished(), job.tally.started()), (1, 0));
    });
}

/// Counts its drop, then panics.
#[repr(align(128))]
struct LargeBomb(#[allow(dead_code, reason = "it makes the closure large")] [u8; 10_000]);

static DROPPED: AtomicU32 = AtomicU32::new(0);

impl Drop for LargeBomb {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
        panic!("dropped, on purpose");
    }
}

// Catches: a closure without a handle that is leaked, or whose destructor ends the worker or the
// shutdown that releases it.
#[test]
fn a_cancelling_shutdown_releases_closures_whose_destructors_panic() {
    in_a_process("a_cancelling_shutdown_releases_closures_whose_destructors_panic", || {
        let queue = Queue::builder("q").ordered().build().unwrap();
        let (started, gate) = (Gate::new(), Gate::new());
        assert!(queue.enqueue(Job::held(&started, &gate)).is_queued());
        started.wait();
        let bomb = |_| {
            let bomb = LargeBomb([7; 10_000]);
            move || {
                let _bomb = &bomb;
                panic!("it must not run");
            }
        };
        queue.execute(bomb(0)).unwrap();
        assert_eq!(queue.execute_all((1..3).map(bomb)).unwrap(), 2);
        let behind = Job::counting();
        assert!(queue.enqueue(behind.clone()).is_queued());
        let ending = thread::spawn(|| shutdown(Shutdown::Cancel, LONG).unwrap());
        until("the items are released", || Arc::strong_count(&behind) == 1);
        gate.open();
        let report = ending.join().unwrap();
        assert!(report.is_complete() && report.released == 4, "{report}");
        assert_eq!((DROPPED.load(Ordering::SeqCst), behind.tally.started()), (3, 0));
    });
}

#[test]
fn a_shutdown_names_items_that_do_not_end_in_time() {
    in_a_process("a_shutdown_names_items_that_do_not_end_in_time", || {
        let queue = Queue::builder("stuck").max_active(1).ordered().build().unwrap();
        let (done, wait) = mpsc::channel::<()>();
        let (begun, started) = mpsc::channel::<()>();
        let stuck = queue.spawn(move || {
            begun.send(()).unwrap();
            let _ = received(&wait);
        });
        started.recv().unwrap();
        let pending = queue.spawn(|| ());
        let report = shutdown(Shutdown::Drain, Duration::from_millis(20)).unwrap();
        let [left] = &report.unfinished[..] else { panic!("{report}") };
        assert_eq!((&*left.queue.name, left.pending(), left.running()), ("stuck", 1, 1));
        assert!(report.took_ns >= 20_000_000, "{report}");
        assert!(report.to_string().contains("queue stuck: 1 pending, 1 running"), "{report}");
        let again = shutdown(Shutdown::Cancel, Duration::ZERO).unwrap();
        assert_eq!((again.released, again.is_complete()), (1, false), "{again}");
        drop(done);
        assert!(shutdown(Shutdown::Drain, LONG).unwrap().is_complete());
        stuck.join().unwrap();
        assert!(matches!(pending.join(), Err(JoinError::Cancelled)));
        until("the workers have ended", || worker_threads() == 0);
    });
}

#[test]
fn not_from_inside_an_item() {
    in_a_process("not_from_inside_an_item", || {
        let inside = system::dfl().spawn(|| shutdown(Shutdown::Cancel, LONG));
        assert!(inside.join().unwrap().unwrap_err().would_deadlock());
        assert_eq!(system::dfl().spawn(|| 3).join().unwrap(), 3, "nothing was done");
    });
}

#[test]
fn two_concurrent_shutdowns_beside_producers_lose_no_item() {
    in_a_process("two_concurrent_shutdowns_beside_producers_lose_no_item", || {
        let queues: Arc<Vec<Queue>> = Arc::new(vec![
            Queue::builder("p").per_cpu().build().unwrap(),
            Queue::builder("u").build().unwrap(),
            Queue::builder("o").ordered().build().unwrap(),
        ]);
        let (queued, ran) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let (queues, queued, ran) = (queues.clone(), queued.clone(), ran.clone());
                thread::spawn(move || {
                    let mut handles = Vec::new();
                    for n in 0.. {
                        let ran = ran.clone();
                        let queue: &Queue = &queues[n % 3];
                        let handle = queue.spawn(move || ran.fetch_add(1, Ordering::SeqCst));
                        queued.fetch_add(1, Ordering::SeqCst);
                        if handle.is_finished() && n % 64 == 63 && is_shut(queue) {
                            break;
                        }
                        handles.push(handle);
                    }
                    handles.into_iter().map(|handle| u32::from(handle.join().is_ok())).sum::<u32>()
                })
            })
            .collect();
        until("work is under way", || ran.load(Ordering::SeqCst) > 1_000);
        let ends: Vec<_> = [Shutdown::Drain, Shutdown::Cancel]
            .map(|how| thread::spawn(move || shutdown(how, LONG).unwrap()))
            .into_iter()
            .collect();
        assert!(ends.into_iter().all(|end| end.join().unwrap().is_complete()));
        let fine: u32 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        let (queued, ran) = (queued.load(Ordering::SeqCst), ran.load(Ordering::SeqCst));
        assert!(fine <= ran && ran <= queued, "{fine} handles, {ran} runs, {queued} queued");
        assert!(queues.iter().all(|queue| queue.is_idle() && is_shut(queue)));
    });
}

fn is_shut(queue: &Queue) -> bool {
    matches!(queue.enqueue(Job::counting()), Enqueued::Refused(_))
}

/// Items that wait for a grace period are released like armed ones.
#[test]
fn items_that_wait_for_a_grace_period_are_released() {
    in_a_process("items_that_wait_for_a_grace_period_are_released", || {
        struct Old {
            work: uwork::rcu::RcuWork<Old>,
        }
        uwork::has_work!(impl HasRcuWork for Old { work });
        impl uwork::WorkItem for Old {
            type Pointer = Arc<Old>;
            fn run(_: Arc<Old>) {
                panic!("it was released");
            }
        }
        let queue = Queue::builder("rcu").build().unwrap();
        let guard = uwork::rcu::read_lock();
        let item = Arc::new(Old { work: uwork::rcu::RcuWork::new() });
        assert!(queue.enqueue_rcu(item.clone()).is_queued());
        let report = shutdown(Shutdown::Drain, LONG).unwrap();
        assert!(report.is_complete(), "{report}");
        assert!(!item.work.is_pending());
        assert_eq!(Arc::strong_count(&item), 1);
        assert!(!item.work.flush());
        drop(guard);
        assert!(matches!(queue.enqueue_rcu(item), Enqueued::Refused(_)));
        assert_eq!(uwork::panics(), 0);
    });
}

#[test]
fn a_function_on_a_cpu_is_refused_afterwards() {
    in_a_process("a_function_on_a_cpu_is_refused_afterwards", || {
        let cpu = Queue::builder("q").build().unwrap().cpumask().first().unwrap();
        assert_eq!(uwork::work_on_cpu(cpu, || 1).unwrap(), 1);
        shutdown(Shutdown::Drain, LONG).unwrap();
        let error = uwork::work_on_cpu(cpu, || panic!("it was refused")).unwrap_err();
        assert_eq!(error.kind(), uwork::ErrorKind::Refused);
        let error = uwork::on_each_cpu(|_| panic!("it was refused")).unwrap_err();
        assert_eq!(error.kind(), uwork::ErrorKind::Refused);
    });
}

/// A destructor that a shutdown runs may call uwork, on any queue.
#[test]
fn released_items_may_wait_and_query() {
    struct Holder {
        work: uwork::DelayedWork<Holder>,
        other: Queue,
    }
    uwork::has_work!(impl HasDelayedWork for Holder { work });
    impl uwork::WorkItem for Holder {
        type Pointer = Arc<Holder>;
        fn run(_: Arc<Holder>) {}
    }
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    impl Drop for Holder {
        fn drop(&mut self) {
            self.other.flush().unwrap();
            assert_eq!(uwork::current_work(), None);
            assert!(!uwork::set_worker_desc("nobody"));
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    in_a_process("released_items_may_wait_and_query", || {
        let other = Queue::builder("other").build().unwrap();
        let queue = Queue::builder("gone").build().unwrap();
        let item = Arc::new(Holder { work: uwork::DelayedWork::new(), other });
        assert!(queue.enqueue_delayed(item, LONG).is_queued());
        drop(queue);
        shutdown(Shutdown::Drain, LONG).unwrap();
        assert_eq!((DROPPED.load(Ordering::Relaxed), uwork::panics()), (1, 0));
    });
}

/// Calls a closure when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    fn new(f: F) -> OnDrop<F> {
        OnDrop(Some(f))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|f| f());
    }
}

/// Queues an item that occupies an ordered queue until the gate opens.
fn hold(queue: &Queue) -> (Arc<Job>, Gate) {
    let (started, gate) = (Gate::new(), Gate::new());
    let held = Job::held(&started, &gate);
    assert!(queue.enqueue(held.clone()).is_queued());
    started.wait();
    (held, gate)
}

#[test]
fn a_destructor_may_cancel_flush_join_and_destroy() {
    in_a_process("a_destructor_may_cancel_flush_join_and_destroy", || {
        let queue = Queue::builder("q").ordered().build().unwrap();
        let other = Queue::builder("other").build().unwrap();
        let (_held, gate) = hold(&queue);
        let (peers, done) = ([Job::counting(), Job::counting()], Arc::new(AtomicU32::new(0)));
        // The peers wait behind the items whose destructors use them.
        let (own, theirs, place) =
            (queue.clone(), peers.clone(), Arc::new(std::sync::Mutex::new(None)));
        let (joined, finished) = (place.clone(), done.clone());
        let destructor = OnDrop::new(move || {
            let [first, second] = &theirs;
            assert!(first.work.cancel_sync().is_ok_and(|was| was.is_some()));
            second.work.flush();
            assert!(matches!(own.enqueue(second.clone()), Enqueued::Refused(_)));
            assert!(own.flush().unwrap_err().would_deadlock());
            let handle: uwork::JoinHandle<()> = joined.lock().unwrap().take().unwrap();
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
            other.destroy().unwrap();
            finished.fetch_add(1, Ordering::SeqCst);
        });
        drop(queue.spawn(move || drop(destructor)));
        *place.lock().unwrap() = Some(queue.spawn(|| ()));
        for peer in &peers {
            assert!(queue.enqueue(peer.clone()).is_queued());
        }
        let panics = OnDrop::new(|| panic!("on purpose"));
        drop(queue.spawn(move || drop(panics)));
        let ending = thread::spawn(|| shutdown(Shutdown::Cancel, LONG).unwrap());
        until("the destructor has returned", || done.load(Ordering::SeqCst) == 1);
        gate.open();
        let report = within("the shutdown", move || ending.join().unwrap());
        assert!(report.is_complete() && report.released == 5, "{report}");
        assert!(peers.iter().all(|peer| Arc::strong_count(peer) == 1 && !peer.work.is_pending()));
    });
}

#[test]
fn a_destructor_that_does_not_return_is_reported_by_name() {
    in_a_process("a_destructor_that_does_not_return_is_reported_by_name", || {
        let queue = Queue::builder("q").ordered().build().unwrap();
        let (_held, gate) = hold(&queue);
        let (done, wait) = mpsc::channel::<()>();
        let is_stuck = Gate::new();
        let entered = is_stuck.clone();
        let stuck = OnDrop::new(move || {
            entered.open();
            assert!(wait.recv().is_err());
        });
        drop(queue.spawn(move || drop(stuck)));
        let behind = queue.spawn(|| ());
        let report = shutdown(Shutdown::Cancel, Duration::ZERO).unwrap();
        assert!(!report.is_complete(), "{report}");
        is_stuck.wait();
        let mut report = shutdown(Shutdown::Cancel, Duration::from_millis(20)).unwrap();
        assert!(!report.is_complete(), "{report}");
        // The other one has been released.
        assert!(matches!(behind.join(), Err(JoinError::Cancelled)));
        until("only the stuck one is being released", || {
            report = shutdown(Shutdown::Cancel, Duration::ZERO).unwrap();
            report.releasing.len() == 1
        });
        let [left] = &report.releasing[..] else { panic!("{report}") };
        assert_eq!((&*left.queue, report.unfinished.len()), ("q", 1), "{report}");
        let name = left.function.name.as_deref().unwrap_or_default();
        assert!(name.contains("a_destructor_that_does_not_return_is_reported_by_name"), "{name}");
        assert!(report.to_string().contains(name), "{report}");
        gate.open();
        drop(done);
        assert!(shutdown(Shutdown::Cancel, LONG).unwrap().is_complete());
        until("the workers have ended", || worker_threads() == 0);
    });
}
