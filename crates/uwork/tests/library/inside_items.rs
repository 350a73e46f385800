//! Calls from inside an item that would wait for their own caller, and panics: defined results,
//! never a hang.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::{keep, queue, until, watchdog, within};
use uwork::{JoinError, JoinHandle, Queue};

/// Calls `f` in an item of `queue`, and returns its result.
fn inside<R: Send + 'static>(queue: &Queue, f: impl FnOnce() -> R + Send + 'static) -> R {
    keep(queue);
    let handle = queue.spawn(f);
    within("a call from inside an item", move || handle.join()).expect("the item does not panic")
}

fn every_kind() -> [Queue; 3] {
    [queue("inside"), queue("inside").per_cpu(), queue("inside").ordered()]
        .map(|builder| builder.build().unwrap())
}

// Catches: flush, drain or destroy that wait for the item that they are called from.
#[test]
fn a_queue_cannot_be_waited_for_from_inside() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        type Call = fn(&Queue) -> Result<(), uwork::Error>;
        let calls: [Call; 3] = [Queue::flush, Queue::drain, Queue::destroy];
        for call in calls {
            let own = queue.clone();
            let error = inside(&queue, move || call(&own)).unwrap_err();
            assert!(error.would_deadlock());
            assert!(!error.to_string().contains('\n'));
        }
        // The failed calls had no partial effect: the queue still accepts items from every thread.
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
        // A different queue can be waited for.
        let other = crate::support::queue("inside-other").build().unwrap();
        assert_eq!(inside(&queue, move || other.flush().and(other.drain())), Ok(()));
    }
}

// Catches: a join that waits for the item that it is called from.
#[test]
fn an_item_cannot_join_itself() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        keep(&queue);
        let own = Arc::new(Mutex::new(None::<JoinHandle<bool>>));
        let (handed_over, result) = (Gate::new(), Log::new());
        let (inner, gate, log) = (own.clone(), handed_over.clone(), result.clone());
        let handle = queue.spawn(move || {
            gate.wait_blocking();
            let myself = inner.lock().unwrap().take().expect("the handle was handed over");
            log.push(matches!(myself.join(), Err(JoinError::WouldDeadlock)));
            true
        });
        *own.lock().unwrap() = Some(handle);
        handed_over.open();
        result.wait_for_count(1);
        assert_eq!(result.events(), [true]);
        queue.flush().unwrap();
    }
}

// Catches: a join behind its own caller on an ordered queue; and one that is refused needlessly.
#[test]
fn join_from_inside_another_item() {
    let _watchdog = watchdog();
    let ordered = queue("inside").ordered().build().unwrap();
    let own = ordered.clone();
    let outcome = inside(&ordered, move || own.spawn(|| 1).join());
    assert!(matches!(outcome, Err(JoinError::WouldDeadlock)));
    // A closure that has finished can be joined anywhere.
    let finished = ordered.spawn(|| 2);
    until("it has finished", || finished.is_finished());
    assert_eq!(inside(&ordered, move || finished.join()).unwrap(), 2);
    // Closures on queues with a free permit can be joined from inside.
    for queue in every_kind().into_iter().filter(|queue| !queue.is_ordered()) {
        let own = queue.clone();
        let sum = inside(&queue, move || {
            let handles: Vec<_> = (0..10).map(|n| own.spawn(move || n)).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).sum::<i32>()
        });
        assert_eq!(sum, 45);
        let other = ordered.clone();
        assert_eq!(inside(&queue, move || other.spawn(|| 3).join()).unwrap(), 3);
    }
}

// Catches: a flush that waits behind its own caller, or that runs an item before its turn.
#[test]
fn a_flush_behind_its_caller_on_an_ordered_queue_does_not_wait() {
    let _watchdog = watchdog();
    let queue = queue("inside").ordered().build().unwrap();
    let own = queue.clone();
    let job = inside(&queue, move || {
        let job = Job::counting();
        assert!(own.enqueue(job.clone()).is_queued());
        assert!(!job.work.flush() && !job.work.flush_helping());
        assert_eq!(job.tally.started(), 0);
        job
    });
    queue.flush().unwrap();
    assert_eq!(job.tally.finished(), 1);
}

// Catches: a queue whose only permit is held by an item that waits for another one.
#[test]
fn an_item_lends_its_permit_to_the_item_that_it_waits_for() {
    let _watchdog = watchdog();
    for builder in [queue("inside"), queue("inside").per_cpu()] {
        let queue = builder.max_active(1).build().unwrap();
        let own = queue.clone();
        let sum = inside(&queue, move || {
            let handles: Vec<_> = (0..5).map(|n| own.spawn(move || n)).collect();
            let joined: i32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            let job = Job::counting();
            assert!(own.enqueue(job.clone()).is_queued());
            job.work.flush();
            joined + job.tally.finished() as i32
        });
        assert_eq!(sum, 11);
    }
}

