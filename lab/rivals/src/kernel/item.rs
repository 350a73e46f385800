//! The kernel's work item (`data`, `entry`, `func`), and its doubly linked list.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Release},
};

use crate::progress::Progress;

const PENDING: usize = 1;

pub(super) struct Item {
    /// Bit 0 is PENDING. The thread that sets it owns the links until the item is removed from the
    /// list.
    data: AtomicUsize,
    /// Guarded by the pool lock while the item is pending.
    previous: Cell<*const Item>,
    /// As `previous`.
    next: Cell<*const Item>,
    /// Takes a pointer, because the item may be freed before the function returns, which a
    /// reference would forbid.
    function: unsafe fn(*const Item),
    progress: &'static Progress,
}

/// # Safety
///
/// The item is alive until it has counted.
unsafe fn count(item: *const Item) {
    // SAFETY: the item has not counted yet, so it is alive.
    let progress = unsafe { (*item).progress };
    progress.complete();
}

// SAFETY: `previous` and `next` are touched only under the lock of the pool that the item is queued
// on (see `List`), and an item is on one list at a time (PENDING). The rest is atomic or never
// changes.
unsafe impl Sync for Item {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Item {}

impl Item {
    pub(super) fn new(progress: &'static Progress) -> Self {
        Self {
            data: AtomicUsize::new(0),
            previous: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            function: count,
            progress,
        }
    }

    /// Whether the caller now owns the item; otherwise it was pending already.
    #[inline]
    #[must_use]
    pub(super) fn set_pending(&self) -> bool {
        self.data.fetch_or(PENDING, AcqRel) & PENDING == 0
    }

    /// Clears PENDING and returns the function, which the caller must call once, without the pool
    /// lock.
    ///
    /// # Safety
    ///
    /// The item came from [`List::pop_front`], and this is its only start since.
    #[inline]
    #[must_use]
    pub(super) unsafe fn start(item: *const Self) -> unsafe fn(*const Item) {
        // SAFETY: an item that has not started is alive.
        unsafe {
            (*item).data.store(0, Release);
            (*item).function
        }
    }
}

/// Items in submission order. Guarded by the pool lock.
pub(super) struct List {
    first: *const Item,
    last: *const Item,
}

// SAFETY: a list is only pointers to items, which are Sync and Send.
unsafe impl Send for List {}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: ptr::null(), last: ptr::null() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Links an item at the end.
    ///
    /// # Safety
    ///
    /// The caller has set the item's PENDING, and the item lives until it has run.
    #[inline]
    pub(super) unsafe fn push_back(&mut self, item: &Item) {
        item.previous.set(self.last);
        item.next.set(ptr::null());
        if self.last.is_null() {
            self.first = item;
        } else {
            // SAFETY: an item on the list has not run, so it is alive.
            unsafe { (*self.last).next.set(item) };
        }
        self.last = item;
    }

    /// Unlinks the first item. The item stays alive until it has run; the caller must run it once.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<*const Item> {
        let item = self.first;
        if item.is_null() {
            return None;
        }
        // SAFETY: an item on the list has not run, so it is alive.
        self.first = unsafe { (*item).next.get() };
        if self.first.is_null() {
            self.last = ptr::null();
        } else {
            // SAFETY: as above, this one is on the list.
            unsafe { (*self.first).previous.set(ptr::null()) };
        }
        Some(item)
    }
}
