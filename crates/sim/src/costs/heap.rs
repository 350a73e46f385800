//! The allocator of programs in which instructions take time: every block begins a cache line, and
//! a new block begins without copies in any CPU. So what an access costs does not depend on where
//! the system's allocator places a block, nor on what the process did before.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};

use mimalloc::MiMalloc;

use super::lines::LINE_BYTES;

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

thread_local! {
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    /// Blocks that were freed since they were last taken: address and size.
    static FREED: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// From now on, the calling thread's freed blocks are kept in mind, or no longer.
pub(super) fn record(records: bool) {
    FREED.with_borrow_mut(Vec::clear);
    IS_RECORDING.set(records);
}

/// Calls `forget` with each block that the calling thread has freed since the last call.
pub(super) fn take_freed(mut forget: impl FnMut(usize, usize)) {
    FREED.with_borrow_mut(|freed| freed.drain(..).for_each(|(at, size)| forget(at, size)));
}

/// The layout that begins a line and shares its last line with no other block.
fn in_lines(layout: Layout) -> Layout {
    let aligned = layout.align_to(LINE_BYTES).expect("a layout within the address space");
    aligned.pad_to_align()
}

// SAFETY: all calls go to mimalloc, with a layout that contains the caller's and is a
// function of it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract, for a layout of at least its size.
        unsafe { MiMalloc.alloc(in_lines(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if IS_RECORDING.get() {
            // The list frees its own memory when it grows. Its lines are no engine's.
            let _ = FREED.try_with(|freed| {
                if let Ok(mut freed) = freed.try_borrow_mut() {
                    freed.push((block.addr(), layout.size()));
                }
            });
        }
        // SAFETY: the block was allocated with this layout.
        unsafe { MiMalloc.dealloc(block, in_lines(layout)) };
    }
}
