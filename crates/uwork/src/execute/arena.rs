//! The memory of blocks: chunks that a thread uses up in the order of addresses, and that return to
//! the program's allocator as a whole.
//!
//! A block is taken by the submitter and freed by a worker, usually on another CPU, and in about the
//! same order. So a block needs no place of its own in the allocator: a chunk counts its blocks that
//! are in use, and is freed with the last of them. Taking a block is an addition; freeing is a
//! count in the worker's own memory, which goes to the chunk when the worker comes to a block of
//! another chunk. Neighbours in a queue are neighbours in memory.
//!
//! A block that stays pending for long keeps its whole chunk, so chunks are small. Each thread may
//! keep two: the one that it takes from, and the one that it freed a block of last.
//!
//! A chunk is freed once. Its count begins with `OPEN`, a number above that of its blocks. Frees
//! subtract. The thread that took the blocks adds their number and subtracts `OPEN` when it closes the
//! chunk. So one change makes the count 0, when all blocks are freed.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size of a chunk in bytes, with its header.
const CHUNK: usize = 8_192;
/// Blocks begin at multiples of this, a cache line, and so do chunks.
const LINE: usize = 64;
/// The largest block in a chunk. A larger one has an allocation of its own.
const BLOCK_MAX: usize = 256;
/// In the count of a chunk from which its thread still takes blocks: more than its blocks.
const OPEN: u32 = 1 << 31;
const _: () = assert!(CHUNK / LINE < OPEN as usize && BLOCK_MAX <= CHUNK - LINE);
const LAYOUT: Layout = match Layout::from_size_align(CHUNK, LINE) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// The header of a chunk.
#[repr(C, align(64))]
pub(super) struct Chunk {
    /// Blocks that are not freed, minus those that were freed meanwhile, plus [`OPEN`] until the
    /// thread has taken the last one. The change that makes it 0 frees the chunk.
    used: AtomicU32,
}

/// Whether values of this layout have their places in chunks.
pub(super) const fn fits(layout: Layout) -> bool {
    layout.size() <= BLOCK_MAX && layout.align() <= LINE
}

/// A thread's chunks.
struct Mine {
    /// The chunk that blocks are taken from.
    open: Cell<Option<NonNull<Chunk>>>,
    /// The offset of the next block in it.
    next: Cell<usize>,
    /// The blocks taken from it so far.
    taken: Cell<u32>,
    /// The chunk that a block was freed of last, and how many were freed since its count was changed.
    freed: Cell<(Option<NonNull<Chunk>>, u32)>,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            open: Cell::new(None),
            next: Cell::new(CHUNK),
            taken: Cell::new(0),
            freed: Cell::new((None, 0)),
        }
    };
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.close();
        self.count_freed(None);
    }
}

/// Takes the place of a block, whose layout fits, and its chunk. None while the thread's local data
/// is being destroyed.
#[inline]
pub(super) fn take(layout: Layout) -> Option<(NonNull<u8>, NonNull<Chunk>)> {
    debug_assert!(fits(layout));
    MINE.try_with(|mine| mine.take(layout.size())).ok()
}

/// Frees a block of this chunk.
///
/// # Safety
/// [`take`] gave a place in this chunk, which is not used any more, and was not freed.
#[inline]
pub(super) unsafe fn free(chunk: NonNull<Chunk>) {
    let counted = MINE.try_with(|mine| match mine.freed.get() {
        (Some(last), count) if last == chunk => mine.freed.set((Some(last), count + 1)),
        _ => mine.count_freed(Some(chunk)),
    });
    if counted.is_err() {
        // SAFETY: by this function's contract.
        unsafe { change(chunk, 1_u32.wrapping_neg()) };
    }
}

impl Mine {
    #[inline]
    fn take(&self, size: usize) -> (NonNull<u8>, NonNull<Chunk>) {
        if self.next.get() + size > CHUNK {
            self.open_another();
        }
        let (at, chunk) = (self.next.get(), self.open.get().expect("opened above"));
        self.next.set((at + size).next_multiple_of(LINE));
        self.taken.set(self.taken.get() + 1);
        // SAFETY: within the chunk.
        (unsafe { chunk.cast::<u8>().add(at) }, chunk)
    }