// Catches: a last handle that waits for its own item, or destroys the queue before it is empty.
#[test]
fn the_last_handle_can_be_dropped_inside_an_item() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        let name = queue.name().to_owned();
        let (started, may_go_on) = (Gate::new(), Gate::new());
        let (entered, gate) = (started.clone(), may_go_on.clone());
        let last = Mutex::new(Some(queue.clone()));
        let dropper = Job::new(move |_| {
            entered.open();
            gate.wait_blocking();
            drop(last.lock().unwrap().take());
        });
        assert!(queue.enqueue(dropper.clone()).is_queued());
        started.wait();
        let behind: Vec<_> = (0..20).map(|_| Job::counting()).collect();
        for job in &behind {
            assert!(queue.enqueue(job.clone()).is_queued());
        }
        // This is not the last handle, so the drop does not wait.
        drop(queue);
        may_go_on.open();
        until("all have run", || behind.iter().all(|job| job.tally.finished() == 1));
        until("the queue is destroyed", || Queue::builder(name.as_str()).build().is_ok());
        assert_eq!(dropper.tally.finished(), 1);
    }
}

// Catches: a cancel from inside that waits for its own run, or misses the next one.
#[test]
fn an_item_can_cancel_itself() {
    let _watchdog = watchdog();
    for queue in every_kind() {
        keep(&queue);
        let own = queue.clone();
        let job = Job::new(move |this| {
            assert!(this.work.cancel().is_none(), "running, not pending");
            assert!(this.work.cancel_sync().unwrap().is_none());
            assert!(own.enqueue(this.clone()).is_queued());
            assert!(this.work.cancel().is_some());
            assert!(own.enqueue(this.clone()).is_queued());
            assert!(this.work.cancel_sync().unwrap().is_some());
            assert!(own.enqueue(this.clone()).is_queued());
            assert!(this.work.disable_sync().unwrap().is_some());
            assert!(!own.enqueue(this.clone()).is_queued());
            assert!(this.work.enable().unwrap());
        });
        assert!(queue.enqueue(job.clone()).is_queued());
        until("it has run", || job.tally.finished() == 1);
        queue.flush().unwrap();
        assert_eq!((job.tally.started(), job.work.is_pending()), (1, false));
        assert_eq!(Arc::strong_count(&job), 1);
    }
}

// Catches: a flush of a delayed item from inside it that waits for itself.
#[test]
fn a_delayed_item_can_flush_itself() {
    let _watchdog = watchdog();
    let queue = queue("inside").build().unwrap();
    keep(&queue);
    let own = queue.clone();
    let never = std::time::Duration::from_secs(3_600);
    let later = Later::new(move |this| {
        this.work.flush();
        if this.tally.started() == 1 {
            assert!(own.enqueue_delayed(this.clone(), never).is_queued());
            this.work.flush();
        }
    });
    assert!(queue.enqueue_delayed(later.clone(), std::time::Duration::ZERO).is_queued());
    until("it has run, and once more ahead of its time", || later.tally.finished() == 2);
    assert!(!later.tally.overlapped() && !later.work.is_pending());
}

/// The payload of a panic, whose destructor panics too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose, while the payload is dropped");
    }
}

// Catches: a worker that dies of a panic, a permit or a batch that is lost with it, a wrong count.
#[test]
fn a_panic_ends_the_item_and_not_the_worker() {
    alone("a_panic_ends_the_item_and_not_the_worker", || {
        let _watchdog = watchdog();
        for queue in every_kind() {
            keep(&queue);
            let before = uwork::panics();
            let jobs: Vec<_> = (0..30)
                .map(|number| Job::new(move |_| assert!(number % 3 != 0, "on purpose")))
                .collect();
            for job in &jobs {
                assert!(queue.enqueue(job.clone()).is_queued());
            }
            let flushed = queue.clone();
            within("flush after panics", move || flushed.flush()).unwrap();
            assert_eq!(uwork::panics() - before, 10);
            assert_eq!(jobs.iter().map(|job| job.tally.finished()).sum::<u32>(), 20);
            assert!(jobs.iter().all(|job| job.tally.started() == 1 && Arc::strong_count(job) == 1));
            // An item that panicked can be queued again, and flushed and cancelled.
            assert!(queue.enqueue(jobs[0].clone()).is_queued());
            jobs[0].work.flush();
            assert!(jobs[0].work.cancel_sync().unwrap().is_none());
            assert_eq!((jobs[0].tally.started(), uwork::panics() - before), (2, 11));
        }
    });
}

