//! Cancelling task work: by item, and by match.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uwork::task::{self, Notify, TaskHandle, TaskItem, TaskWork};

use crate::support::gate::Log;
use crate::support::{watchdog, within};
use crate::target::{Job, jobs};

#[test]
fn cancel_removes_items_that_are_still_in_the_list() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 4);
    for job in &jobs {
        assert!(handle.add(job.clone(), Notify::Signal).is_added());
    }
    assert!(handle.cancel(&jobs[1].work).is_some_and(|job| job.number == 1));
    assert!(handle.cancel(&jobs[1].work).is_none(), "it is idle");
    let other = within("another thread's handle", TaskHandle::current);
    assert!(other.cancel(&jobs[0].work).is_none(), "it is in another list");
    // The oldest item that matches.
    let found = handle.cancel_match::<Arc<Job>, 0>(|job| job.number >= 2);
    assert!(found.is_some_and(|job| job.number == 2));
    assert!(handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 2).is_none());
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    assert_eq!(task::run(), 3);
    assert_eq!(log.events(), [0, 3, 1]);
    assert_eq!(Arc::strong_count(&jobs[2]), 1);
}

#[test]
fn cancel_does_not_reach_items_that_a_run_has_detached() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let job = jobs(&log, 1).remove(0);
    let (behind, canceller) = (job.clone(), handle.clone());
    let function = move || assert!(canceller.cancel(&behind.work).is_none());
    assert!(handle.add_fn(Notify::None, function).is_ok());
    assert!(handle.add(job, Notify::None).is_added());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0]);
}

#[test]
fn cancel_by_match_sees_only_items_of_its_type() {
    struct Other {
        work: TaskWork<Other>,
    }
    uwork::has_task_work!(impl HasTaskWork for Other { work });
    impl TaskItem for Other {
        type Pointer = Arc<Other>;
        fn run(_this: Arc<Other>) {}
    }
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    assert!(handle.add(jobs(&log, 1).remove(0), Notify::None).is_added());
    assert!(handle.add_fn(Notify::None, || ()).is_ok());
    assert!(handle.cancel_match::<Arc<Other>, 0>(|_| true).is_none());
    assert!(handle.add(Arc::new(Other { work: TaskWork::new() }), Notify::None).is_added());
    assert!(handle.cancel_match::<Arc<Other>, 0>(|_| true).is_some());
    assert_eq!(task::run(), 2);
}

#[test]
fn a_match_that_panics_leaves_the_list_as_it_was() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    for job in jobs(&log, 3) {
        assert!(handle.add(job, Notify::None).is_added());
    }
    let panics =
        || handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 1 && panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 2).is_some());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0, 1]);
}

/// Without the check the thread would wait for itself.
#[test]
fn a_match_that_uses_its_own_list_panics() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 2);
    for job in &jobs {
        assert!(handle.add(job.clone(), Notify::None).is_added());
    }
    let cancels = || handle.cancel_match::<Arc<Job>, 0>(|_| handle.cancel(&jobs[1].work).is_some());
    let matches = || {
        handle.cancel_match::<Arc<Job>, 0>(|_| handle.cancel_match::<Arc<Job>, 0>(any).is_some())
    };
    let runs = || handle.cancel_match::<Arc<Job>, 0>(|_| task::run() > 0);
    for uses in [&cancels as &dyn Fn() -> Option<Arc<Job>>, &matches, &runs] {
        let payload = catch_unwind(AssertUnwindSafe(uses)).map(|_| ()).unwrap_err();
        let text = payload.downcast_ref::<&str>().expect("a message");
        assert!(text.contains("used its own list"), "{text}");
    }
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0, 1]);
}

fn any(_job: &Job) -> bool {
    true
}
