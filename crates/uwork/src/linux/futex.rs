//! futex(2) on a private word.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use uwork_engine::futex::Futex;

/// Sleeps without a limit.
pub(crate) struct Forever;

impl Futex for Forever {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        wait(word, expected, None);
        true
    }

    fn wake(&self, word: *const AtomicU32) {
        wake(word);
    }
}

/// Sleeps until a deadline at most.
pub(crate) struct Until(pub(crate) Instant);

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

/// Sleeps while the word holds `expected`, for `timeout` at most. May return early.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
    });
    let timeout: *const libc::timespec =
        timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is live, the timeout is null or points to this frame. Every outcome, early
    // returns included, leads the caller to look at the word again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout,
        );
    }
}

#[cold]
/// Wakes one thread that sleeps on the word. Only the address is used.
pub(crate) fn wake(word: *const AtomicU32) {
    // SAFETY: the kernel takes any address; waking one on which nobody sleeps does nothing.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1_i32);
    }
}
