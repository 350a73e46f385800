//! A free list for each thread: fast, and out of everybody else's reach. What a thread frees stays with it.

use std::cell::UnsafeCell;

use super::Allocator;
use super::bare::List;

thread_local! {
    static LIST: UnsafeCell<List> = const { UnsafeCell::new(List::new()) };
}

/// See the module.
pub struct ThreadLocal;

impl Allocator for ThreadLocal {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: the thread's own, and nothing below calls back.
        LIST.with(|list| unsafe { &mut *list.get() }.pop())
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: as above.
        LIST.with(|list| unsafe { &mut *list.get() }.push(object));
    }
}
