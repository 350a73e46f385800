//! Per-CPU data: `uw_percpu_*`.
//!
//! Locking the own CPU's block is a function call, as a system call wrapper is, because the lock's
//! algorithm is not part of the ABI. Lock and release cost 10 cycles more than in Rust.

mod batch;
mod cache;
mod counter;
mod data;
mod work;

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

use uwork::foreign::{CpuLock, Locks, Recursion};
use uwork::percpu::{mode, reason};

pub use batch::*;
pub use cache::*;
pub use counter::*;
pub use data::*;
pub use work::*;

use crate::attrs::write_text;
use crate::error::{guard, guarded};
use crate::memory::can_create;
use crate::queue::set_errno;

/// The mode of this process's per-CPU locks.
#[unsafe(no_mangle)]
pub extern "C" fn uw_percpu_mode() -> c_int {
    guard(|| mode().number() as c_int)
}

/// The reason for this mode, as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_reason(buffer: *mut c_char, size: usize) -> c_int {
    // SAFETY: by uwork.h.
    guard(|| unsafe { write_text(reason(), buffer, size) })
}

/// Takes the lock of the caller's CPU. In the debug mode it fails if the caller holds any of these
/// locks. The caller could have migrated since it took that lock, and would now take a second one;
/// two such threads can deadlock.
#[inline(always)]
pub(crate) fn lock_here(locks: &Locks) -> Result<NonNull<CpuLock>, Recursion> {
    if crate::debug::is_on() && locks.is_any_held() {
        return Err(Recursion);
    }
    locks.lock_here()
}

/// Creates an object and passes it to C, or returns null and sets errno.
fn made<T>(body: impl FnOnce() -> Result<T, c_int>) -> *mut T {
    match can_create().and_then(|()| guarded(body)?) {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(code) => nothing(code),
    }
}

/// Sets errno and returns null.
#[cold]
fn nothing<T>(code: c_int) -> *mut T {
    set_errno(-code);
    std::ptr::null_mut()
}

/// The object of C's handle, unless the handle is null.
///
/// # Safety
/// `handle` is null, or comes from [`made`] and was not freed.
unsafe fn there<'a, T>(handle: *const T) -> Result<&'a T, c_int> {
    // SAFETY: by this function's contract.
    unsafe { handle.as_ref() }
        .ok_or_else(|| crate::error::misuse(libc::EINVAL, "the handle is NULL"))
}

/// A number of objects as a result for C.
fn count(outcome: Result<usize, uwork::Error>) -> i64 {
    match outcome {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(error) => crate::error::failed(&error).into(),
    }
}
