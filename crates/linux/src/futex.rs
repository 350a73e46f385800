//! futex(2) on a private word.
//!
//! If the system refuses the call, the process ends with a message: threads that cannot sleep would
//! spin for ever, and the C library ends the process at its own next wait anyway.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;

use super::fatal::{self, Errno};

/// Sleeps without a limit.
pub struct Forever;

impl Futex for Forever {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        wait(word, expected, None);
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        wake(word);
    }
}

/// Sleeps, but no longer than until this moment.
pub struct Until(pub Instant);

impl Futex for Until {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        let left = self.0.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return false;
        }
        wait(word, expected, Some(left));
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        wake(word);
    }
}

/// Sleeps while the word holds `expected`, for `timeout` at most. May return early. True if a handler
/// of a signal has ended the sleep; after a handler with `SA_RESTART` a sleep without a limit goes on.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
    });
    let timeout: *const libc::timespec =
        timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is live, the timeout is null or points to this frame. After every outcome,
    // early returns included, the caller checks the word again.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout,
        )
    };
    if outcome >= 0 {
        return false;
    }
    let error = fatal::errno();
    if !matches!(error, libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) {
        refused(error);
    }
    error == libc::EINTR
}

/// Wakes one thread that sleeps on the word. Only the address is used.
pub(crate) fn wake(word: *const AtomicU32) {
    // SAFETY: the kernel takes any address; a wake on an address without a sleeper does nothing.
    let outcome = unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1_i32)
    };
    if outcome < 0 {
        let error = fatal::errno();
        // The memory may have been unmapped, which means that no thread sleeps on it.
        if error != libc::EFAULT {
            refused(error);
        }
    }
}

/// Ends the process, because the system refuses futex(2) with this error.
#[cold]
pub fn refused(error: i32) -> ! {
    let error = Errno(error);
    fatal::abort(format_args!("futex(2) is refused ({error}): no thread can wait for another"));
}
