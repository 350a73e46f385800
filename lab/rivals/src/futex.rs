//! The two futex calls that the load and the shapes need. A wait may return early, so every caller
//! checks its condition again.

use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`, until a wake, a signal, or a spurious return.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the word is valid for the whole call, and a null timeout means none. Every error
    // means "check again".
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes up to `count` threads that sleep on `word`.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel uses the address only as a key and reads nothing through it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        );
    }
}
