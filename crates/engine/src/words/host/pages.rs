//! Memory for the time of a fork, from the host and not from the allocator.
//!
//! An allocator registers fork handlers of its own and holds its locks over the fork. If its
//! handlers were registered after the engine's, the C library calls them first before a fork and
//! last after it. Then an allocation or a release in any handler of the engine's would wait for the
//! calling thread itself.

use std::alloc::Layout;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::words::host::Host;

/// The layout of memory that stands for pages, on a platform without a better source of them.
fn page_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("it fits into memory")
}

/// What a process that forks needs from its host. A host without forks takes every default.
pub trait Forks {
    /// Fresh memory of so many bytes, aligned to a page, not from the allocator, which may be
    /// locked during a fork. Takes some microseconds. If there is no memory, and no reserve, the
    /// process ends with a message. The caller holds the locks of a fork, and frees what it has got
    /// in the reverse order.
    fn map_pages(bytes: usize) -> NonNull<u8> {
        let layout = page_layout(bytes);
        // SAFETY: the size is not 0.
        let pages = unsafe { std::alloc::alloc(layout) };
        NonNull::new(pages).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Frees such memory.
    ///
    /// # Safety
    /// The memory came from [`Forks::map_pages`] with the same size, and is no longer used.
    unsafe fn unmap_pages(pages: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { std::alloc::dealloc(pages.as_ptr(), page_layout(bytes)) };
    }

    /// Ends the process, in the way in which a process ends when its only thread returns. Called
    /// when a child was forked inside a work item and the item has returned there.
    fn end_forked_thread(&self) -> ! {
        unreachable!("this platform does not fork");
    }
}

/// The size of a block, unless a list needs a larger one.
const BLOCK_BYTES: usize = 64 << 10;
/// The first capacity of a list, which doubles whenever it is full.
const CAPACITY_MIN: usize = 16;

/// The start of each block.
struct Block {
    /// The block before it; null for the first.
    before: *mut Block,
    /// The size of the block, this header included.
    bytes: usize,
}

/// The memory of one fork. Freed when it is dropped, or by [`Pages::give_back`].
pub struct Pages<H: Host> {
    block: Cell<*mut Block>,
    /// Bytes of the last block that are in use.
    used: Cell<usize>,
    host: PhantomData<fn() -> H>,
}

impl<H: Host> Default for Pages<H> {
    fn default() -> Pages<H> {
        Pages::new()
    }
}

impl<H: Host> Pages<H> {
    /// Starts without memory.
    pub const fn new() -> Pages<H> {
        Pages { block: Cell::new(std::ptr::null_mut()), used: Cell::new(0), host: PhantomData }
    }

    /// Memory for a value of this layout. It lasts until all of it is freed.
    fn take(&self, layout: Layout) -> NonNull<u8> {
        let fits = |bytes: usize| {
            let start = self.used.get().next_multiple_of(layout.align());
            (start + layout.size() <= bytes).then_some(start)
        };
        let block = NonNull::new(self.block.get());
        // SAFETY: a block of ours, whose header was written when it was created.
        let known = block.and_then(|block| Some((block, fits(unsafe { block.as_ref() }.bytes)?)));
        let (block, start) = known.unwrap_or_else(|| {
            let block = self.add_block(layout);
            (block, self.used.get().next_multiple_of(layout.align()))
        });
        self.used.set(start + layout.size());
        // SAFETY: within the block, as checked just now.
        unsafe { block.cast::<u8>().add(start) }
    }

    fn add_block(&self, layout: Layout) -> NonNull<Block> {
        // A block is aligned to a page, which no value of a list exceeds.
        debug_assert!(layout.align() <= 4096, "a page is aligned to no more");
        let wanted = size_of::<Block>() + layout.align() + layout.size();
        let bytes = wanted.next_multiple_of(BLOCK_BYTES);
        let block: NonNull<Block> = H::map_pages(bytes).cast();
        // SAFETY: fresh memory of this size, aligned to a page.
        unsafe { block.write(Block { before: self.block.get(), bytes }) };
        self.block.set(block.as_ptr());
        self.used.set(size_of::<Block>());
        block
    }

    /// Frees all memory. No list can exist any more, as each borrows it.
    pub fn give_back(&mut self) {
        while let Some(block) = NonNull::new(self.block.get()) {
            // SAFETY: a block of ours, of this size, which is no longer in use.
            unsafe {
                let Block { before, bytes } = block.read();
                self.block.set(before);
                H::unmap_pages(block.cast(), bytes);
            }
        }
        self.used.set(0);
    }
}

impl<H: Host> Drop for Pages<H> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A list whose values are in [`Pages`]. Filling it and dropping it never calls the allocator.
pub struct PageList<'p, H: Host, T> {
    pages: &'p Pages<H>,
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    owns: PhantomData<T>,
}

impl<'p, H: Host, T> PageList<'p, H, T> {
    /// An empty list.
    pub fn new(pages: &'p Pages<H>) -> PageList<'p, H, T> {
        PageList { pages, start: NonNull::dangling(), len: 0, capacity: 0, owns: PhantomData }
    }

    /// Adds a value at the end.
    pub fn push(&mut self, value: T) {
        if self.len == self.capacity {
            self.grow();
        }
        // SAFETY: below the capacity, of which `len` values are in use.
        unsafe { self.start.add(self.len).write(value) };
        self.len += 1;
    }

    fn grow(&mut self) {
        let capacity = (2 * self.capacity).max(CAPACITY_MIN);
        let layout = Layout::array::<T>(capacity).expect("the list fits into memory");
        let start: NonNull<T> = self.pages.take(layout).cast();
        // SAFETY: the new memory is larger, and separate from the old. The values move: the old
        // memory is not dropped.
        unsafe { start.copy_from_nonoverlapping(self.start, self.len) };
        (self.start, self.capacity) = (start, capacity);
    }

    /// Removes the last value.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the value was in use; `len` excludes it from now on.
        Some(unsafe { self.start.add(self.len).read() })
    }
}

impl<H: Host, T> Extend<T> for PageList<'_, H, T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<H: Host, T> Deref for PageList<'_, H, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values are in use, and borrowed as the list is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<H: Host, T> DerefMut for PageList<'_, H, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<H: Host, T> Drop for PageList<'_, H, T> {
    fn drop(&mut self) {
        while let Some(value) = self.pop() {
            drop(value);
        }
    }
}
