//! Allocators of small objects, to compare per-CPU caches with.
//!
//! The system-wide allocators are called by their own functions; none replaces this process's
//! allocator.

mod bare;
#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(not(feature = "jemalloc"))]
#[path = "jemalloc/disabled.rs"]
mod jemalloc;
mod lists;
mod spin;
mod thread_local;

pub use bare::Bare;
pub use jemalloc::Jemalloc;
pub use lists::BareLists;
pub use spin::SpinLock;
pub use thread_local::ThreadLocal;

/// The size of an object in bytes, the same as in seed 001.
pub const OBJECT: usize = 64;

/// Allocates objects of [`OBJECT`] bytes, aligned to 16.
pub trait Allocator: Sync {
    /// Allocates an uninitialized object.
    fn alloc(&self) -> *mut u8;

    /// Frees the object.
    ///
    /// # Safety
    /// The object comes from [`Allocator::alloc`] of this allocator, and is freed only once.
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
