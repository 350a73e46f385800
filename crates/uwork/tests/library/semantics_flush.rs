//! Waiting for an item and for a queue (SEMANTICS 2.18, 2.20).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{Waiting, in_the_wait};
use crate::support::{keep, queue, until, watchdog, within};
use uwork::Queue;

fn enqueue(queue: &Queue, job: &Arc<Job>) {
    assert!(queue.enqueue(job.clone()).is_queued());
}

// Catches: a flush of an idle item that waits or returns true, of a running one that does not wait,
// or of one that was queued again and returns at the end of the first run.
#[test]
fn s2_18_flush_waits_for_the_last_queueing() {
    let _watchdog = watchdog();
    let queue = queue("s2-18").build().unwrap();
    for queued_again in [false, true] {
        let (entered, may_end) = (Log::new(), [Gate::new(), Gate::new()]);
        let (starts, gates) = (entered.clone(), may_end.clone());
        let job = Job::new(move |this| {
            let run = this.tally.started();
            starts.push(run);
            gates[run as usize - 1].wait_blocking();
        });
        assert!(!job.work.flush(), "idle");
        enqueue(&queue, &job);
        entered.wait_for(&1);
        if queued_again {
            enqueue(&queue, &job);
        }
        let flushed = job.clone();
        let flush = in_the_wait(move || (flushed.work.flush(), flushed.tally.finished()));
        may_end[0].open();
        if queued_again {
            entered.wait_for(&2);
            flush.assert_waits();
            may_end[1].open();
        }
        assert_eq!(flush.result(), (true, 1 + u32::from(queued_again)));
        assert!(!job.work.flush(), "idle again");
    }
}

// Catches: a flush that waits for items queued behind its own, or takes a permit of max_active.
#[test]
fn s2_18_the_barrier_sits_right_behind_its_item() {
    let _watchdog = watchdog();
    let queue = queue("s2-18").ordered().build().unwrap();
    let first = [Gate::new(), Gate::new()];
    let last = [Gate::new(), Gate::new()];
    enqueue(&queue, &Job::held(&first[0], &first[1]));
    let target = Job::counting();
    enqueue(&queue, &target);
    enqueue(&queue, &Job::held(&last[0], &last[1]));
    first[0].wait();
    let flushers: Vec<_> = (0..3)
        .map(|_| {
            let target = target.clone();
            in_the_wait(move || (target.work.flush(), target.tally.finished()))
        })
        .collect();
    first[1].open();
    for flusher in flushers {
        assert_eq!(flusher.result(), (true, 1));
    }
    last[0].wait();
    assert!(!last[1].is_open(), "the item behind still runs");
    last[1].open();
    queue.flush().unwrap();
}

// Catches: a flush that keeps waiting when its item is cancelled.
#[test]
fn s2_18_a_cancel_ends_the_flush() {
    let _watchdog = watchdog();
    let queue = queue("s2-18").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    enqueue(&queue, &Job::held(&started, &may_end));
    started.wait();
    let target = Job::counting();
    enqueue(&queue, &target);
    let flushed = target.clone();
    let flusher = in_the_wait(move || flushed.work.flush());
    assert!(target.work.cancel().is_some());
    flusher.result();
    assert_eq!(target.tally.started(), 0);
    may_end.open();
}

// Catches: a flush from inside the item that waits for its own run, or for its own next run.
#[test]
fn s2_18_flush_from_inside_the_item_returns() {
    let _watchdog = watchdog();
    for helping in [false, true] {
        let queue = queue("s2-18").build().unwrap();
        keep(&queue);
        let again = queue.clone();
        let flush = move |job: &Job| match helping {
            true => job.work.flush_helping(),
            false => job.work.flush(),
        };
        let job = Job::new(move |this| {
            flush(this);
            if this.tally.started() == 1 {
                assert!(again.enqueue(this.clone()).is_queued());
                flush(this);
            }
        });
        enqueue(&queue, &job);
        until("both runs are over", || job.tally.finished() == 2);
        assert!(!job.tally.overlapped());
    }
}

