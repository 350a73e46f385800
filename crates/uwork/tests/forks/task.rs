//! The threads of a forked child are new: items added in the parent run in the parent.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::support::child::alone_each;
use crate::support::flag::SetOnDrop;
use crate::support::forked::{fork, in_child, leave};
use crate::support::watchdog;
use uwork::task::{self, Notify, TaskHandle};

#[test]
fn a_child_starts_without_the_parents_items_and_handles() {
    let _watchdog = watchdog();
    let (own, ran) = (TaskHandle::current(), Arc::new(AtomicU32::new(0)));
    // A thread that lives on in the parent.
    let (send, receive) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(TaskHandle::current()).unwrap();
        let _ = ends.recv();
    });
    let other = receive.recv().unwrap();
    let runs = ran.clone();
    own.add_fn(Notify::Signal, move || _ = runs.fetch_add(1, Ordering::Relaxed)).unwrap();
    let status = fork();
    if status.is_none() {
        let refuses = |handle: &TaskHandle| handle.add_fn(Notify::Signal, || ()).is_err();
        let mut right = task::run() == 0 && refuses(&own) && refuses(&other);
        let new = TaskHandle::current();
        right &= new.add_fn(Notify::Signal, || ()).is_ok() && task::park() == 1;
        right &= ran.load(Ordering::Relaxed) == 0;
        leave(right);
    }
    assert_eq!(status, Some(0), "the child found something else");
    assert_eq!(task::run(), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert!(other.add_fn(Notify::None, || ()).is_ok());
    drop(end);
    thread.join().unwrap();
}

#[test]
fn a_child_that_an_item_forks_does_not_run_the_items_behind_it() {
    let _watchdog = watchdog();
    let (own, ran) = (TaskHandle::current(), Arc::new(AtomicU32::new(0)));
    let outcome = Arc::new(OnceLock::new());
    let forked = outcome.clone();
    let to = own.clone();
    let forks = move || {
        // This item is not among those that the run has taken, but still in the list itself.
        let _ = to.add_fn(Notify::Signal, || ());
        forked.set(fork()).expect("it runs once");
    };
    own.add_fn(Notify::Signal, forks).unwrap();
    for _ in 0..3 {
        let runs = ran.clone();
        own.add_fn(Notify::Signal, move || _ = runs.fetch_add(1, Ordering::Relaxed)).unwrap();
    }
    let count = task::run();
    let status = *outcome.get().expect("it has run");
    if status.is_none() {
        let mut right = count == 1 && ran.load(Ordering::Relaxed) == 0 && !task::is_notified();
        let new = TaskHandle::current();
        right &= new.add_fn(Notify::Signal, || ()).is_ok() && task::park() == 1;
        leave(right);
    }
    assert_eq!(status, Some(0), "the child found something else");
    assert_eq!((count, ran.load(Ordering::Relaxed)), (5, 3));
}

// Catches: a child that consumes the parent's notification from the shared descriptor, so that the
// parent sleeps on.
#[test]
fn a_child_that_is_forked_in_a_wait_leaves_the_parents_notification() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let mut status = -1;
    let ready = notifier.wait(|| {
        let adder = std::thread::spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
        assert!(adder.join().unwrap());
        status = fork()?;
        let fd = notifier.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        Some(unsafe { libc::poll(&raw mut poll, 1, 0) })
    });
    match ready.expect("nothing was to be run") {
        None => leave(true),
        Some(ready) => assert_eq!((status, ready), (0, 1)),
    }
    assert_eq!(task::run(), 1);
}

// Catches: a child that accesses the parent's ring, which is not mapped in the child.
#[test]
fn a_child_can_drop_the_parents_reactor() {
    let _watchdog = watchdog();
    let mut reactor = uwork::ring::Reactor::builder().buffers(4, 16).build().unwrap();
    let status = fork();
    if status.is_none() {
        drop(reactor);
        // The child can create a ring of its own.
        let own = uwork::ring::Reactor::builder().build();
        leave(own.is_ok());
    }
    assert_eq!(status, Some(0), "the child has crashed, or has no ring of its own");
    let handle = TaskHandle::current();
    handle.add_fn(Notify::Signal, || ()).unwrap();
    assert_eq!(reactor.wait(None).unwrap(), 1);
}

// Catches: a child that waits for ever for the choice of the signal, which a thread was making that
// the child does not have.
#[test]
fn a_fork_during_the_first_registration() {
    let body = |_: &str| {
        let _watchdog = watchdog();
        let registered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _registered = SetOnDrop(&registered);
                drop(TaskHandle::current());
            });
            let mut forks = 0;
            while !registered.load(Ordering::Relaxed) || forks < 3 {
                in_child(|| {
                    let own = TaskHandle::current();
                    assert!(own.add_fn(Notify::Signal, || ()).is_ok());
                    assert_eq!(task::park(), 1);
                });
                forks += 1;
            }
        });
    };
    // A process chooses the signal only once.
    let (test, round) = ("a_fork_during_the_first_registration", "UWORK_TEST_ROUND");
    alone_each(test, round, &["1"; 20], round, body);
}
