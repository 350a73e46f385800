//! A free list for each thread: fast, and inaccessible to other threads. An object stays with the
//! thread that frees it.

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
        // SAFETY: the list belongs to this thread, and nothing below calls back into it.
        LIST.with(|list| unsafe { &mut *list.get() }.pop())
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: as above.
        LIST.with(|list| unsafe { &mut *list.get() }.push(object));
    }
}
