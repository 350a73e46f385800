//! The user's memory of an item that has a shadow: a pattern that goes when the memory does.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use uwork::foreign;

use crate::item::{SHADOWED, UwWork, WORK_OFFSET, slot};

const WORDS: usize = size_of::<UwWork>() / size_of::<usize>();
const SLOT: usize = (WORK_OFFSET + foreign::FUNCTION_OFFSET) / size_of::<usize>();
const PATTERN: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;

/// What an item's memory is, by word.
fn expected(address: usize, func: usize) -> [usize; WORDS] {
    let mut words = [PATTERN ^ address; WORDS];
    words[0] = func;
    words[SLOT] = SHADOWED;
    words
}

/// Writes the pattern. The mark goes last: others wait for it.
pub(super) fn write(item: NonNull<UwWork>, func: usize) {
    let words = expected(item.as_ptr().addr(), func);
    let at = item.cast::<usize>();
    for (index, word) in words.iter().enumerate().skip(1).filter(|(index, _)| *index != SLOT) {
        // SAFETY: within the item, which its maker alone uses.
        unsafe { at.add(index).write(*word) };
    }
    // SAFETY: as above.
    unsafe { slot(item) }.store(SHADOWED, Ordering::Release);
}

/// What is wrong with the memory of an item, if something is.
pub(super) fn damage(address: usize, func: usize) -> Option<&'static str> {
    match read(address) {
        None => Some("its memory is not there any more"),
        Some(words) if words == expected(address, func) => None,
        Some(_) => Some("its memory was freed or overwritten"),
    }
}

/// What is at `address`, which may not be there. The system reads it, which says so.
fn read(address: usize) -> Option<[usize; WORDS]> {
    let mut words = [0; WORDS];
    let bytes = size_of_val(&words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address),
        iov_len: bytes,
    };
    // SAFETY: writes to `words` only.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    if count == bytes as isize {
        return Some(words);
    }
    // SAFETY: the thread's own.
    if count >= 0 || unsafe { *libc::__errno_location() } == libc::EFAULT {
        return None;
    }
    // A sandbox does not allow that call. Then memory that is gone ends the process without words.
    let at = std::ptr::with_exposed_provenance::<usize>(address);
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: the user says that the item is there (uwork.h).
        *word = unsafe { at.add(index).read_volatile() };
    }
    Some(words)
}
