//! Children of a fork that must not take the test with them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long a child may take: it must not hang for ever if something is wrong.
pub(crate) const CHILD_MAX_S: u32 = 20 * super::slow::SLOW as u32;

/// Runs `f` in a child, and panics here if it panics, crashes or hangs there.
pub(crate) fn in_child(f: impl FnOnce()) {
    // SAFETY: the child uses uwork and this test's own code, then leaves without running what the
    // parent has registered for its exit.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: no pointers; ends the child, which has one thread to begin with.
            unsafe { libc::alarm(CHILD_MAX_S) };
            let outcome = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: as above.
            unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
        }
        child => assert_eq!(status_of(child), 0, "the child has failed"),
    }
}

/// How a child ends.
pub(crate) fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the status is live.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}
