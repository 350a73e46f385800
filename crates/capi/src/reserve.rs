//! Memory for calls that have begun: where the system's allocator fails, a block comes from a reserve.
//!
//! Most allocations of Rust code cannot fail: without memory they end the process. So this crate has
//! an allocator of its own. It asks the system's first, and takes from the reserve what that refuses:
//! to a call that another thread of the program has left without memory, and to the library's threads.
//! A call that creates something fails before it begins if the reserve is low and cannot be filled.
//!
//! The reserve is a few chunks of memory. The first belongs to the program from its start; others are
//! mapped when the reserve is low, and never unmapped. In each, blocks follow one another, and the
//! chunk is empty again when its last block is freed. So a chunk is one word, without a lock: a forked
//! child finds it as it is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use uwork::foreign::by_c_library;

const CHUNK: usize = 4 << 20;
const CHUNKS_MAX: usize = 32;
/// Blocks begin at multiples of it.
const UNIT: usize = 64;
/// The alignment of a chunk.
const PAGE: usize = 4 << 10;
/// The last part of each chunk is for blocks of at most [`SMALL`] bytes, which threads need that cannot
/// fail.
const FOR_SMALL: usize = 1 << 20;
const SMALL: usize = 4 << 10;
/// A reserve with less room in each chunk is low.
const LOW: usize = 2 << 20;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

/// Called when the program starts, or the library is loaded: threads of the standard library end the
/// process where there is no memory for them.
// SAFETY: functions in this section are called then, by one thread; this one stores a value.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    by_c_library();
}

/// | bits of `taken` | meaning |
/// |---|---|
/// | 32 to 63 | blocks that are in use |
/// | 0 to 31 | units from the begin of the chunk that are taken; 0 if no block is in use |
struct Chunk {
    /// Null until the chunk exists, and then constant. Chunks are mapped in their order.
    base: AtomicPtr<u8>,
    taken: AtomicU64,
}

const BLOCK: u64 = 1 << 32;
const UNITS: u64 = BLOCK - 1;

static CHUNKS: [Chunk; CHUNKS_MAX] = {
    let mut chunks = [const { Chunk::at(null_mut()) }; CHUNKS_MAX];
    chunks[0] = Chunk::at(FIRST.0.get().cast());
    chunks
};

/// The memory of the first chunk. The system gives each page of it when it is first written to.
#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; CHUNK]>);

// SAFETY: accessed by pointers to blocks only.
unsafe impl Sync for Memory {}

static FIRST: Memory = Memory(UnsafeCell::new([0; CHUNK]));
const _: () = assert!(align_of::<Memory>() == PAGE && LOW < CHUNK - FOR_SMALL);

/// Whether a block was ever taken. While it is false, a free costs one load more. A thread that frees a
/// block has got it from the thread that took it, and so sees what that has stored.
static USED: AtomicBool = AtomicBool::new(false);

fn mapped() -> impl Iterator<Item = (&'static Chunk, *mut u8)> {
    // Acquire pairs with the release in `keep`: the chunk's memory.
    let with_base = |chunk: &'static Chunk| (chunk, chunk.base.load(Ordering::Acquire));
    CHUNKS.iter().map(with_base).take_while(|(_, base)| !base.is_null())
}

impl Chunk {
    const fn at(base: *mut u8) -> Chunk {
        Chunk { base: AtomicPtr::new(base), taken: AtomicU64::new(0) }
    }

    fn room(&self) -> usize {
        CHUNK - (self.taken.load(Ordering::Relaxed) & UNITS) as usize * UNIT
    }

    /// The offset of a new block.
    fn take(&self, layout: Layout) -> Option<usize> {
        let size = layout.size().next_multiple_of(UNIT);
        let end_max = if size > SMALL { CHUNK - FOR_SMALL } else { CHUNK };
        let place = |taken: u64| {
            let used = (taken & UNITS) as usize * UNIT;
            let begin = used.next_multiple_of(layout.align());
            let end = begin.checked_add(size).filter(|&end| end <= end_max)?;
            Some((begin, (taken & !UNITS) + BLOCK + (end / UNIT) as u64))
        };
        let next = |taken| place(taken).map(|(_, next)| next);
        // Acquire pairs with the release in `give`: the accesses of the block's earlier owner.
        let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).ok()?;
        place(before).map(|(begin, _)| begin)
    }

    fn give(&self) {
        let next = |taken| Some(if taken < 2 * BLOCK { 0 } else { taken - BLOCK });
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }
}

/// A block of the reserve, or null.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE || layout.size() > CHUNK {
        return null_mut();
    }
    let block = || {
        let found = |(chunk, base): (&Chunk, *mut u8)| Some((base, chunk.take(layout)?));
        mapped().find_map(found)
    };
    let block = block().or_else(|| fill().then(block)?);
    let Some((base, offset)) = block else { return null_mut() };
    USED.store(true, Ordering::Relaxed);
    // SAFETY: the offset is within the chunk, whose memory lives for ever.
    unsafe { base.add(offset) }
}

/// The chunk of a block, if it is one of the reserve's.
#[inline]
fn owner(block: *mut u8) -> Option<&'static Chunk> {
    if !USED.load(Ordering::Relaxed) {
        return None;
    }
    let is_in = |base: *mut u8| block.addr().wrapping_sub(base.addr()) < CHUNK;
    mapped().find(|&(_, base)| is_in(base)).map(|(chunk, _)| chunk)
}

/// Whether a call that begins does not find enough in the reserve. False also if there can be no
/// further chunk.
#[inline]
pub(crate) fn is_low() -> bool {
    let is_full = || !CHUNKS[CHUNKS_MAX - 1].base.load(Ordering::Relaxed).is_null();
    !mapped().any(|(chunk, _)| chunk.room() >= LOW) && !is_full()
}

