//! The events that end the waits of a target, and those that do not.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use uwork::task::{self, Delivery, Notifier, Notify, TaskHandle};

use crate::support::gate::{Gate, Log};
use crate::support::slow::times;
use crate::support::{received, until, watchdog, within};
use crate::target::{Target, jobs};

/// Ways to wait, with the deliveries that end them.
fn targets() -> Vec<(&'static str, Target)> {
    let mut targets = Vec::new();
    for delivery in [Delivery::Auto, Delivery::Light, Delivery::Signal] {
        targets.push(("park", Target::new(delivery, || _ = task::park())));
        targets.push(("notifier", Target::new(delivery, wait_in_poll)));
        targets.push(("read", Target::new(delivery, wait_in_read())));
        targets.push(("epoll", Target::new(delivery, wait_in_epoll())));
    }
    targets
}

fn wait_in_poll() {
    let notifier = task::notifier().unwrap();
    notifier.wait(|| {
        let mut poll =
            libc::pollfd { fd: notifier.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, -1) }
    });
    task::safe_point();
}

/// A pipe that is never written to: only task work ends the call, once in each round.
fn wait_in_read() -> impl FnMut() + Send {
    let (reader, writer) = std::io::pipe().unwrap();
    move || {
        let _open = &writer;
        let mut byte = [0_u8; 1];
        let arguments =
            [reader.as_raw_fd() as usize, byte.as_mut_ptr().expose_provenance(), 1, 0, 0, 0];
        // SAFETY: the buffer is live and has the given length.
        let error = unsafe { task::syscall(libc::SYS_read, arguments) }.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        task::safe_point();
    }
}

fn wait_in_epoll() -> impl FnMut() + Send {
    // SAFETY: no pointers.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let event = (&raw mut event).expose_provenance();
        let arguments = [epoll as usize, event, 1, usize::MAX, 0, 8];
        // SAFETY: one event, which is live.
        let error = unsafe { task::syscall(libc::SYS_epoll_pwait, arguments) }.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        task::safe_point();
    }
}

#[test]
fn every_wait_ends_for_a_signal_whatever_the_delivery() {
    let _watchdog = watchdog();
    for (name, target) in targets() {
        for round in 0..times(2_000) {
            let (send, receive) = channel();
            let sent = move || send.send(std::thread::current().id()).unwrap();
            assert!(target.handle.add_fn(Notify::Signal, sent).is_ok());
            let ran_on = received(&receive);
            let ran_on = ran_on.unwrap_or_else(|_| panic!("{name}, round {round}: not run"));
            assert_eq!(ran_on, target.thread.thread().id());
        }
        target.end();
    }
}

#[test]
fn a_resume_that_comes_during_a_wait_is_run_after_it() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let waited = notifier.wait(|| {
        within("an adder", move || handle.add_fn(Notify::Resume, || ()).is_ok());
        let mut poll =
            libc::pollfd { fd: notifier.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, 0) }
    });
    assert_eq!(waited, Some(0), "the descriptor was not written to");
    assert_eq!(task::safe_point(), 1);
}

fn poll_for(notifier: &Notifier, timeout_ms: i32) -> i32 {
    let fd = notifier.as_fd().as_raw_fd();
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which is live.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }
}

// Catches: a thread that is no longer notified because the inner wait has ended the outer one, or
// has replaced it.
#[test]
fn a_wait_inside_a_wait_leaves_the_outer_one_declared() {
    let _watchdog = watchdog();
    task::set_delivery(Delivery::Light).unwrap();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let add = |notify| {
        let to = handle.clone();
        within("an adder", move || to.add_fn(notify, || ()).unwrap());
    };
    let no_time = Duration::ZERO;
    // The inner wait has timed out, and the item is added then.
    let ready = notifier.wait(|| {
        assert_eq!(task::park_timeout(no_time), 0);
        add(Notify::Signal);
        poll_for(&notifier, 0)
    });
    assert_eq!((ready, task::run()), (Some(1), 1));
    // The inner wait did not begin.
    let ready = notifier.wait(|| {
        add(Notify::Resume);
        assert_eq!(task::park(), 1);
        add(Notify::Signal);
        poll_for(&notifier, 0)
    });
    assert_eq!((ready, task::run()), (Some(1), 1));
    // An item ended the inner wait, and the wait leaves the item for others to run.
    let ready = notifier.wait(|| {
        let (to, waits) = (handle.clone(), Gate::new());
        let may_add = waits.clone();
        let adder = std::thread::spawn(move || {
            may_add.wait();
            to.add_fn(Notify::Signal, || ()).unwrap();
        });
        let inner = notifier.wait(|| {
            waits.open();
            poll_for(&notifier, -1)
        });
        adder.join().unwrap();
        (inner, poll_for(&notifier, 0))
    });
    assert_eq!((ready, task::run()), (Some((Some(1), 1)), 1));
    // Afterwards the state is as before.
    assert_eq!(notifier.wait(|| poll_for(&notifier, 0)), Some(0));
}

