//! Bounded waits of this crate's unit tests.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

#[allow(dead_code, reason = "others use all of it")]
#[path = "../../uwork/tests/support/guard.rs"]
mod guard;

/// How long the process may make no progress in one wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Calls `turn` until it returns a value. Panics if that is a hang.
#[track_caller]
pub(crate) fn until<R>(mut turn: impl FnMut() -> Option<R>) -> R {
    let mut guard = guard::Guard::new(WAIT_MAX);
    loop {
        if let Some(result) = turn() {
            return result;
        }
        if let Err(hang) = guard.poll() {
            panic!("{hang}");
        }
        std::thread::yield_now();
    }
}

/// The status of a child that ends. Panics if it hangs, and ends it before.
#[track_caller]
pub(crate) fn status_of(child: libc::pid_t) -> libc::c_int {
    let known = guard::KnownChild::new(child);
    let mut guard = guard::Guard::of_child(WAIT_MAX, child);
    let mut status = -1;
    loop {
        // SAFETY: the status is live.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => {}
            ended => {
                assert_eq!(ended, child);
                break;
            }
        }
        if let Err(hang) = guard.poll() {
            // SAFETY: no pointers; the child was not waited for, so its number is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child {hang}");
        }
        std::thread::yield_now();
    }
    drop(known);
    status
}

/// The next message. Panics if none comes.
#[track_caller]
pub(crate) fn received<T>(receiver: &Receiver<T>) -> T {
    let received = guard::in_turns(WAIT_MAX, |turn| match receiver.recv_timeout(turn) {
        Err(RecvTimeoutError::Timeout) => None,
        outcome => Some(outcome),
    });
    received.unwrap_or_else(|hang| panic!("{hang}")).expect("the sender lives")
}
