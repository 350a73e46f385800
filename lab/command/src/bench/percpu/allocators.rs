//! The single-threaded loops, generic over the allocator.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use uwork::percpu::Cache;
use uwork_capi::{
    UwPercpuCache, uw_percpu_cache_alloc, uw_percpu_cache_create, uw_percpu_cache_free,
};
use uwork_rivals::alloc::{Allocator, OBJECT};

/// Sixty-four bytes, with the alignment of `malloc`.
#[repr(align(16))]
pub(super) struct Object(#[allow(dead_code, reason = "for its size")] [u8; OBJECT]);

/// uwork's cache.
pub(super) struct PerCpuCache(Cache<Object>);

impl PerCpuCache {
    pub(super) fn new() -> Self {
        Self(Cache::new("bench"))
    }
}

impl Allocator for PerCpuCache {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        self.0.alloc_raw().as_ptr().cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: by this function's contract; no allocation is null.
        unsafe { self.0.free_raw(NonNull::new_unchecked(object.cast())) };
    }
}

/// uwork's cache through the C interface, called as in a shared library.
pub(super) struct ThroughC {
    cache: *mut UwPercpuCache,
    alloc: unsafe extern "C" fn(*mut UwPercpuCache) -> *mut c_void,
    free: unsafe extern "C" fn(*mut UwPercpuCache, *mut c_void),
}

// SAFETY: all threads may use a cache (uwork.h).
unsafe impl Sync for ThroughC {}

impl ThroughC {
    pub(super) fn new() -> Self {
        // SAFETY: the name is a valid C string.
        let cache = unsafe { uw_percpu_cache_create(c"bench".as_ptr(), OBJECT, 16) };
        let (alloc, free) = (uw_percpu_cache_alloc, uw_percpu_cache_free);
        // Hides the functions from the compiler, so that they are not inlined.
        Self { cache, alloc: black_box(alloc), free: black_box(free) }
    }
}

impl Allocator for ThroughC {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: a valid cache.
        unsafe { (self.alloc)(self.cache).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: a valid cache, and by this function's contract an object of it.
        unsafe { (self.free)(self.cache, object.cast()) };
    }
}

/// Number of allocations that are kept.
pub(super) fn kept(quick: bool) -> usize {
    if quick { 900_000 } else { 9_000_000 }
}

/// Operations in a round. The fastest round counts, because it was not interrupted.
const IN_A_ROUND: u64 = 100_000;
/// Few in a debug build, whose figures are meaningless.
const ROUNDS: usize = if cfg!(debug_assertions) { 10 } else { 200 };

/// A duration, and the number of operations in it.
pub(super) type Timed = (Duration, u64);

/// How kept objects are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// They are only allocated.
    No,
    /// The first word of each object is written.
    Write,
    /// As `Write`, after all objects were allocated, written and freed once, so that no new memory
    /// is needed.
    Again,
}

/// Allocates objects and keeps them until all are allocated. Freeing them is not timed.
pub(super) fn keep(allocator: &impl Allocator, count: usize, touch: Touch) -> Timed {
    // Written once, so that its pages exist.
    let mut objects = vec![std::ptr::dangling_mut::<u8>(); count];
    black_box(&mut objects);
    if touch == Touch::Again {
        fill(allocator, &mut objects, true);
        free(allocator, &objects);
    }
    let start = Instant::now();
    fill(allocator, &mut objects, touch != Touch::No);
    let taken = start.elapsed();
    free(allocator, &objects);
    (taken, count as u64)
}

#[inline(always)]
fn fill(allocator: &impl Allocator, objects: &mut [*mut u8], write: bool) {
    if write {
        for place in objects {
            *place = allocator.alloc();
            // SAFETY: just allocated, large enough and aligned.
            unsafe { place.cast::<u64>().write(1) };
        }
    } else {
        for place in objects {
            *place = allocator.alloc();
        }
    }
}

fn free(allocator: &impl Allocator, objects: &[*mut u8]) {
    for &object in objects {
        // SAFETY: allocated by the caller, freed once.
        unsafe { allocator.free(object) };
    }
}

/// Allocates and frees an object repeatedly.
pub(super) fn pairs(allocator: &impl Allocator) -> Timed {
    // SAFETY: just allocated, freed once.
    fastest_round(|| unsafe { allocator.free(black_box(allocator.alloc())) }).0
}

/// Repeats an operation. Returns the fastest round, and the total number of operations.
#[inline(always)]
pub(super) fn fastest_round(operation: impl Fn()) -> (Timed, u64) {
    let round = || {
        let start = Instant::now();
        (0..IN_A_ROUND).for_each(|_| operation());
        start.elapsed()
    };
    let fastest = (0..ROUNDS).map(|_| round()).min().expect("some rounds");
    ((fastest, IN_A_ROUND), IN_A_ROUND * ROUNDS as u64)
}