// Catches: a payload that is lost on its way to the handle, or is counted twice.
#[test]
fn a_panic_in_a_closure_reaches_its_handle() {
    alone("a_panic_in_a_closure_reaches_its_handle", || {
        let _watchdog = watchdog();
        for queue in every_kind() {
            let before = uwork::panics();
            let handle: JoinHandle<()> = queue.spawn(|| std::panic::panic_any(42_u32));
            let Err(JoinError::Panicked(payload)) = handle.join() else { panic!("it panicked") };
            assert_eq!(payload.downcast_ref::<u32>(), Some(&42));
            let handle: JoinHandle<()> = queue.spawn(|| panic!("on purpose: {}", 43));
            until("it has run", || handle.is_finished());
            let error = handle.join().unwrap_err();
            assert_eq!(error.to_string(), "the item panicked: on purpose: 43");
            assert_eq!(uwork::panics() - before, 2);
        }
    });
}

// Catches: a wait whose panic leaves the pool's running count wrong.
#[test]
fn a_panic_during_a_declared_wait_keeps_the_pools_counts_right() {
    alone("a_panic_during_a_declared_wait_keeps_the_pools_counts_right", || {
        let _watchdog = watchdog();
        for queue in every_kind() {
            keep(&queue);
            for _ in 0..20 {
                let handle: JoinHandle<()> =
                    queue.spawn(|| uwork::blocking(|| uwork::blocking(|| panic!("on purpose"))));
                assert!(handle.join().is_err());
            }
            let ran = Arc::new(AtomicU32::new(0));
            for _ in 0..20 {
                let ran = ran.clone();
                drop(queue.spawn(move || uwork::blocking(|| ran.fetch_add(1, Ordering::Relaxed))));
            }
            let flushed = queue.clone();
            within("flush", move || flushed.flush()).unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 20);
        }
    });
}

// Catches: a payload whose destructor panics and takes the worker with it.
#[test]
fn a_payload_that_panics_when_dropped_does_not_end_the_worker() {
    alone("a_payload_that_panics_when_dropped_does_not_end_the_worker", || {
        let _watchdog = watchdog();
        let queue = queue("inside").ordered().build().unwrap();
        keep(&queue);
        for _ in 0..3 {
            assert!(queue.enqueue(Job::new(|_| std::panic::panic_any(Bomb))).is_queued());
        }
        let job = Job::counting();
        assert!(queue.enqueue(job.clone()).is_queued());
        until("the item behind has run", || job.tally.finished() == 1);
        let flushed = queue.clone();
        within("flush", move || flushed.flush()).unwrap();
    });
}

// Catches: a join that only waits, and runs the closure on the caller all the same.
#[test]
fn a_join_that_only_waits_never_runs_the_closure() {
    let _watchdog = watchdog();
    let joins = |queue: &Queue| {
        let here = std::thread::current().id();
        for _ in 0..300 {
            let worker = queue.spawn(|| std::thread::current().id()).join_waiting().unwrap();
            assert_ne!(worker, here);
            let worker = queue.spawn_future(async { std::thread::current().id() });
            assert_ne!(worker.join_waiting().unwrap(), here);
        }
        uwork::scope(queue, |scope| {
            let worker = scope.spawn(|| std::thread::current().id()).join_waiting().unwrap();
            assert_ne!(worker, here);
        });
    };
    for builder in [queue("waits"), queue("waits").max_active(1), queue("waits").ordered()] {
        let queue = builder.build().unwrap();
        joins(&queue);
        let other = crate::support::queue("waits-in").build().unwrap();
        other.spawn(move || joins(&queue)).join().unwrap();
    }
}

// Catches: an item that waits for another of its own queue, whose permit it holds.
#[test]
fn a_join_that_only_waits_is_refused_in_items_of_the_same_queue() {
    let _watchdog = watchdog();
    let builders = [
        queue("waits-own"),
        queue("waits-own").max_active(1),
        queue("waits-own").ordered(),
        queue("waits-own").per_cpu(),
    ];
    for builder in builders {
        let queue = builder.build().unwrap();
        let own = queue.clone();
        let held = Gate::new();
        let opener = held.clone();
        let outcome = queue.spawn(move || {
            let inner = own.spawn(move || held.wait());
            // Not finished: it would wait for the gate.
            let outcome = inner.join_waiting();
            opener.open();
            matches!(outcome, Err(JoinError::WouldDeadlock))
        });
        assert!(outcome.join_waiting().unwrap(), "{}", queue.name());
        queue.flush().unwrap();
    }
}
