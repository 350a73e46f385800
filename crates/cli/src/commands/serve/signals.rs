//! The signals that end the server.

use std::mem::MaybeUninit;

/// SIGINT and SIGTERM, held back from now on, for this thread and those that it starts.
pub(super) struct Signals(libc::sigset_t);

impl Signals {
    pub(super) fn block() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is made by the first call and changed by the others; the signals exist.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            set.assume_init()
        };
        // SAFETY: the set is live; the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Self(set)
    }

    /// Waits for one; its name.
    pub(super) fn wait(&self) -> &'static str {
        let mut signal = 0;
        // SAFETY: both are live. It fails only for a signal that does not exist.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if signal == libc::SIGINT { "SIGINT" } else { "SIGTERM" }
    }
}
