//! A binary event on a futex word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CLEAR: u32 = 0;
const SET: u32 = 1;
/// Clear, and its thread sleeps or is about to.
const WAITING: u32 = 2;

/// One thread waits, any thread sets. A set that comes first is remembered.
#[derive(Default)]
pub(crate) struct Event(AtomicU32);

impl Event {
    /// Waits until the event is set and clears it. True if it was set, false after `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // Acquire pairs with the exchange in `set`.
            if self.0.swap(WAITING, Ordering::Acquire) == SET {
                self.0.store(CLEAR, Ordering::Relaxed);
                return true;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return self.0.swap(CLEAR, Ordering::Acquire) == SET;
            }
            futex_wait(&self.0, WAITING, left);
        }
    }

    /// Whether the event is set; leaves it so.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) == SET
    }

    /// Sets the event and wakes its thread.
    ///
    /// # Safety
    /// `event` is live. It may go away once the exchange was seen: after that only its address is
    /// used, for a wake that at worst reaches nobody.
    #[inline]
    pub(crate) unsafe fn set(event: *const Event) {
        // SAFETY: by this function's contract.
        let word = unsafe { &raw const (*event).0 };
        // SAFETY: as above. Release pairs with the exchange in `wait`.
        if unsafe { (*word).swap(SET, Ordering::AcqRel) } == WAITING {
            futex_wake(word);
        }
    }
}

fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
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
fn futex_wake(word: *const AtomicU32) {
    // SAFETY: the kernel takes any address; waking one on which nobody sleeps does nothing.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1_i32);
    }
}
