//! Allocators of small objects: what per-CPU caches are compared with.
//!
//! The system-wide ones are called by their own functions; none becomes this process's allocator.

mod bare;
mod lists;
mod spin;
mod thread_local;

pub use bare::Bare;
pub use lists::BareLists;
pub use spin::SpinLock;
pub use thread_local::ThreadLocal;

/// Bytes of an object: seed 001's.
pub const OBJECT: usize = 64;

/// Allocates objects of [`OBJECT`] bytes, aligned to 16.
pub trait Allocator: Sync {
    /// An object, uninitialized.
    fn alloc(&self) -> *mut u8;

    /// Frees it.
    ///
    /// # Safety
    /// From [`Allocator::alloc`] of this one, and freed once.
    unsafe fn free(&self, object: *mut u8);
}

/// The C library's `malloc`.
pub struct Glibc;

impl Allocator for Glibc {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { libc::malloc(OBJECT) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { libc::free(object.cast()) };
    }
}

/// mimalloc.
pub struct Mimalloc;

impl Allocator for Mimalloc {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { libmimalloc_sys::mi_malloc(OBJECT) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { libmimalloc_sys::mi_free(object.cast()) };
    }
}

/// jemalloc.
pub struct Jemalloc;

impl Allocator for Jemalloc {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { tikv_jemalloc_sys::malloc(OBJECT) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: by this function's contract.
        unsafe { tikv_jemalloc_sys::free(object.cast()) };
    }
}
