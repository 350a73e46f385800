//! Memory directly from the system, for code that must not call the allocator.

use std::ptr::NonNull;

use super::fatal::{self, Errno};

/// Fresh memory, aligned to a page; `None` if there is none.
pub(super) fn try_map(bytes: usize) -> Option<NonNull<u8>> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the system chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED)
}

/// As [`try_map`], for a fork, which cannot fail.
pub(super) fn map(bytes: usize) -> NonNull<u8> {
    try_map(bytes).unwrap_or_else(|| {
        let error = Errno(fatal::errno());
        fatal::abort(format_args!("no {bytes} bytes of memory for the time of a fork: {error}"))
    })
}

/// Unmaps memory.
///
/// # Safety
/// `pages` is from [`map`] or [`try_map`] with the same `bytes`, and no longer used.
pub(super) unsafe fn unmap(pages: NonNull<u8>, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { libc::munmap(pages.as_ptr().cast(), bytes) };
}
