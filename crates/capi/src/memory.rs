//! Calls that fail with `ENOMEM`.
//!
//! A failed allocation of Rust code ends the process. So a call that creates or describes something
//! first asks the system for `RESERVE` bytes and more for each queue, and returns them: if they are
//! refused, by `RLIMIT_AS`, `RLIMIT_DATA` or strict overcommit, the call fails and has done nothing. The
//! reserve is more than any call needs. What remains of it after a failure lets the library's threads
//! and the program go on.
//!
//! Calls that are too frequent for that only look whether the reserve of the allocator is low
//! (`reserve.rs`), which serves each call that has begun.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::fail;
use crate::reserve;

/// What a call may need, whatever exists.
const RESERVE: usize = 4 << 20;
/// A new queue enlarges tables, which double.
const FOR_EACH_QUEUE: usize = 512;
/// A description is larger, and exists twice: as values and as text.
const FOR_EACH_DESCRIBED_QUEUE: usize = 8 << 10;

/// The number of queues of the program.
pub(crate) static QUEUES: AtomicUsize = AtomicUsize::new(0);

/// For a call that creates something.
///
/// # Errors
/// `ENOMEM`.
pub fn can_create() -> Result<(), c_int> {
    can_have(FOR_EACH_QUEUE)
}

/// For a call that describes the queues.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn can_describe() -> Result<(), c_int> {
    can_have(FOR_EACH_DESCRIBED_QUEUE)
}

fn can_have(for_each_queue: usize) -> Result<(), c_int> {
    can_hold(QUEUES.load(Ordering::Relaxed).saturating_mul(for_each_queue))
}

/// For a call that holds copies of this size beside what any call needs.
///
/// # Errors
/// `ENOMEM`.
pub fn can_hold(bytes: usize) -> Result<(), c_int> {
    let bytes = RESERVE.saturating_add(bytes);
    let refused = || fail(libc::ENOMEM, format!("no memory: {bytes} bytes must be available"));
    if reserve::is_low() && !reserve::fill() {
        return Err(refused());
    }
    let memory = reserve::claim(bytes).ok_or_else(refused)?;
    reserve::unmap(memory, bytes);
    Ok(())
}

/// For a frequent call, whose few blocks the reserve has.
///
/// # Errors
/// `ENOMEM`.
#[inline]
pub(crate) fn has_reserve() -> Result<(), c_int> {
    if reserve::is_low() { can_hold(0) } else { Ok(()) }
}

/// Memory for a value, or none.
pub(crate) struct Room<T>(NonNull<MaybeUninit<T>>);

impl<T> Room<T> {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Room<T>, c_int> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { alloc(Layout::new::<T>()) }.cast());
        memory.map(Room).ok_or_else(|| fail(libc::ENOMEM, "there is no memory"))
    }

    pub(crate) fn fill(self, value: T) -> Box<T> {
        let memory = self.0;
        std::mem::forget(self);
        // SAFETY: allocated with the layout of a box, and ours alone.
        unsafe {
            memory.as_ptr().cast::<T>().write(value);
            Box::from_raw(memory.as_ptr().cast())
        }
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, and not given away.
        unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<T>()) };
    }
}
