//! The caches behind `kmalloc` and `kmem_cache_alloc`. What an object looks like, and where memory
//! comes from, is in `kernel/src/slab.c`.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use uwork::foreign::{Capacity, RawCache, Source, capacity};

use crate::error::guarded;
use crate::memory::has_reserve;

/// A cache with memory from C.
pub(crate) struct UwSlab {
    raw: RawCache,
    capacity: Capacity,
}

/// Creates a cache. NULL if there is no memory, or no such layout.
///
/// # Safety
/// `source` is as [`RawCache::from`] requires.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_slab_create(
    size: usize,
    align: usize,
    source: Source,
) -> *mut UwSlab {
    if has_reserve().is_err() {
        return null_mut();
    }
    let create = || {
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: by this function's contract.
        let raw = unsafe { RawCache::from(layout, source) };
        Some(Box::into_raw(Box::new(UwSlab { raw, capacity: capacity(size) })))
    };
    guarded(create).ok().flatten().unwrap_or(null_mut())
}

/// Memory for an object, uninitialised. NULL if there is none.
///
/// # Safety
/// `slab` is from `uw_slab_create`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_slab_alloc(slab: *const UwSlab) -> *mut c_void {
    // SAFETY: by this function's contract.
    let slab = unsafe { &*slab };
    slab.raw.alloc(slab.capacity).map_or(null_mut(), |object| object.as_ptr().cast())
}

/// Frees an object.
///
/// # Safety
/// `slab` is from `uw_slab_create`. The object is from this cache, and is not in use.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_slab_free(slab: *const UwSlab, object: NonNull<c_void>) {
    // SAFETY: by this function's contract.
    let slab = unsafe { &*slab };
    // SAFETY: as above.
    unsafe { slab.raw.free(object.cast(), slab.capacity) };
}

/// Returns unused memory to its source. The number of bytes.
///
/// # Safety
/// `slab` is from `uw_slab_create`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_slab_shrink(slab: *const UwSlab) -> usize {
    // SAFETY: by this function's contract.
    let slab = unsafe { &*slab };
    guarded(|| slab.raw.shrink()).ok().and_then(Result::ok).unwrap_or(0)
}

/// Frees the cache, unless objects are allocated. The number of these objects.
///
/// # Safety
/// `slab` is from `uw_slab_create`, and no other thread uses it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn uw_slab_destroy(slab: *mut UwSlab) -> usize {
    // SAFETY: by this function's contract.
    let out = unsafe { &mut *slab }.raw.gather();
    if out == 0 {
        // SAFETY: from `Box::into_raw`; freed once.
        drop(unsafe { Box::from_raw(slab) });
    }
    out
}

/// Whether each object is an allocation of the system's allocator, so that tools which watch that
/// allocator see it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn uw_slab_is_watched() -> c_int {
    c_int::from(crate::debug::is_on())
}
