//! The system's allocator, which counts how often each thread asks it for memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// For the test's `#[global_allocator]`.
pub(crate) struct Counting;

/// How often the calling thread has allocated so far, if [`Counting`] is the allocator.
pub(crate) fn counted() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // A thread that is ending has no counter any more, and no test reads it.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is forwarded to the system's allocator unchanged; the counter allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, forwarded.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
