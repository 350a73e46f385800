//! Per-CPU data: `uw_percpu_*`, and what linux/pwlocks.h has in the library.
//!
//! Locking one's own CPU is a call, as a system call wrapper is: how a lock is taken is no part of the ABI. What that
//! costs is in the project's docs/percpu.md.

mod batch;
mod cache;
mod counter;
mod data;
mod held;
mod kernel;
mod work;

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

use uwork::foreign::{CpuLock, Locks, Recursion};
use uwork::percpu::{mode, reason};

pub use batch::*;
pub use cache::*;
pub use counter::*;
pub use data::*;
pub use kernel::*;
pub use work::*;

use crate::attrs::write_text;
use crate::error::{guard, guarded};
use crate::queue::set_errno;

/// The mode of this process's per-CPU locks.
#[unsafe(no_mangle)]
pub extern "C" fn uw_percpu_mode() -> c_int {
    guard(|| mode().number() as c_int)
}

/// Why it is this mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_reason(buffer: *mut c_char, size: usize) -> c_int {
    // SAFETY: by uwork.h.
    guard(|| unsafe { write_text(reason(), buffer, size) })
}

/// Takes the lock of the CPU that the caller is on. In the debug mode not if the caller has a lock of these: if he was
/// moved meanwhile, it would be a second one's, and two such threads can wait for each other.
#[inline(always)]
fn lock_here(locks: &Locks) -> Result<NonNull<CpuLock>, Recursion> {
    if crate::debug::is_on() && locks.is_any_held() {
        return Err(Recursion);
    }
    locks.lock_here()
}

/// What was made, for C, or null and errno.
fn made<T>(body: impl FnOnce() -> Result<T, c_int>) -> *mut T {
    match guarded(body).and_then(|made| made) {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(code) => nothing(code),
    }
}

/// Null and errno.
#[cold]
fn nothing<T>(code: c_int) -> *mut T {
    set_errno(-code);
    std::ptr::null_mut()
}

/// A handle of C's, if it is one.
///
/// # Safety
/// Null, or from [`made`] and not given back.
unsafe fn there<'a, T>(handle: *const T) -> Result<&'a T, c_int> {
    // SAFETY: by this function's contract.
    unsafe { handle.as_ref() }
        .ok_or_else(|| crate::error::misuse(libc::EINVAL, "the handle is NULL"))
}

/// A number of things as an answer.
fn count(outcome: Result<usize, uwork::Error>) -> i64 {
    match outcome {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(error) => crate::error::failed(&error).into(),
    }
}
