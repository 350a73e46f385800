//! The signals that end a consumer.

use std::mem::MaybeUninit;

/// SIGINT and SIGTERM, blocked in the calling thread and in the threads that it starts from now on.
pub(super) struct Signals(libc::sigset_t);

impl Signals {
    pub(super) fn block() -> Signals {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initializes the set before `sigaddset` changes it; the signal
        // numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            set.assume_init()
        };
        // SAFETY: the set is live; a null pointer for the old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Signals(set)
    }

    /// Waits for one of them and returns its number.
    pub(super) fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: both pointers are live. The call fails only for an invalid signal number.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        signal
    }
}
