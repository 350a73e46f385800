//! The signals that end a command which runs for long.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Signals that end a process by default and that other processes send. Those after SIGTERM are
/// the command's only if their action is the default one: under nohup SIGHUP is ignored.
const ENDING: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];
/// Those of them that a command takes although its parent ignores them, as a shell does with SIGINT
/// for a command in the background.
const TAKEN: [i32; 2] = [libc::SIGINT, libc::SIGTERM];

/// The signals of [`ENDING`]: blocked in the calling thread and in the threads that it starts from now
/// on. Dropping it restores the mask of the calling thread.
pub(crate) struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    pub(crate) fn block() -> Signals {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // A signal that is blocked arrives even if it is ignored.
        let is_taken = |signal: &i32| TAKEN.contains(signal) || action(*signal) == libc::SIG_DFL;
        // SAFETY: `sigemptyset` initializes the set before `sigaddset` changes it; the signal
        // numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in ENDING.into_iter().filter(is_taken) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        let mut before = set;
        // SAFETY: both sets are live.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Signals { set, before }
    }

    /// Waits for one of them and returns its number. One that has got a handler since, as that of
    /// `UWORK_DUMP_SIGNAL` does, is the handler's.
    pub(crate) fn wait(&self) -> i32 {
        loop {
            let mut signal = 0;
            // SAFETY: both pointers are live. The call fails only for an invalid signal number.
            unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
            if matches!(action(signal), libc::SIG_DFL | libc::SIG_IGN) {
                return signal;
            }
            deliver(signal);
        }
    }

    /// Waits for `time` at most. Returns the number of the first signal that comes.
    pub(crate) fn come_within(&self, time: Duration) -> Option<i32> {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: the pointers are live; a null pointer for the details is allowed.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time)
        };
        Some(signal).filter(|&signal| signal > 0)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: the set is live; a null pointer for the old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

/// Has a signal, which the calling thread blocks, act on the process: its handler runs, or it ends the
/// process. Other signals stay blocked.
fn deliver(signal: i32) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initializes the set; null pointers for the old masks are allowed. A signal
    // that is raised while it is blocked comes when it no longer is.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends the process by a signal, as if it had not been blocked: a shell ends its loop then.
pub(crate) fn end_by(signal: i32) -> ! {
    deliver(signal);
    // Its action is not the default one.
    std::process::exit(128 + signal);
}

/// Has children wait to be reaped: a parent that ignores SIGCHLD leaves that to its child, and then the
/// system forgets how a grandchild has ended.
pub(crate) fn keep_statuses_of_children() {
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Whether the process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    action(signal) == libc::SIG_IGN
}

/// What a signal does to the process: the default, nothing, or a handler.
fn action(signal: i32) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer for the new action is allowed, and the other one is live. If the call
    // fails, the action is the default one: zero.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction
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
        assert!(blocked() && signals.come_within(Duration::ZERO).is_none());
        drop(signals);
        assert!(!blocked());
    }

    #[test]
    fn a_signal_is_ignored_or_not() {
        // Programs in Rust ignore it.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
    }
}
