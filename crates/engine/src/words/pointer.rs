//! The kinds of pointer through which an item can be queued.

use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pointer that a queue can hold while an item is pending.
///
/// Implemented for `Arc<T>`, `Pin<Box<T>>` and `&'static T`.
///
/// # Safety
/// `into_raw` returns the address of a live `T` that does not move and lives until `from_raw` is
/// called with it. `from_raw` may run on another thread.
pub unsafe trait WorkPointer: 'static {
    /// The type of the value pointed to.
    type Target;

    /// Converts the pointer to an address, without dropping it.
    fn into_raw(self) -> NonNull<Self::Target>;

    /// Converts the address back to the pointer.
    ///
    /// # Safety
    /// `raw` came from `into_raw` of the same type, and is converted back only once.
    unsafe fn from_raw(raw: NonNull<Self::Target>) -> Self;
}

// SAFETY: an `Arc`'s value stays in place as long as a counted reference exists.
unsafe impl<T: Send + Sync + 'static> WorkPointer for Arc<T> {
    type Target = T;

    fn into_raw(self) -> NonNull<T> {
        // SAFETY: the address of an `Arc`'s value is not null.
        unsafe { NonNull::new_unchecked(Arc::into_raw(self).cast_mut()) }
    }

    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: by this function's contract.
        unsafe { Arc::from_raw(raw.as_ptr()) }
    }
}

// SAFETY: a pinned box's value stays in place, and the queue owns it.
unsafe impl<T: Send + 'static> WorkPointer for Pin<Box<T>> {
    type Target = T;

    fn into_raw(self) -> NonNull<T> {
        // SAFETY: the value is not moved: it becomes a pinned box again, or is never accessed.
        let inner = unsafe { Pin::into_inner_unchecked(self) };
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(Box::into_raw(inner)) }
    }

    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: by this function's contract; and the value was pinned before.
        unsafe { Pin::new_unchecked(Box::from_raw(raw.as_ptr())) }
    }
}

// SAFETY: lives for ever, and nothing can move out of a shared reference.
unsafe impl<T: Sync + 'static> WorkPointer for &'static T {
    type Target = T;

    fn into_raw(self) -> NonNull<T> {
        NonNull::from(self)
    }

    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: came from a static reference.
        unsafe { raw.as_ref() }
    }
}
