//! Cancelling items: cancel, disable, enable (SEMANTICS 2.14, 2.15, 2.17).

use std::sync::Arc;
use std::time::Duration;

use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, in_the_wait};
use crate::support::{queue, until, watchdog, within};
use uwork::{AffinityScope, AffinityScopeChoice, Enqueued, Queue};

/// A queue with every permit in use, so that queued items stay queued.
fn held_queue(stem: &str) -> (Queue, Gate) {
    let queue = queue(stem).ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    (queue, may_end)
}

// Catches: a cancel that misses an item in one of its lists, removes its neighbour too, loses the
// pointer, or returns true for an item that was not pending.
#[test]
fn s2_14_cancel_removes_the_item_from_any_list() {
    let _watchdog = watchdog();
    let (queue, may_end) = held_queue("s2-14");
    let jobs: Vec<_> = (0..5).map(|_| Job::counting()).collect();
    assert!(jobs[0].work.cancel().is_none(), "idle");
    for job in &jobs {
        assert!(queue.enqueue(job.clone()).is_queued());
    }
    // The last, the first, one in the middle.
    for at in [4, 0, 2] {
        let back = jobs[at].work.cancel().expect("it was pending");
        assert!(Arc::ptr_eq(&back, &jobs[at]));
        assert!(!jobs[at].work.is_pending());
        assert!(jobs[at].work.cancel().is_none(), "once only");
    }
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
    assert!(later.work.cancel().is_some(), "from the timer");
    // A cancelled item can be queued again, and comes last.
    assert!(queue.enqueue(jobs[2].clone()).is_queued());
    may_end.open();
    queue.flush().unwrap();
    let runs: Vec<u32> = jobs.iter().map(|job| job.tally.finished()).collect();
    assert_eq!(runs, [0, 1, 1, 1, 0]);
    assert!(jobs.iter().all(|job| Arc::strong_count(job) == 1), "every pointer is accounted for");
}

// Catches: a cancel that waits for the run, one that takes the run for the pending instance, or a
// second run after its pending instance was cancelled.
#[test]
fn s2_14_cancel_does_not_wait_for_a_run() {
    let _watchdog = watchdog();
    let queue = queue("s2-14").build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    assert!(queue.enqueue(job.clone()).is_queued());
    started.wait();
    let running = job.clone();
    assert!(within("cancel of a running item", move || running.work.cancel()).is_none());
    assert!(queue.enqueue(job.clone()).is_queued());
    let running = job.clone();
    assert!(within("cancel of a collision", move || running.work.cancel()).is_some());
    // The item was deferred to the end of its run, since the item behind it has run.
    assert!(queue.enqueue(job.clone()).is_queued());
    let behind = Job::counting();
    assert!(queue.enqueue(behind.clone()).is_queued());
    until("the item behind has run", || behind.tally.finished() == 1);
    let running = job.clone();
    assert!(within("cancel of a deferred item", move || running.work.cancel()).is_some());
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(job.tally.finished(), 1);
}

// Catches: a cancel that cannot remove an item that a worker has scheduled behind a long one.
#[test]
fn s2_14_cancel_removes_items_from_a_workers_batch() {
    let _watchdog = watchdog();
    let cpu = cpus()[0];
    let build = |stem: &str| {
        queue(stem)
            .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
            .affinity_strict(true)
    };
    let queue = build("s2-14").ordered().build().unwrap();
    let other = build("s2-14").build().unwrap();
    let enqueue = |queue: &Queue, job: &Arc<Job>| {
        assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    };
    for _ in 0..3_000 {
        // Makes the pool estimate the items as short, so that the worker takes many at once.
        enqueue(&queue, &Job::counting());
    }
    queue.flush().unwrap();
    // The only worker that may run computes, so the items that follow are scheduled in one batch.
    let (first, long): ([Gate; 2], [Gate; 2]) = Default::default();
    enqueue(&other, &computing(&first));
    first[0].wait();
    enqueue(&queue, &computing(&long));
    let batch: Vec<_> = (0..20).map(|_| Job::counting()).collect();
    batch.iter().for_each(|job| enqueue(&queue, job));
    first[1].open();
    long[0].wait();
    for job in batch.iter().step_by(2) {
        let cancelled = job.clone();
        let back = within("cancel out of a batch", move || cancelled.work.cancel());
        assert!(back.is_some());
    }
    long[1].open();
    queue.flush().unwrap();
    let runs: Vec<u32> = batch.iter().map(|job| job.tally.finished()).collect();
    assert_eq!(runs, [0, 1].repeat(10));
}