// Catches: an eventfd that stays readable, so that no later wait ever sleeps.
#[test]
fn a_run_inside_a_wait_keeps_the_descriptors_state() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let poll = |timeout_ms| {
        let fd = notifier.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }
    };
    let waits = Gate::new();
    let (handle, may_add) = (TaskHandle::current(), waits.clone());
    let adder = std::thread::spawn(move || {
        may_add.wait();
        handle.add_fn(Notify::Signal, || ()).is_ok()
    });
    let inside = notifier.wait(|| {
        waits.open();
        (poll(-1), task::run_once())
    });
    assert_eq!(inside, Some((1, 1)));
    assert!(adder.join().unwrap());
    assert_eq!(notifier.wait(|| poll(0)), Some(0));
}

#[test]
fn a_second_signal_notifies_only_after_the_list_was_run() {
    let _watchdog = watchdog();
    let notifier = task::notifier().unwrap();
    let handle = TaskHandle::current();
    let counter = || {
        let mut count = 0_u64;
        // SAFETY: the number is live.
        let bytes = unsafe { libc::read(notifier.as_fd().as_raw_fd(), (&raw mut count).cast(), 8) };
        if bytes < 0 { 0 } else { count }
    };
    for _ in 0..3 {
        let adder = handle.clone();
        let written = notifier.wait(|| {
            within("adders", move || {
                for _ in 0..100 {
                    assert!(adder.add_fn(Notify::Signal, || ()).is_ok());
                }
            });
            counter()
        });
        assert_eq!(written, Some(1), "one write for a hundred items");
        assert_eq!(task::run(), 100);
    }
}

#[test]
fn items_that_panic_end_waits_as_others_do() {
    let _watchdog = watchdog();
    for (name, target) in targets() {
        for _ in 0..2 {
            let (send, receive) = channel();
            assert!(target.handle.add_fn(Notify::Signal, || panic!("on purpose")).is_ok());
            assert!(target.handle.add_fn(Notify::Signal, move || send.send(()).unwrap()).is_ok());
            assert_eq!(received(&receive), Ok(()), "{name}");
        }
        target.end();
    }
}

// Catches: a read that returns because of an item that does not exist any more.
#[test]
fn a_read_continues_if_the_item_was_cancelled() {
    let _watchdog = watchdog();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"xy").unwrap();
    let handle = TaskHandle::current();
    let job = jobs(&Log::new(), 1).remove(0);
    for _ in 0..2 {
        assert!(handle.add(job.clone(), Notify::Signal).is_added());
        assert!(handle.cancel(&job.work).is_some());
        assert_eq!(task::read(&reader, &mut [0; 1]).unwrap(), 1);
    }
}

#[test]
fn a_plain_read_ends_for_a_registered_thread() {
    let _watchdog = watchdog();
    let (reader, _writer) = std::io::pipe().unwrap();
    let (send, receive) = channel();
    let mut send = Some(send);
    let target = Target::new(Delivery::Auto, move || {
        if let Some(send) = send.take() {
            // SAFETY: no arguments; cannot fail.
            send.send(unsafe { libc::gettid() }).unwrap();
        }
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer is live and has the given length.
        let bytes = unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
        let error = std::io::Error::last_os_error();
        assert_eq!((bytes, error.kind()), (-1, std::io::ErrorKind::Interrupted));
        task::safe_point();
    });
    let syscall = format!("/proc/self/task/{}/syscall", receive.recv().unwrap());
    let read = format!("{} ", libc::SYS_read);
    // A signal that comes before a plain call does not end it.
    let until_it_sleeps = || {
        until("it sleeps in the read", || {
            std::fs::read_to_string(&syscall).is_ok_and(|now| now.starts_with(&read))
        });
    };
    let ran = Arc::new(AtomicU32::new(0));
    for round in 1..=200 {
        until_it_sleeps();
        let runs = ran.clone();
        let run = move || _ = runs.fetch_add(1, Ordering::Relaxed);
        assert!(target.handle.add_fn(Notify::Signal, run).is_ok());
        until("the item has run", || ran.load(Ordering::Relaxed) == round);
    }
    until_it_sleeps();
    target.end();
}
