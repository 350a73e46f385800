//! The signals that end a command which runs for long.

use std::mem::MaybeUninit;
use std::time::Duration;

/// SIGINT, SIGTERM and, unless the process ignores it as under nohup, SIGHUP: blocked in the calling
/// thread and in the threads that it starts from now on. Dropping it restores the mask of the calling
/// thread.
pub(crate) struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    pub(crate) fn block() -> Signals {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // A signal that is blocked arrives even if it is ignored.
        let hangup = (!is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP);
        // SAFETY: `sigemptyset` initializes the set before `sigaddset` changes it; the signal
        // numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        let mut before = set;
        // SAFETY: both sets are live.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Signals { set, before }
    }

    /// Waits for one of them and returns its number.
    pub(crate) fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: both pointers are live. The call fails only for an invalid signal number.
        unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
        signal
    }

    /// Waits for `time` at most. True as soon as one of the signals comes.
    pub(crate) fn come_within(&self, time: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: the pointers are live; a null pointer for the details is allowed.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time)
        };
        signal > 0
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: the set is live; a null pointer for the old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer for the new action is allowed, and the other one is live. If the call
    // fails, the action is the default one: zero.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_blocked_until_the_end() {
        let blocked = || {
            let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
            let mask = mask.as_mut_ptr();
            // SAFETY: the first call only writes the mask, which the second one reads.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask);
                libc::sigismember(mask, libc::SIGTERM) == 1
            }
        };
        assert!(!blocked());
        let signals = Signals::block();
        assert!(blocked() && !signals.come_within(Duration::ZERO));
        drop(signals);
        assert!(!blocked());
    }

    #[test]
    fn a_signal_is_ignored_or_not() {
        // Programs in Rust ignore it.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
    }
}
