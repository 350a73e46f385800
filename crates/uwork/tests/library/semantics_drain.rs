//! Draining and destroying a queue (SEMANTICS 2.21, 2.22). The tests collect the reports of this
//! process.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::Gate;
use crate::support::items::{Job, Later};
use crate::support::machine::{cpus, in_the_wait};
use crate::support::{queue, until, watchdog, within};
use uwork::{Enqueued, Queue, Report};

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn collect_reports() {
    let keep = |report: &Report| REPORTS.lock().unwrap().push(report.clone());
    uwork::set_reporter(keep).expect("the first reporter of this process");
}

fn reports_about(queue: &str) -> Vec<Report> {
    let is_about = |report: &&Report| match report {
        Report::DrainIsLong { queue: name, .. } | Report::QueuedWhileDraining { queue: name } => {
            name == queue
        }
        _ => false,
    };
    REPORTS.lock().unwrap().iter().filter(is_about).cloned().collect()
}

/// Queues from outside until the queue refuses, which it does once a drain has begun.
fn until_it_refuses(queue: &Queue) {
    until("the queue refuses", || match queue.enqueue(Job::counting()) {
        Enqueued::Queued => false,
        Enqueued::Refused(job) => {
            assert_eq!(
                Arc::strong_count(&job),
                1,
                "it was returned, and no other reference exists"
            );
            assert!(!job.work.is_pending(), "PENDING is cleared");
            true
        }
        other => panic!("{}", other.into_refused().is_some()),
    });
}

// Catches: a drain that returns while a chain continues, refuses the chain, accepts other items, or
// leaves the queue closed.
#[test]
fn s2_21_drain_lets_only_chained_items_in() {
    alone("s2_21_drain_lets_only_chained_items_in", || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("s2-21").max_active(4).build().unwrap();
        let (started, may_go_on) = (Gate::new(), Gate::new());
        let (entered, gate, again) = (started.clone(), may_go_on.clone(), queue.clone());
        let links = Arc::new(AtomicU32::new(0));
        let (count, refused) = (links.clone(), Arc::new(AtomicBool::new(false)));
        let was_refused = refused.clone();
        let chain = Job::new(move |this| {
            entered.open();
            gate.wait_blocking();
            if count.fetch_add(1, Ordering::Relaxed) < 100 {
                // The item itself, and another one.
                let both = again.enqueue(this.clone()).is_queued()
                    && again.enqueue(Job::counting()).is_queued();
                was_refused.fetch_or(!both, Ordering::Relaxed);
            }
        });
        assert!(queue.enqueue(chain.clone()).is_queued());
        started.wait();
        let drained = queue.clone();
        let drain = std::thread::spawn(move || drained.drain());
        until_it_refuses(&queue);
        // A delayed item that expires meanwhile is not chained.
        let later = Later::counting();
        assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
        let expires = later.clone();
        within("a flush of a delayed item that is refused", move || expires.work.flush());
        assert_eq!((later.tally.started(), later.work.is_pending()), (0, false));
        assert_eq!(Arc::strong_count(&later), 1, "the queue released it");

        assert!(!drain.is_finished());
        may_go_on.open();
        within("the drain", move || drain.join()).unwrap().unwrap();
        assert_eq!(links.load(Ordering::Relaxed), 101);
        assert!(!refused.load(Ordering::Relaxed), "a chained item was refused");
        assert!(queue.is_idle());
        assert!(queue.enqueue(chain).is_queued(), "open again");
        queue.flush().unwrap();
        let warning = Report::QueuedWhileDraining { queue: queue.name().to_owned() };
        let warnings = reports_about(queue.name()).into_iter().filter(|report| *report == warning);
        assert_eq!(warnings.count(), 1, "warned once");
    });
}

