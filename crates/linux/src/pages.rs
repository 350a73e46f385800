//! Memory directly from the system, for code that must not call the allocator.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fatal::{self, Errno};

/// Fresh memory, aligned to a page; `None` if there is none.
pub(super) fn try_map(bytes: usize) -> Option<NonNull<u8>> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address that the system chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED)
}

/// What a fork may take where the system gives no memory: `RLIMIT_AS` and strict overcommit refuse new
/// mappings, but not the fork itself. Part of the program's image, and not resident until it is used.
const RESERVE_BYTES: usize = 4 << 20;

#[repr(align(4096))]
struct Reserve(UnsafeCell<MaybeUninit<[u8; RESERVE_BYTES]>>);

// SAFETY: its bytes belong to the callers of `map`, each to one.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new(MaybeUninit::uninit()));
/// Its bytes from the start that are in use. One fork at a time takes some, and frees the last ones
/// first.
static USED: AtomicUsize = AtomicUsize::new(0);

/// As [`try_map`], for a fork, which cannot fail: else from the reserve.
pub(super) fn map(bytes: usize) -> NonNull<u8> {
    try_map(bytes).or_else(|| reserved(bytes)).unwrap_or_else(|| {
        let error = Errno(fatal::errno());
        fatal::abort(format_args!("no {bytes} bytes of memory for the time of a fork: {error}"))
    })
}

/// `bytes` is a multiple of the page size.
fn reserved(bytes: usize) -> Option<NonNull<u8>> {
    let start = USED.load(Ordering::Relaxed);
    if bytes > RESERVE_BYTES - start {
        return None;
    }
    USED.store(start + bytes, Ordering::Relaxed);
    // SAFETY: within the reserve.
    NonNull::new(unsafe { RESERVE.0.get().cast::<u8>().add(start) })
}

/// Unmaps memory.
///
/// # Safety
/// `pages` is from [`map`] or [`try_map`] with the same `bytes`, and no longer used.
pub(super) unsafe fn unmap(pages: NonNull<u8>, bytes: usize) {
    let start = pages.addr().get().wrapping_sub(RESERVE.0.get().addr());
    if start < RESERVE_BYTES {
        USED.store(start, Ordering::Relaxed);
        return;
    }
    // SAFETY: by this function's contract.
    unsafe { libc::munmap(pages.as_ptr().cast(), bytes) };
}
