//! The loops of one thread, over any allocator.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use uwork::percpu::Cache;
use uwork_capi::{
    UwPercpuCache, uw_percpu_cache_alloc, uw_percpu_cache_create, uw_percpu_cache_free,
};
use uwork_rivals::alloc::{Allocator, OBJECT};

/// Sixty-four bytes, aligned as `malloc` does.
#[repr(align(16))]
pub(super) struct Object(#[allow(dead_code, reason = "for its size")] [u8; OBJECT]);

/// uwork's.
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

/// The same through the C interface, called as a program calls a shared library.
pub(super) struct ThroughC {
    cache: *mut UwPercpuCache,
    alloc: unsafe extern "C" fn(*mut UwPercpuCache) -> *mut c_void,
    free: unsafe extern "C" fn(*mut UwPercpuCache, *mut c_void),
}

// SAFETY: a cache is for all threads (uwork.h).
unsafe impl Sync for ThroughC {}

impl ThroughC {
    pub(super) fn new() -> Self {
        // SAFETY: the name is a text.
        let cache = unsafe { uw_percpu_cache_create(c"bench".as_ptr(), OBJECT, 16) };
        let (alloc, free) = (uw_percpu_cache_alloc, uw_percpu_cache_free);
        // So that they are called.
        Self { cache, alloc: black_box(alloc), free: black_box(free) }
    }
}

impl Allocator for ThroughC {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: a cache.
        unsafe { (self.alloc)(self.cache).cast() }
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: a cache; by this function's contract, an object of it.
        unsafe { (self.free)(self.cache, object.cast()) };
    }
}

/// Allocations that are kept.
pub(super) fn kept(quick: bool) -> usize {
    if quick { 900_000 } else { 9_000_000 }
}

/// Operations in one round, and rounds: the fastest counts, as one without an interruption.
const IN_A_ROUND: u64 = 100_000;
const ROUNDS: usize = 200;

/// Time, and how many operations it is for.
pub(super) type Timed = (Duration, u64);

/// What is done with objects that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// They are given out, no more.
    No,
    /// The first word of each is written.
    Write,
    /// The same, and all of them were allocated, written and freed once before: no memory comes from the system.
    Again,
}

/// Allocates, keeps everything until all is allocated, and frees it, which is not timed.
pub(super) fn keep(allocator: &impl Allocator, count: usize, touch: Touch) -> Timed {
    // Written once, so that its own pages are there.
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
            // SAFETY: allocated just now, large enough and aligned.
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
        // SAFETY: allocated by our caller, freed once.
        unsafe { allocator.free(object) };
    }
}

/// Allocates and frees, over and over.
pub(super) fn pairs(allocator: &impl Allocator) -> Timed {
    // SAFETY: allocated just now, freed once.
    fastest_round(|| unsafe { allocator.free(black_box(allocator.alloc())) }).0
}

/// Does something over and over. The fastest round, and how often it was done in all.
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
