//! Waits that break the promise of MEM_RECLAIM are reported (SEMANTICS 2.33). The tests collect the
//! reports of this process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::machine::{in_the_wait, thread_id, until_asleep};
use crate::support::{WAIT_CAP, queue, watchdog};
use uwork::{Queue, Report};

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn collect_reports() {
    let keep = |report: &Report| REPORTS.lock().unwrap().push(report.clone());
    uwork::set_reporter(keep).expect("the first reporter of this process");
}

/// The queues for which items of this queue were reported to wait.
fn dependencies_of(queue: &Queue) -> Vec<String> {
    let reports = REPORTS.lock().unwrap();
    let of = |report: &Report| match report {
        Report::FlushDependency { from, on } if from == queue.name() => Some(on.clone()),
        _ => None,
    };
    reports.iter().filter_map(of).collect()
}

/// Calls `f` in an item of `queue`, and waits for it.
fn inside(queue: &Queue, f: impl Fn() + Send + Sync + 'static) {
    let item = Job::new(move |_| f());
    assert!(queue.enqueue(item.clone()).is_queued());
    queue.flush().unwrap();
    assert_eq!(item.tally.finished(), 1);
}

fn reclaim() -> Queue {
    queue("reclaim").mem_reclaim().build().unwrap()
}

fn plain() -> Queue {
    queue("plain").build().unwrap()
}

/// The ways to wait for items of a queue.
type Wait = fn(&Queue);

const WAITS: [(&str, Wait); 6] = [
    ("destroy", |on| on.destroy().unwrap()),
    ("flush", |on| on.flush().unwrap()),
    ("drain", |on| on.drain().unwrap()),
    ("flush with a limit", |on| on.flush_timeout(WAIT_CAP).unwrap()),
    ("flush of an item", |on| {
        // The item is held, so that a wait has an item to wait for.
        let (started, may_end) = (Gate::new(), Gate::new());
        let held = Job::held(&started, &may_end);
        assert!(on.enqueue(held.clone()).is_queued());
        started.wait_blocking();
        let flusher = thread_id();
        let opener = std::thread::spawn(move || {
            until_asleep(flusher);
            may_end.open();
        });
        held.work.flush();
        opener.join().unwrap();
    }),
    ("flush of a delayed item", |on| {
        // The item does not end before the flush waits for it, unless the flusher itself runs it.
        let flusher = thread_id();
        let later = Later::new(move |_| {
            if thread_id() != flusher {
                until_asleep(flusher);
            }
        });
        assert!(on.enqueue_delayed(later.clone(), Duration::from_secs(3_600)).is_queued());
        later.work.flush();
        assert_eq!(later.tally.finished(), 1);
    }),
];

// Catches: a wait that is missed, is reported each time, or names the wrong queues.
#[test]
fn s2_33_a_reclaiming_item_that_waits_for_a_queue_without_rescuer_is_reported_once() {
    alone(
        "s2_33_a_reclaiming_item_that_waits_for_a_queue_without_rescuer_is_reported_once",
        || {
            let _watchdog = watchdog();
            collect_reports();
            for (what, wait) in WAITS {
                let (from, on) = (reclaim(), plain());
                for _ in 0..3 {
                    let on = on.clone();
                    inside(&from, move || wait(&on));
                }
                assert_eq!(dependencies_of(&from), [on.name()], "{what}");
                let other = plain();
                inside(&from, move || wait(&other));
                assert_eq!(
                    dependencies_of(&from).len(),
                    1,
                    "{what}: once for each queue that waits"
                );
            }
        },
    );
}

// Catches: reports of waits that break no promise.
#[test]
fn s2_33_other_waits_are_not_reported() {
    alone("s2_33_other_waits_are_not_reported", || {
        let _watchdog = watchdog();
        collect_reports();
        for (what, wait) in WAITS {
            for (from, on) in [(reclaim(), reclaim()), (plain(), reclaim()), (plain(), plain())] {
                inside(&from, move || wait(&on));
                assert_eq!(dependencies_of(&from), [""; 0], "{what}");
            }
            // Outside of items.
            wait(&plain());
        }
    });
}

// Catches: a cancel that is reported as a flush.
#[test]
fn s2_33_a_cancel_is_exempt() {
    alone("s2_33_a_cancel_is_exempt", || {
        let _watchdog = watchdog();
        collect_reports();
        let (from, on) = (reclaim(), plain());
        let (started, may_end, log) = (Gate::new(), Gate::new(), Log::new());
        let held = Job::held(&started, &may_end);
        assert!(on.enqueue(held.clone()).is_queued());
        started.wait();
        let (target, theirs) = (held.clone(), log.clone());
        let cancels = Job::new(move |_| {
            theirs.push("cancels");
            assert!(target.work.cancel_sync().unwrap().is_none());
            theirs.push("has cancelled");
            assert!(target.work.disable_sync().unwrap().is_none());
            assert!(target.work.enable().unwrap());
            let later = Later::counting();
            assert!(later.work.cancel_sync().unwrap().is_none());
        });
        assert!(from.enqueue(cancels.clone()).is_queued());
        log.wait_for(&"cancels");
        let all = from.clone();
        let flush = in_the_wait(move || all.flush());
        flush.assert_waits();
        assert_eq!(
            (log.events(), held.tally.finished()),
            (vec!["cancels"], 0),
            "it waits for the run"
        );
        may_end.open();
        flush.result().unwrap();
        assert_eq!((cancels.tally.finished(), held.tally.finished()), (1, 1));
        assert_eq!(Arc::strong_count(&held), 2, "the test's, and the cancelling item's");
        assert_eq!(dependencies_of(&from), [""; 0]);
    });
}
