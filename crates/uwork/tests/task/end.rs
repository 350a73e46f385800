//! The end of a thread's task work: the permitted operations in destructors of thread-local data,
//! before it and after it.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::Log;
use crate::support::{watchdog, within};
use uwork::task::{self, Notify, TaskHandle};

/// Runs and adds items when the thread's data is dropped.
struct AtTheEnd(TaskHandle, Log<&'static str>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let AtTheEnd(handle, log) = self;
        let ran = log.clone();
        match handle.add_fn(Notify::Signal, move || ran.push("ran")) {
            Ok(()) => log.push("added"),
            Err(_) => log.push("came back"),
        }
        task::safe_point();
        task::run();
        task::exit();
        assert!(!task::is_notified());
    }
}

#[test]
fn a_threads_destructors_may_run_and_add_items() {
    thread_local! {
        static BEFORE: OnceCell<AtTheEnd> = const { OnceCell::new() };
        static AFTER: OnceCell<AtTheEnd> = const { OnceCell::new() };
        /// Dropped before or after the thread's task work has ended.
        static REACTORS: OnceCell<uwork::ring::Reactor> = const { OnceCell::new() };
    }
    let _watchdog = watchdog();
    for reactor_first in [false, true] {
        let log = Log::new();
        let events = log.clone();
        let handle = within("the thread ends", move || {
            BEFORE.with(|_| ());
            let reactor = || {
                REACTORS.with(|reactor| {
                    reactor.set(uwork::ring::Reactor::builder().build().unwrap()).unwrap();
                });
            };
            if reactor_first {
                REACTORS.with(|_| ());
            }
            // Whichever of the two is dropped first.
            let early = BEFORE.with(|end| end.set(AtTheEnd(TaskHandle::current(), log.clone())));
            reactor();
            let late = AFTER.with(|end| end.set(AtTheEnd(TaskHandle::current(), log.clone())));
            assert!(early.is_ok() && late.is_ok());
            TaskHandle::current()
        });
        let events = events.events();
        assert_eq!(events, ["added", "ran", "came back"], "reactor first: {reactor_first}");
        assert!(handle.add_fn(Notify::Signal, || ()).is_err());
    }
}

// Catches: a borrowed descriptor that is closed, or reused, although its notifier still exists.
#[test]
fn a_notifier_that_outlives_its_thread_keeps_its_descriptor_open() {
    let _watchdog = watchdog();
    let borrow = || {
        let notifier: &'static task::Notifier = Box::leak(Box::new(task::notifier().unwrap()));
        notifier.as_fd()
    };
    let fd = std::thread::spawn(borrow).join().unwrap();
    let file = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    assert_eq!(file.unwrap().to_str(), Some("anon_inode:[eventfd]"));
}

/// Asks for task work when the thread's data is dropped.
struct AsksAtTheEnd(Log<&'static str>);

impl Drop for AsksAtTheEnd {
    fn drop(&mut self) {
        if TaskHandle::try_current().is_some() {
            return self.0.push("before the end");
        }
        assert_eq!(task::park() + task::park_timeout(Duration::MAX), 0);
        assert_eq!(task::notifier().unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let chosen = task::set_delivery(task::Delivery::Light);
        assert_eq!(chosen, Err(task::SignalError::Ended));
        let reactor = uwork::ring::Reactor::builder().build();
        assert_eq!(reactor.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let read = task::read(std::io::stdin(), &mut [0]);
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(task::run() + task::run_once(), 0);
        task::safe_point();
        task::exit();
        self.0.push("after the end");
    }
}

// Catches: a panic where a thread's task work has ended. In a destructor of thread-local data it ends
// the process.
#[test]
fn task_work_that_has_ended_is_an_answer() {
    thread_local! {
        static BEFORE: OnceCell<AsksAtTheEnd> = const { OnceCell::new() };
        static AFTER: OnceCell<AsksAtTheEnd> = const { OnceCell::new() };
    }
    alone("task_work_that_has_ended_is_an_answer", || {
        let log = Log::new();
        let events = log.clone();
        within("the thread ends", move || {
            assert!(BEFORE.with(|end| end.set(AsksAtTheEnd(log.clone()))).is_ok());
            drop(TaskHandle::current());
            assert!(AFTER.with(|end| end.set(AsksAtTheEnd(log))).is_ok());
        });
        let mut events = events.events();
        events.sort_unstable();
        assert_eq!(events, ["after the end", "before the end"]);
    });
}
