//! Queries about running items: the current item, whether an item is busy, and its description.

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::{queue, watchdog};
use uwork::{Busy, WorkId, current_work, set_worker_desc};

// Catches: the identity of another item, or one that outlives the run.
#[test]
fn an_item_knows_itself() {
    let _watchdog = watchdog();
    for builder in [queue("query"), queue("query").per_cpu(), queue("query").ordered()] {
        let queue = builder.build().unwrap();
        let log: Log<(WorkId, Option<WorkId>)> = Log::new();
        let jobs: Vec<_> = (0..50)
            .map(|_| {
                let log = log.clone();
                Job::new(move |job| log.push((job.work.id(), current_work())))
            })
            .collect();
        for job in &jobs {
            assert!(queue.enqueue(job.clone()).is_queued());
        }
        queue.flush().unwrap();
        let events = log.events();
        assert_eq!(events.len(), jobs.len());
        assert!(events.iter().all(|(own, current)| Some(*own) == *current), "{events:?}");
        assert!(jobs.iter().all(|job| events.iter().any(|(id, _)| *id == job.work.id())));
        assert_eq!(current_work(), None, "outside of items");
    }
}

// Catches: the outer item's name inside a helped one, or the inner one's after it.
#[test]
fn the_innermost_item_is_the_current_one() {
    let _watchdog = watchdog();
    let queue = queue("query").max_active(1).build().unwrap();
    let inner_queue = queue.clone();
    let outer = queue.spawn(move || {
        let me = current_work().expect("inside an item");
        // This item holds the only permit: the join runs the inner item here.
        let inner = inner_queue.spawn(|| (current_work(), std::thread::current().id()));
        let id = inner.id();
        let (seen, thread) = inner.join().unwrap();
        assert_eq!(thread, std::thread::current().id(), "it ran inside this one");
        assert_eq!(seen, Some(id));
        assert_ne!(seen, Some(me));
        assert_eq!(current_work(), Some(me), "and this one again");
        me
    });
    let id = outer.id();
    assert_eq!(outer.join().unwrap(), id);
}

// Catches: an item with waiters, which starts on another path, where the current item is not set.
#[test]
fn an_item_that_is_waited_for_knows_itself_too() {
    let _watchdog = watchdog();
    let queue = queue("query").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let log = Log::new();
    let theirs = log.clone();
    let job = Job::new(move |job| theirs.push(current_work() == Some(job.work.id())));
    assert!(queue.enqueue(job.clone()).is_queued());
    let flush = crate::support::machine::in_the_wait(move || job.work.flush());
    may_end.open();
    assert!(flush.result());
    assert_eq!(log.events(), [true]);
}

// Catches: one state bit that hides the other.
#[test]
fn busy_reports_pending_and_running_separately() {
    let _watchdog = watchdog();
    let queue = queue("query").build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    let busy = |pending, running| Busy { pending, running };
    assert_eq!(job.work.busy(), busy(false, false));
    assert!(queue.enqueue(job.clone()).is_queued());
    started.wait();
    assert_eq!(job.work.busy(), busy(false, true));
    assert!(queue.enqueue(job.clone()).is_queued());
    assert_eq!(job.work.busy(), busy(true, true));
    drop(job.work.cancel());
    assert_eq!(job.work.busy(), busy(false, true));
    may_end.open();
    job.work.flush();
    assert_eq!(job.work.busy(), busy(false, false));

    let later = Later::counting();
    assert!(
        queue.enqueue_delayed(later.clone(), std::time::Duration::from_secs(3_600)).is_queued()
    );
    assert_eq!(later.work.busy(), busy(true, false));
    assert!(later.work.cancel().is_some());
    assert_eq!(later.work.busy(), busy(false, false));
}

// Catches: a description that is shown for another item, after its run, or that is cut inside a
// character.
#[test]
fn a_description_belongs_to_one_run() {
    alone("a_description_belongs_to_one_run", || {
        let _watchdog = watchdog();
        // Several workers in turn use the same slot.
        let queue = queue("query").ordered().build().unwrap();
        let texts = ["short", &"x".repeat(40), "äöüäöüäöüäöüäöüä", ""];
        let kept = ["short", &"x".repeat(31), "äöüäöüäöüäöüäöü", ""];
        let said = Log::new();
        let gates: Vec<_> = texts.iter().map(|_| Gate::new()).collect();
        let (log, theirs) = (said.clone(), gates.clone());
        let owned: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let job = Job::new(move |job| {
            assert_eq!(job.work.description(), None, "nothing is left of the run before");
            for (index, text) in owned.iter().enumerate() {
                assert!(set_worker_desc(text));
                log.push(index);
                theirs[index].wait_blocking();
            }
        });
        let before = uwork::panics();
        assert!(queue.enqueue(job.clone()).is_queued());
        said.wait_for(&0);
        assert!(queue.enqueue(job.clone()).is_queued(), "a second run");
        let silent = Job::held(&Gate::new(), &Gate::new());
        for (index, (gate, kept)) in gates.iter().zip(kept).enumerate() {
            said.wait_for(&index);
            // From another thread.
            assert_eq!(job.work.description().as_deref(), Some(kept));
            assert_eq!(silent.work.description(), None);
            gate.open();
        }
        job.work.flush();
        queue.flush().unwrap();
        assert_eq!(job.work.description(), None, "it does not run");
        assert_eq!((job.tally.finished(), uwork::panics()), (2, before));
    });
}
