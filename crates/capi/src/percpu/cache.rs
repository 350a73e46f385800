//! A cache of objects, with a magazine for each CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use uwork::foreign::{Capacity, RawCache, Source, capacity};

use super::{count, made, nothing, there};
use crate::error::{fail, guarded, misuse};

/// The cache.
pub struct UwPercpuCache {
    raw: RawCache,
    capacity: Capacity,
    name: String,
    size: usize,
}

/// `struct uw_percpu_cache_stats`.
#[repr(C)]
pub struct UwPercpuCacheStats {
    /// Objects in all of its memory.
    pub objects: usize,
    /// How many of these objects are allocated.
    pub out: usize,
    /// How many free objects are in the magazines of CPUs.
    pub in_magazines: usize,
    /// Memory taken from the system.
    pub bytes: usize,
}

/// The alignment of `malloc`.
const ALIGN: usize = 16;

/// Creates a cache, without memory for objects yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_create(
    name: *const c_char,
    size: usize,
    align: usize,
) -> *mut UwPercpuCache {
    made(|| {
        if name.is_null() {
            return Err(misuse(libc::EINVAL, "the name is NULL"));
        }
        if size == 0 {
            return Err(fail(libc::EINVAL, "an object has at least 1 byte"));
        }
        let align = if align == 0 { ALIGN } else { align };
        if !align.is_power_of_two() {
            let text = format!("objects aligned to {align}: a power of 2, or 0 as malloc does");
            return Err(fail(libc::EINVAL, text));
        }
        // A chunk must have room for several objects.
        let most = (isize::MAX as usize / 2).saturating_sub(align);
        let layout = Layout::from_size_align(size, align).ok().filter(|_| size <= most);
        let layout = layout.ok_or_else(|| {
            let text = format!("no memory for objects of {size} bytes, aligned to {align}");
            fail(libc::ENOMEM, text)
        })?;
        // SAFETY: a text (uwork.h).
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: its functions are for any thread.
        let raw = unsafe { RawCache::from(layout, SYSTEM) };
        Ok(UwPercpuCache { raw, capacity: capacity(size), name, size })
    })
}

/// The system's allocator: the reserve is for calls that cannot fail.
const SYSTEM: Source = {
    unsafe extern "C" fn alloc(_: *mut c_void, size: usize, align: usize) -> *mut u8 {
        // SAFETY: a cache asks for memory of a size that is not 0.
        let get = |layout| unsafe { System.alloc(layout) };
        Layout::from_size_align(size, align).map_or(null_mut(), get)
    }
    unsafe extern "C" fn free(_: *mut c_void, memory: *mut u8, _: usize) {
        // SAFETY: from the system's allocator, by the caller.
        unsafe { libc::free(memory.cast()) };
    }
    Source { context: null_mut(), alloc, free }
};

/// Memory for an object, uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_alloc(cache: *mut UwPercpuCache) -> *mut c_void {
    // SAFETY: by uwork.h.
    let cache = match unsafe { there(cache) } {
        Ok(cache) => cache,
        Err(code) => return nothing(code),
    };
    match cache.raw.alloc(cache.capacity) {
        Some(object) => object.as_ptr().cast(),
        None => {
            let text = format!("no memory for {} bytes of cache {:?}", cache.size, cache.name);
            nothing(fail(libc::ENOMEM, text))
        }
    }
}

/// Frees an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_free(cache: *mut UwPercpuCache, object: *mut c_void) {
    // SAFETY: by uwork.h.
    if let (Some(object), Ok(cache)) = (NonNull::new(object), unsafe { there(cache) }) {
        // SAFETY: from this cache, and freed once (uwork.h).
        unsafe { cache.raw.free(object.cast(), cache.capacity) };
    }
}

/// Moves the free objects of all magazines to the depot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_flush_all(cache: *mut UwPercpuCache) -> i64 {
    // SAFETY: by uwork.h.
    let flushed = unsafe { there(cache) }.and_then(|cache| guarded(|| cache.raw.flush_all()));
    flushed.map_or_else(i64::from, count)
}

/// The same, and returns memory to the system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_shrink(cache: *mut UwPercpuCache) -> i64 {
    // SAFETY: by uwork.h.
    let shrunk = unsafe { there(cache) }.and_then(|cache| guarded(|| cache.raw.shrink()));
    shrunk.map_or_else(i64::from, count)
}

/// The cache's statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_stats(
    cache: *const UwPercpuCache,
    stats: *mut UwPercpuCacheStats,
) -> c_int {
    // SAFETY: by uwork.h.
    match (unsafe { there(cache) }, stats.is_null()) {
        (Ok(cache), false) => {
            let now = cache.raw.stats();
            let now = UwPercpuCacheStats {
                objects: now.objects,
                out: now.out,
                in_magazines: now.in_magazines,
                bytes: now.bytes,
            };
            // SAFETY: not null, and a valid place for the statistics (uwork.h).
            unsafe { stats.write(now) };
            0
        }
        (Ok(_), true) => misuse(libc::EINVAL, "the pointer for the statistics is NULL"),
        (Err(code), _) => code,
    }
}

/// Returns all memory to the system and frees the cache, unless objects are allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cache_destroy(cache: *mut UwPercpuCache) -> c_int {
    // SAFETY: from `uw_percpu_cache_create`; no other thread uses it any more (uwork.h).
    let Some(known) = (unsafe { cache.as_mut() }) else {
        return misuse(libc::EINVAL, "the handle is NULL");
    };
    let out = match guarded(|| known.raw.gather()) {
        Ok(out) => out,
        Err(code) => return code,
    };
    if out > 0 {
        let text =
            format!("{out} object(s) of cache {:?} are allocated: free them first", known.name);
        return fail(libc::EBUSY, text);
    }
    // SAFETY: as above; freed once.
    drop(unsafe { Box::from_raw(cache) });
    0
}