/// Maps a further chunk. False if the system has no memory for it, or there are too many.
#[cold]
pub(crate) fn fill() -> bool {
    // Reads the static, so that a linker that keeps this function keeps the static as well.
    // SAFETY: a static.
    unsafe { std::ptr::read_volatile(&raw const AT_START)() };
    let Some(memory) = map(CHUNK) else { return false };
    let is_kept = CHUNKS.iter().any(|chunk| {
        // Release pairs with the acquire in `mapped`.
        let free = without_provenance_mut(0);
        chunk.base.compare_exchange(free, memory, Ordering::Release, Ordering::Relaxed).is_ok()
    });
    if !is_kept {
        unmap(memory, CHUNK);
    }
    is_kept
}

/// New memory of the system. Not by `malloc`, whose thresholds a large block would change.
fn map(bytes: usize) -> Option<*mut u8> {
    map_with(bytes, ACCESS)
}

const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn map_with(bytes: usize, access: c_int) -> Option<*mut u8> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing uses.
    let memory = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    (memory != libc::MAP_FAILED).then(|| memory.cast())
}

/// As [`map`], for memory that is not used: after `mlockall(MCL_FUTURE)` the system fills and locks new
/// memory, but not that which was unlocked before its first access.
pub(crate) fn claim(bytes: usize) -> Option<*mut u8> {
    let memory = map_with(bytes, libc::PROT_NONE)?;
    // SAFETY: the mapping is live, and nothing uses it. If a filter refuses `munlock`, it is filled.
    let is_granted = unsafe {
        libc::munlock(memory.cast(), bytes);
        libc::mprotect(memory.cast(), bytes, ACCESS) == 0
    };
    if !is_granted {
        unmap(memory, bytes);
    }
    is_granted.then_some(memory)
}

/// Returns memory of [`map`] or [`claim`] that nothing uses.
pub(crate) fn unmap(memory: *mut u8, bytes: usize) {
    // SAFETY: from one of these with this size, by all callers.
    unsafe { libc::munmap(memory.cast(), bytes) };
}

// SAFETY: blocks of the system's allocator, or of a chunk, in which they do not overlap and have the
// layout's size and alignment. A block is freed where it came from.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match owner(block) {
            Some(chunk) => chunk.give(),
            // SAFETY: by the caller; not from the reserve.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if owner(block).is_none() {
            // SAFETY: by the caller; not from the reserve.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: by the caller, who gives a size that is valid with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not 0, by the caller.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: two blocks of at least this size; the old one is freed once.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_of_a_chunk_are_aligned_and_do_not_overlap() {
        let chunk = Chunk::at(null_mut());
        assert_eq!(chunk.take(layout(1, 1)), Some(0));
        assert_eq!(chunk.take(layout(UNIT + 1, 8)), Some(UNIT));
        assert_eq!(chunk.take(layout(8, 256)), Some(256));
        assert_eq!(chunk.room(), CHUNK - 256 - UNIT);
    }

    #[test]
    fn a_chunk_is_empty_again_after_its_last_block() {
        let chunk = Chunk::at(null_mut());
        for _ in 0..3 {
            assert!(chunk.take(layout(1000, 8)).is_some());
        }
        chunk.give();
        chunk.give();
        assert!(chunk.room() < CHUNK);
        chunk.give();
        assert_eq!(chunk.room(), CHUNK);
        assert_eq!(chunk.take(layout(8, 8)), Some(0));
    }

    #[test]
    fn the_end_of_a_chunk_is_for_small_blocks() {
        let chunk = Chunk::at(null_mut());
        assert_eq!(chunk.take(layout(CHUNK - FOR_SMALL, 8)), Some(0));
        assert_eq!(chunk.take(layout(SMALL + 1, 8)), None);
        assert!(chunk.take(layout(SMALL, 8)).is_some());
        assert_eq!(chunk.take(layout(usize::MAX / 4, 8)), None);
    }

    // Catches: megabytes that each call fills and locks.
    #[test]
    fn a_claim_fills_no_page_of_a_process_that_locks_all_memory() {
        let fills = || {
            let mut resident = vec![0_u8; CHUNK / PAGE];
            // SAFETY: the claim has this many pages at most, and the vector a byte for each.
            unsafe {
                if libc::mlockall(libc::MCL_FUTURE) != 0 {
                    return false;
                }
                let memory = claim(CHUNK).expect("there is memory");
                assert_eq!(libc::mincore(memory.cast(), CHUNK, resident.as_mut_ptr()), 0);
            }
            resident.iter().any(|page| page & 1 != 0)
        };
        // SAFETY: the child takes no lock that another thread may have held, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let outcome = std::panic::catch_unwind(fills);
            // SAFETY: ends the child.
            unsafe { libc::_exit(outcome.map_or(2, i32::from)) };
        }
        let mut status = -1;
        // SAFETY: the status is live.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    // Catches: a block that returns to another allocator than its own, and contents lost in a move.
    #[test]
    fn blocks_of_the_reserve_are_freed_and_moved() {
        let small = layout(100, 8);
        let block = take(small);
        assert!(!block.is_null() && owner(block).is_some());
        // SAFETY: a block of this layout, which is moved and then freed.
        unsafe {
            block.write_bytes(7, 100);
            let moved = ALLOCATOR.realloc(block, small, 5000);
            assert!(owner(moved).is_none(), "the system has memory");
            assert!(std::slice::from_raw_parts(moved, 100).iter().all(|&byte| byte == 7));
            ALLOCATOR.dealloc(moved, layout(5000, 8));
        }
        assert!(!is_low());
    }
}
