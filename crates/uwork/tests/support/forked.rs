//! Children of a fork whose failure must not end the test.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::guard::Guard;
use super::{WAIT_CAP, WAIT_MAX};

/// When a child ends by itself if its parent does not end it: it must not outlive a failed test.
pub(crate) const CHILD_MAX_S: u32 = WAIT_CAP.as_secs() as u32;

/// Runs `f` in a child, and panics here if it panics, crashes or hangs there.
pub(crate) fn in_child(f: impl FnOnce()) {
    // SAFETY: the child uses uwork and this test's own code, then leaves without running what the
    // parent has registered for its exit.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: no pointers; ends the child, which has one thread at first.
            unsafe { libc::alarm(CHILD_MAX_S) };
            let outcome = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: as above.
            unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
        }
        child => assert_eq!(status_of(child), 0, "the child has failed"),
    }
}

/// The exit status of a child. Kills the child and panics if it hangs.
pub(crate) fn status_of(child: libc::pid_t) -> i32 {
    let ended = descriptor_of(child);
    let mut guard = Guard::of_child(WAIT_MAX, child);
    let mut hang = None;
    while hang.is_none() && !has_ended(&ended, guard.turn().as_millis() as libc::c_int) {
        hang = guard.look().err();
    }
    if hang.is_some() {
        // SAFETY: no pointers; the child was not waited for, so its number is its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: the status is live.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if let Some(hang) = hang {
        panic!("the child {hang}");
    }
    status
}

/// Readable once the child has ended.
fn descriptor_of(child: libc::pid_t) -> OwnedFd {
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as libc::c_int;
    assert!(descriptor >= 0, "pidfd_open: {}", Error::last_os_error());
    // SAFETY: just opened, and no other owner has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn has_ended(child: &OwnedFd, timeout_ms: libc::c_int) -> bool {
    let mut one = libc::pollfd { fd: child.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, live. An interrupted poll counts as a timeout.
    unsafe { libc::poll(&raw mut one, 1, timeout_ms) == 1 }
}