    #[cold]
    fn open_another(&self) {
        self.close();
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(LAYOUT) }.cast::<Chunk>();
        let Some(chunk) = NonNull::new(memory) else { handle_alloc_error(LAYOUT) };
        // SAFETY: it has the size and the alignment of a chunk, and is ours.
        unsafe { chunk.write(Chunk { used: AtomicU32::new(OPEN) }) };
        self.open.set(Some(chunk));
        self.next.set(LINE);
        self.taken.set(0);
    }

    /// The thread takes no more blocks from its chunk.
    fn close(&self) {
        if let Some(chunk) = self.open.take() {
            self.next.set(CHUNK);
            // SAFETY: an open chunk is live, and this thread closes it once.
            unsafe { change(chunk, self.taken.get().wrapping_sub(OPEN)) };
        }
    }

    /// Gives the blocks that were freed to the count of their chunk. The next is of chunk `next`.
    fn count_freed(&self, next: Option<NonNull<Chunk>>) {
        let (last, count) = self.freed.replace((next, 1));
        if let Some(chunk) = last {
            // SAFETY: these blocks were freed and not counted, so the chunk is live.
            unsafe { change(chunk, count.wrapping_neg()) };
        }
    }
}

/// Adds to the count of a chunk, and frees the chunk if that makes it 0.
///
/// # Safety
/// The chunk is live, and the change is for blocks or an end that no other change counts.
unsafe fn change(chunk: NonNull<Chunk>, by: u32) {
    // Release: what this thread did in its blocks. Acquire: what the others did in theirs.
    // SAFETY: by this function's contract.
    let before = unsafe { chunk.as_ref() }.used.fetch_add(by, Ordering::AcqRel);
    if before.wrapping_add(by) == 0 {
        // SAFETY: no block is in use, and none will be taken: no thread knows the chunk any more.
        unsafe { dealloc(chunk.as_ptr().cast(), LAYOUT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// A place with a number in each of its bytes.
    struct Place(NonNull<u8>, NonNull<Chunk>, u8, usize);

    // SAFETY: the place is its holder's alone.
    unsafe impl Send for Place {}

    impl Place {
        fn new(number: u8, size: usize) -> Place {
            let (at, chunk) = take(Layout::from_size_align(size, 8).unwrap()).unwrap();
            assert_eq!(at.addr().get() % LINE, 0);
            // SAFETY: the place is ours.
            unsafe { at.write_bytes(number, size) };
            Place(at, chunk, number, size)
        }

        fn free(self) {
            // SAFETY: ours until it is freed.
            let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.3) };
            assert!(bytes.iter().all(|&byte| byte == self.2), "places overlap");
            // SAFETY: taken once, freed once.
            unsafe { free(self.1) };
        }
    }

    // Catches: places that overlap, and a chunk that is freed while a block of it is in use.
    #[test]
    fn places_keep_their_content_until_they_are_freed_on_other_threads() {
        let (send, receive) = mpsc::channel::<Place>();
        let taker = thread::spawn(move || {
            for number in 0..1_000_usize {
                let size = [56, 64, 100, BLOCK_MAX][number % 4];
                send.send(Place::new(number as u8, size)).unwrap();
            }
            // The thread ends, and its last chunk stays for its blocks.
        });
        let mut late = Vec::new();
        for (number, place) in receive.into_iter().enumerate() {
            if number % 10 == 0 { late.push(place) } else { place.free() }
        }
        taker.join().unwrap();
        late.into_iter().rev().for_each(Place::free);
    }

    // Catches: a layout whose places would not be aligned, or would not fit.
    #[test]
    fn only_small_layouts_fit() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(fits(layout(BLOCK_MAX, LINE)));
        assert!(!fits(layout(BLOCK_MAX + 1, 8)) && !fits(layout(56, 2 * LINE)));
    }
}
