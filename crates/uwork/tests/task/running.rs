//! Adding and running: in which order, how often, on which thread, and until when.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::task::{self, Added, Delivery, Notify, TaskHandle};

use crate::support::gate::{Gate, Log};
use crate::support::{watchdog, within};
use crate::target::{Target, jobs};

#[test]
fn items_run_in_the_order_in_which_they_were_added() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let notifies = [Notify::None, Notify::Resume, Notify::Signal];
    for (job, notify) in jobs(&log, 9).into_iter().zip(notifies.into_iter().cycle()) {
        assert!(handle.add(job, notify).is_added());
    }
    assert_eq!(task::run(), 9);
    assert_eq!(log.events(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn what_items_add_runs_after_what_was_there() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let jobs = jobs(&log, 3);
    let (last, again) = (jobs[2].clone(), handle.clone());
    let first = log.clone();
    handle
        .add_fn(Notify::None, move || {
            assert!(again.add(last, Notify::None).is_added());
            first.push(10);
            // A run inside of a run goes on with what is older.
            assert_eq!(task::run(), 3);
            first.push(11);
        })
        .unwrap();
    assert!(handle.add(jobs[0].clone(), Notify::None).is_added());
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
    assert_eq!(log.events(), [10, 0, 1, 2, 11]);
}

#[test]
fn one_run_takes_what_was_there_and_leaves_what_came_meanwhile() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    fn again(handle: TaskHandle, runs: Arc<AtomicU32>) {
        let next = handle.clone();
        let function = move || {
            runs.fetch_add(1, Ordering::Relaxed);
            again(next, runs);
        };
        // Refused when the thread ends.
        let _ = handle.add_fn(Notify::Signal, function);
    }
    let runs = Arc::new(AtomicU32::new(0));
    again(handle, runs.clone());
    assert_eq!(task::run_once(), 1);
    assert_eq!(task::safe_point(), 1);
    assert_eq!(task::park(), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[test]
fn an_item_is_in_one_list_at_a_time() {
    let _watchdog = watchdog();
    let (log, handle) = (Log::new(), TaskHandle::current());
    let job = &jobs(&log, 1)[0];
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert!(matches!(handle.add(job.clone(), Notify::Signal), Added::Pending(_)));
    let other = within("another thread's handle", TaskHandle::current);
    assert!(matches!(other.add(job.clone(), Notify::None), Added::Pending(_)));
    // The refused one notified nobody.
    assert!(!task::is_notified());
    assert_eq!(task::run(), 1);
    assert!(handle.add(job.clone(), Notify::None).is_added());
    assert_eq!(task::run(), 1);
}

#[test]
fn no_notification_and_resume_wake_nobody() {
    let _watchdog = watchdog();
    let handle = TaskHandle::current();
    assert!(handle.add_fn(Notify::None, || ()).is_ok());
    assert!(!task::is_notified());
    // Sleeps although there is something to run.
    assert_eq!(task::park_timeout(Duration::from_millis(1)), 0);
    assert!(handle.add_fn(Notify::Resume, || ()).is_ok());
    assert!(task::is_notified());
    assert_eq!(task::park(), 2);
}

#[test]
fn a_thread_that_computes_runs_items_at_its_safe_point() {
    let _watchdog = watchdog();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let target = Target::new(delivery, || _ = task::safe_point());
        for number in 0..100 {
            let ran = ran.clone();
            assert!(
                target
                    .handle
                    .add_fn(Notify::Signal, move || ran.lock().unwrap().push(number))
                    .is_ok()
            );
        }
        target.end();
        assert_eq!(*ran.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_thread_that_ends_runs_what_it_has_and_gives_back_what_comes_later() {
    let _watchdog = watchdog();
    let log = Log::new();
    let jobs = jobs(&log, 3);
    let (first, gate) = (jobs[0].clone(), Gate::new());
    let (send, receive): (_, Receiver<TaskHandle>) = channel();
    let open = gate.clone();
    let thread = std::thread::spawn(move || {
        let handle = TaskHandle::current();
        assert!(handle.add(first, Notify::None).is_added());
        send.send(handle).unwrap();
        open.wait();
    });
    let handle = receive.recv().unwrap();
    assert!(handle.add(jobs[1].clone(), Notify::None).is_added());
    gate.open();
    within("the thread ends", move || thread.join().unwrap());
    assert_eq!(log.events(), [0, 1]);
    assert!(
        matches!(handle.add(jobs[2].clone(), Notify::Signal), Added::Exited(job) if job.number == 2)
    );
    assert!(!jobs[2].work.is_pending());
    assert!(handle.cancel(&jobs[2].work).is_none());
    let events = log.clone();
    let Err(task::ExitedError(function)) = handle.add_fn(Notify::None, move || log.push(9)) else {
        panic!("the thread is gone")
    };
    function();
    assert_eq!(events.events(), [0, 1, 9]);
}

#[test]
fn an_item_that_panics_ends_neither_its_thread_nor_those_behind_it() {
    let _watchdog = watchdog();
    let (log, handle, before) = (Log::new(), TaskHandle::current(), uwork::panics());
    assert!(handle.add_fn(Notify::None, || panic!("on purpose")).is_ok());
    assert!(handle.add(jobs(&log, 1).remove(0), Notify::None).is_added());
    assert_eq!(task::run(), 2);
    assert_eq!(log.events(), [0]);
    assert!(uwork::panics() > before);
}