// Catches: a drain that waits for cancelled items, a second drain or a flush that waits for the
// first for ever, an item that cannot be cancelled or waited for while its queue drains.
#[test]
fn s2_21_two_threads_at_once_with_a_draining_queue() {
    alone("s2_21_two_threads_at_once_with_a_draining_queue", || {
        let _watchdog = watchdog();
        collect_reports();
        for builder in
            [queue("s2-21").max_active(1), queue("s2-21").ordered(), queue("s2-21").per_cpu()]
        {
            let queue = builder.max_active(1).build().unwrap();
            let (started, may_end) = (Gate::new(), Gate::new());
            let held = Job::held(&started, &may_end);
            let cpu = cpus()[0];
            let here = |item: &Arc<Job>| queue.enqueue_on(cpu, item.clone()).unwrap().is_queued();
            assert!(here(&held));
            started.wait();
            let [pending, kept] = [Job::counting(), Job::counting()];
            assert!(here(&pending) && here(&kept));
            type Wait = fn(&Queue) -> Result<(), uwork::Error>;
            let waits: [Wait; 4] = [Queue::drain, Queue::drain, Queue::flush, Queue::flush];
            let waits = waits.map(|wait| {
                let queue = queue.clone();
                in_the_wait(move || wait(&queue))
            });
            until_it_refuses(&queue);
            let flush = [held.clone(), kept.clone(), pending.clone()]
                .map(|item| in_the_wait(move || item.work.flush()));
            // One of two cancels succeeds, and the cancelled item is not accepted again.
            let [one, two] = [pending.clone(), pending.clone()];
            let cancels = [one, two]
                .map(|item| std::thread::spawn(move || item.work.cancel_sync().unwrap().is_some()));
            let got = cancels.map(|cancel| within("a cancel", move || cancel.join().unwrap()));
            assert_eq!(got.iter().filter(|&&got| got).count(), 1);
            assert!(queue.enqueue(pending.clone()).into_refused().is_some());
            // A cancel_sync waits for a running item.
            let target = held.clone();
            let cancel = in_the_wait(move || target.work.cancel_sync().unwrap().is_some());
            waits.iter().for_each(|wait| wait.assert_waits());
            may_end.open();
            assert!(!cancel.result(), "it was not pending");
            waits.into_iter().for_each(|wait| wait.result().unwrap());
            flush.into_iter().for_each(|flush| _ = flush.result());
            let finished = [&held, &kept, &pending].map(|item| item.tally.finished());
            assert_eq!(finished, [1, 1, 0]);
            assert!(here(&pending), "open again");
            queue.flush().unwrap();
        }
    });
}

// Catches: a drain that livelocks without a report, or reports every round.
#[test]
fn s2_21_a_long_drain_is_reported() {
    alone("s2_21_a_long_drain_is_reported", || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("s2-21").build().unwrap();
        let name = queue.name().to_owned();
        let expected: Vec<Report> = std::iter::once(10)
            .chain((100..=1_000).step_by(100))
            .map(|rounds| Report::DrainIsLong { queue: name.clone(), rounds })
            .collect();
        let (last, again) = (expected[expected.len() - 1].clone(), queue.clone());
        let restless = Job::new(move |this| {
            if !REPORTS.lock().unwrap().contains(&last) {
                assert!(again.enqueue(this.clone()).is_queued());
            }
        });
        assert!(queue.enqueue(restless).is_queued());
        let drained = queue.clone();
        within("the drain", move || drained.drain()).unwrap();
        assert_eq!(reports_about(&name), expected);
    });
}

// Catches: a destroy that leaves items behind, waits for timers, or accepts items afterwards.
#[test]
fn s2_22_destroy_runs_queued_items_and_refuses_new_ones() {
    alone("s2_22_destroy_runs_queued_items_and_refuses_new_ones", || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("s2-22").max_active(1).build().unwrap();
        let jobs: Vec<_> = (0..50).map(|_| Job::counting()).collect();
        for job in &jobs {
            assert!(queue.enqueue(job.clone()).is_queued());
        }
        let armed = [Later::counting(), Later::counting()];
        for later in &armed {
            assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
        }
        let destroyed = queue.clone();
        within("destroy does not wait for timers", move || destroyed.destroy()).unwrap();
        assert!(jobs.iter().all(|job| job.tally.finished() == 1));
        queue.destroy().expect("a second call changes nothing");
        queue.flush().expect("nothing to wait for");

        assert!(matches!(queue.enqueue(jobs[0].clone()), Enqueued::Refused(_)));
        let delay = Duration::from_secs(1);
        assert!(matches!(queue.enqueue_delayed(armed[0].clone(), delay), Enqueued::Pending(_)));
        let fresh = Later::counting();
        assert!(matches!(queue.enqueue_delayed(fresh.clone(), delay), Enqueued::Refused(_)));
        assert!(matches!(queue.mod_delayed(fresh, delay), Enqueued::Refused(_)));
        // Armed items remain the caller's responsibility: they can be cancelled, and are dropped
        // when they expire.
        assert!(armed[0].work.cancel().is_some());
        armed[1].work.flush();
        assert!(!armed[1].work.is_pending());
        for later in &armed {
            assert_eq!((later.tally.started(), Arc::strong_count(later)), (0, 1));
        }
    });
}

// Catches: an armed item that keeps its queue alive, or whose expiry finds a destroyed queue.
#[test]
fn s2_22_an_armed_item_outlives_its_queue() {
    alone("s2_22_an_armed_item_outlives_its_queue", || {
        let _watchdog = watchdog();
        collect_reports();
        let queue = queue("s2-22").build().unwrap();
        let name = queue.name().to_owned();
        let later = Later::counting();
        assert!(queue.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
        within("drop of a queue with an armed item", move || drop(queue));
        let successor = Queue::builder(name.as_str())
            .build()
            .expect("the name is free: the queue is destroyed");
        assert!(later.work.is_pending());
        later.work.flush();
        assert_eq!((later.tally.started(), later.work.is_pending()), (0, false));
        assert_eq!(Arc::strong_count(&later), 1);
        assert!(successor.enqueue(later.clone()).is_queued(), "and it can be used again");
        successor.flush().unwrap();
        assert_eq!(later.tally.finished(), 1);
    });
}