// Catches: a flush from inside an ordered queue's item that waits for an item behind its caller.
#[test]
fn s2_18_flush_of_another_item_of_the_callers_ordered_queue_returns() {
    let _watchdog = watchdog();
    let queue = queue("s2-18").ordered().build().unwrap();
    keep(&queue);
    let other = Job::counting();
    let (own, behind) = (queue.clone(), other.clone());
    let job = Job::new(move |_| {
        assert!(own.enqueue(behind.clone()).is_queued());
        assert!(!behind.work.flush());
        assert!(!behind.work.flush_helping());
        assert_eq!(behind.tally.started(), 0);
    });
    enqueue(&queue, &job);
    until("both have run", || job.tally.finished() + other.tally.finished() == 2);
}

// Catches: a flush that returns before an item that was queued earlier has run, on any pool.
#[test]
fn s2_20_flush_waits_for_everything_queued_before() {
    let _watchdog = watchdog();
    let queues = [
        queue("s2-20").build().unwrap(),
        queue("s2-20").per_cpu().build().unwrap(),
        queue("s2-20").ordered().build().unwrap(),
    ];
    for queue in &queues {
        assert!(queue.flush().is_ok(), "nothing was queued");
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let jobs: Vec<_> = (0..50).map(|_| Job::counting()).collect();
                    for _ in 0..20 {
                        jobs.iter().for_each(|job| enqueue(queue, job));
                        queue.flush().unwrap();
                        assert!(jobs.iter().all(|job| !job.work.is_pending()));
                    }
                    let runs: u32 = jobs.iter().map(|job| job.tally.finished()).sum();
                    done.fetch_add(runs, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * 50 * 20);
    }
}

// Catches: a flush that waits until the queue is empty, and so for ever.
#[test]
fn s2_20_flush_cannot_be_livelocked() {
    let _watchdog = watchdog();
    let queue = queue("s2-20").build().unwrap();
    keep(&queue);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let (again, stop) = (queue.clone(), stop.clone());
        let restless = Job::new(move |this| {
            if !stop.load(Ordering::Relaxed) {
                assert!(again.enqueue(this.clone()).is_queued());
            }
        });
        enqueue(&queue, &restless);
    }
    let flushed = queue.clone();
    within("flush of a queue that is never empty", move || {
        for _ in 0..100 {
            flushed.flush().unwrap();
        }
    });
    assert!(!queue.is_idle());
    stop.store(true, Ordering::Relaxed);
    queue.flush().unwrap();
}

/// An item that waits at a gate, and a flush that began after it was queued and before the next one
/// was.
struct Wave {
    job: Arc<Job>,
    may_end: Gate,
    flush: Waiting<()>,
}

fn wave(queue: &Queue) -> Wave {
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    enqueue(queue, &job);
    started.wait();
    let (flushed, before) = (queue.clone(), queue.dump().flushers);
    let flush = in_the_wait(move || flushed.flush().unwrap());
    // Before that it may sleep for a lock.
    until("it waits", || queue.dump().flushers > before);
    Wave { job, may_end, flush }
}

// Catches: flushes that are confused with each other: one that returns before its items have run,
// or waits for those of a later one.
#[test]
fn s2_20_each_flush_waits_for_items_queued_before_it() {
    let _watchdog = watchdog();
    let queue = queue("s2-20").build().unwrap();
    let mut waves: Vec<Wave> = (0..12).map(|_| wave(&queue)).collect();
    while !waves.is_empty() {
        let first = waves.remove(0);
        first.flush.assert_waits();
        first.may_end.open();
        first.flush.result();
        assert_eq!(first.job.tally.finished(), 1);
        assert!(waves.iter().all(|wave| wave.job.tally.finished() == 0));
    }
}

// Catches: exhausted colours (16 exist): a flush that is lost, or that returns too early.
#[test]
fn s2_20_more_flushes_than_colours_share() {
    let _watchdog = watchdog();
    let queue = queue("s2-20").build().unwrap();
    let mut waves: Vec<Wave> = (0..40).map(|_| wave(&queue)).collect();
    // From the last to the first: no flush may return before the very end.
    let mut flushes: Vec<Waiting<()>> = Vec::new();
    while let Some(last) = waves.pop() {
        flushes.push(last.flush);
        assert!(flushes.iter().all(|flush| !flush.is_over()));
        if waves.is_empty() {
            flushes.iter().for_each(Waiting::assert_waits);
        }
        last.may_end.open();
        until("its item is done", || last.job.tally.finished() == 1);
    }
    flushes.into_iter().for_each(Waiting::result);
}
