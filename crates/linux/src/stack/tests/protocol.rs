//! Requests and answers that miss each other, without signals.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;

use crate::bounded::{status_of, until};
use crate::futex::{Forever, Until};
use crate::stack::exchange::{self, EXCHANGES};
use crate::thread::id;

/// How long a request waits for exchanges that other tests use, before it starts anew.
const TURN: Duration = Duration::from_millis(100);

/// A request that the calling thread answers at once.
fn ask_oneself<R>(futex: &impl Futex, read: impl FnOnce() -> R) -> Option<R> {
    let thread = id() as libc::pid_t;
    let send = |value| {
        exchange::answer(value, thread, |_| ());
        true
    };
    exchange::ask(thread, send, futex, |_| read()).ok()
}

/// As many requests at the same time.
fn all(requests: usize, futex: &Until) -> Option<()> {
    match requests {
        0 => Some(()),
        _ => ask_oneself(futex, || all(requests - 1, futex)).flatten(),
    }
}

#[test]
fn an_answer_after_the_caller_has_returned_copies_nothing() {
    let thread = id() as libc::pid_t;
    // Not sent while other tests use all exchanges.
    let late = until(|| {
        let mut late = None;
        let keep = |value| late.replace(value).is_none();
        assert!(exchange::ask(thread, keep, &Until(Instant::now()), |_| ()).is_err());
        late
    });
    exchange::answer(late, thread, |_| panic!("no caller waits for this"));
    // The answer of a thread that was not asked has no effect either.
    let other = |value| {
        exchange::answer(value, thread + 1, |_| panic!("it was not asked"));
        true
    };
    assert!(exchange::ask(thread, other, &Until(Instant::now()), |_| ()).is_err());
}

#[test]
fn a_caller_that_leaves_during_the_copy_leaves_the_buffer() {
    let ((ask, asked), (begin, begun)) = (channel(), channel());
    let (leave, left) = channel::<()>();
    let copies = Arc::new(AtomicU32::new(0));
    let count = copies.clone();
    let handler = thread::spawn(move || {
        let (value, thread) = asked.recv().unwrap();
        exchange::answer(value, thread, |_| {
            begin.send(()).unwrap();
            left.recv().unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    let thread = id() as libc::pid_t;
    let is_sent = Cell::new(false);
    let send = |value| {
        is_sent.set(true);
        ask.send((value, thread)).unwrap();
        begun.recv().unwrap();
        true
    };
    // Not sent while other tests use all exchanges.
    until(|| {
        assert!(exchange::ask(thread, send, &Until(Instant::now()), |_| ()).is_err());
        is_sent.get().then_some(())
    });
    // The handler still writes to the buffer: other exchanges are used, of which one fewer is free.
    assert!(all(EXCHANGES, &Until(Instant::now())).is_none());
    leave.send(()).unwrap();
    handler.join().unwrap();
    assert_eq!(copies.load(Ordering::Relaxed), 1);
    // It was given back. Other tests have some of them for a while.
    until(|| all(EXCHANGES, &Until(Instant::now() + TURN)));
}

#[test]
fn a_request_in_progress_at_a_fork_does_not_exist_in_the_child() {
    crate::engine();
    let status = ask_oneself(&Forever, || {
        // SAFETY: the child takes no lock that another thread may have held, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let now = &Until(Instant::now());
            // The parent's request uses one of the exchanges; other tests may use more.
            let served = all(EXCHANGES, now).is_some();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!served)) };
        }
        status_of(child)
    });
    assert_eq!(status, Some(0));
}
