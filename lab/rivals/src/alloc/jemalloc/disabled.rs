//! Without the feature `jemalloc` there is none.

use super::Allocator;

/// jemalloc, which this build does not have.
pub enum Jemalloc {}

impl Jemalloc {
    /// The allocator, if this build has it.
    pub fn get() -> Option<&'static Self> {
        None
    }
}

impl Allocator for Jemalloc {
    fn alloc(&self) -> *mut u8 {
        match *self {}
    }

    unsafe fn free(&self, _object: *mut u8) {
        match *self {}
    }
}
