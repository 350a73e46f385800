//! The item of task work: three words that users embed in their own type.

use std::any::TypeId;
use std::ptr::NonNull;

use crate::words::sync::{AtomicU32, Cell, Link, Ordering, const_unless_modelled};

const IDLE: u32 = 0;
/// In a list, or on its way into or out of one.
const PENDING: u32 = 1;

/// The functions of an item.
pub struct TaskCalls {
    /// Runs the item. The function may free the item. It does not unwind.
    ///
    /// # Safety (for callers)
    /// Called on the target's thread with an item that was removed from its list, once for each
    /// time that it was added.
    pub run: unsafe fn(NonNull<TaskWork>),
    /// The type that the item is a part of, for cancels by match.
    pub of: fn() -> TypeId,
}

/// An item, 24 bytes. In at most one list at a time.
#[repr(C)]
pub struct TaskWork {
    /// Guard: the item's owner; the list while the item is in one.
    next: Cell<Link<TaskWork>>,
    calls: &'static TaskCalls,
    state: AtomicU32,
}

impl TaskWork {
    const_unless_modelled! {
        /// An idle item.
        pub fn new(calls: &'static TaskCalls) -> TaskWork {
            TaskWork { next: Cell::new(Link(std::ptr::null_mut())), calls, state: AtomicU32::new(IDLE) }
        }
    }

    /// Whether the item is in a list. A hint: it may change at any time.
    pub fn is_pending(&self) -> bool {
        self.state.load(Ordering::Relaxed) == PENDING
    }

    /// Its functions.
    pub fn calls(&self) -> &'static TaskCalls {
        self.calls
    }

    /// Makes the caller the owner of an idle item. False if it has an owner.
    ///
    /// Release even on failure: the pending run then sees the writes that precede the refused add.
    /// It pairs with [`TaskWork::let_go`].
    #[must_use]
    pub(super) fn acquire(&self) -> bool {
        self.state.swap(PENDING, Ordering::AcqRel) == IDLE
    }

    /// Ends the ownership.
    ///
    /// Acquire: see [`TaskWork::acquire`]. Release: the next owner may write the item.
    pub(super) fn let_go(&self) {
        self.state.swap(IDLE, Ordering::AcqRel);
    }

    /// # Safety
    /// `this` is live and the caller's alone.
    pub(super) unsafe fn next(this: *mut TaskWork) -> *mut TaskWork {
        // SAFETY: by this function's contract.
        unsafe { (*this).next.get().0 }
    }

    /// # Safety
    /// `this` is live and the caller's alone.
    pub(super) unsafe fn set_next(this: *mut TaskWork, next: *mut TaskWork) {
        // SAFETY: by this function's contract.
        unsafe { (*this).next.set(Link(next)) };
    }
}