/// An item that signals its start, and computes, as far as the pool can tell, until it may end.
fn computing([started, may_end]: &[Gate; 2]) -> Arc<Job> {
    let (started, may_end) = (started.clone(), may_end.clone());
    Job::new(move |_| {
        started.open();
        may_end.wait();
    })
}

// Catches: a cancel_sync that does not wait, does not refuse queueing meanwhile, reports the run
// instead of the pending state, or leaves the item disabled.
#[test]
fn s2_15_cancel_sync_waits_and_refuses_queueing_meanwhile() {
    let _watchdog = watchdog();
    let queue = queue("s2-15").build().unwrap();
    for was_pending in [false, true] {
        let (started, may_end, returned) = (Gate::new(), Gate::new(), Gate::new());
        let (entered, gate, over) = (started.clone(), may_end.clone(), returned.clone());
        let early = Log::new();
        let seen = early.clone();
        let job = Job::new(move |_| {
            entered.open();
            gate.wait_blocking();
            seen.push(over.is_open());
        });
        assert!(queue.enqueue(job.clone()).is_queued());
        started.wait();
        if was_pending {
            assert!(queue.enqueue(job.clone()).is_queued());
        }
        let cancelled = job.clone();
        let waits = in_the_wait(move || {
            let outcome = cancelled.work.cancel_sync().unwrap();
            returned.open();
            outcome
        });
        assert_eq!(job.disable_depth(), 1);
        assert!(!job.work.is_pending(), "it was taken before the wait");
        assert!(matches!(queue.enqueue(job.clone()), Enqueued::Disabled(_)));
        may_end.open();
        assert_eq!(waits.result().is_some(), was_pending);
        assert_eq!(early.events(), [false], "cancel_sync returned while the item ran");
        assert_eq!((job.disable_depth(), job.tally.finished()), (0, 1));
        assert!(queue.enqueue(job.clone()).is_queued(), "enabled again");
        queue.flush().unwrap();
        assert_eq!(job.tally.finished(), 2, "what was queued during the wait is lost");
    }
}

// Catches: the same faults of disable_sync, which must leave the item disabled.
#[test]
fn s2_15_disable_sync_waits_and_keeps_the_item_disabled() {
    let _watchdog = watchdog();
    let queue = queue("s2-15").build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    assert!(queue.enqueue(job.clone()).is_queued());
    started.wait();
    let disabled = job.clone();
    let waits = in_the_wait(move || {
        let back = disabled.work.disable_sync().unwrap();
        (back.is_some(), disabled.tally.finished())
    });
    may_end.open();
    assert_eq!(waits.result(), (false, 1));
    assert!(matches!(queue.enqueue(job.clone()), Enqueued::Disabled(_)));
    assert!(job.work.enable().unwrap());
    assert!(job.work.disable_sync().unwrap().is_none(), "idle: returns at once");
    assert!(job.work.enable().unwrap());
}

// Catches: a depth that is a flag, an enable that queues, wrong results, or a wrap at either end.
#[test]
fn s2_17_disable_is_counted_and_enable_never_queues() {
    let _watchdog = watchdog();
    let (queue, may_end) = held_queue("s2-17");
    let job = Job::counting();
    assert!(queue.enqueue(job.clone()).is_queued());
    assert!(job.work.disable().unwrap().is_some(), "was pending");
    assert!(job.work.disable().unwrap().is_none(), "was not pending any more");
    assert_eq!(job.disable_depth(), 2);
    assert!(!job.work.enable().unwrap(), "one disable is left");
    assert!(matches!(queue.enqueue(job.clone()), Enqueued::Disabled(_)));
    assert!(job.work.enable().unwrap(), "none is left");
    assert!(!job.work.is_pending(), "enable does not queue");
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(job.tally.started(), 0, "what was taken stays taken");

    let underflow = job.work.enable().unwrap_err().to_string();
    assert!(underflow.contains("enabled"), "{underflow}");
    let mut depth = 0;
    let overflow = loop {
        match job.work.disable() {
            Ok(_) => depth += 1,
            Err(error) => break error.to_string(),
        }
        assert!(depth < 1 << 20, "the depth has a limit");
    };
    assert!(overflow.contains(&depth.to_string()), "{overflow}");
    assert!(job.work.cancel_sync().is_err(), "cancel_sync disables for a while");
    assert_eq!(job.disable_depth(), depth, "a refused disable changes nothing");
    for left in (0..depth).rev() {
        assert_eq!(job.work.enable().unwrap(), left == 0);
    }
    assert!(queue.enqueue(job.clone()).is_queued());
    queue.flush().unwrap();
    assert_eq!(job.tally.finished(), 1);
}
