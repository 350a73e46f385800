//! jemalloc, by the feature of that name.

use super::{Allocator, OBJECT};

/// jemalloc.
pub struct Jemalloc(());

impl Jemalloc {
    /// The allocator, if this build has it.
    pub fn get() -> Option<&'static Self> {
        Some(&Self(()))
    }
}

impl Allocator for Jemalloc {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { tikv_jemalloc_sys::malloc(OBJECT) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { tikv_jemalloc_sys::free(object.cast()) };
    }
}
