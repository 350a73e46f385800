//! The memory of an item that has a shadow: a pattern that is lost when the memory is freed or
//! overwritten.

use std::ffi::c_void;
use std::ptr::NonNull;

use uwork::foreign::{DEFERRABLE_OFFSET, FUNCTION_OFFSET, IDLE_PLACEMENT};

use crate::item::UwWork;

const WORD: usize = size_of::<usize>();
const WORDS: usize = size_of::<UwWork>() / WORD;
const FUNCTION: usize = FUNCTION_OFFSET / WORD;
const PATTERN: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;
/// The word that says whether a delayed item is deferrable.
const DEFERRABLE: usize = DEFERRABLE_OFFSET / WORD;

/// The expected content of an item's memory, by word.
fn expected(address: usize, func: usize) -> [usize; WORDS] {
    let mut words = [PATTERN ^ address; WORDS];
    words[FUNCTION] = func;
    words
}

/// What the memory of an item without a shadow contains.
#[derive(PartialEq, Eq)]
pub(super) enum Look {
    /// The content that a static initialiser of uwork.h leaves.
    Fresh,
    /// The pattern of an item at this other address.
    Copy(usize),
    Unknown,
}

/// Classifies the memory of an item.
pub(super) fn look(item: NonNull<UwWork>) -> Look {
    let Some(words) = read::<WORDS>(item.as_ptr().addr()) else { return Look::Unknown };
    let [first, second, third, func, last] = words;
    let idle = [first, second, third] == [0; 3] && last as u64 == IDLE_PLACEMENT;
    match () {
        () if idle && func != 0 => Look::Fresh,
        () if first != 0 && [second, third, last] == [first; 3] => Look::Copy(PATTERN ^ first),
        () => Look::Unknown,
    }
}

/// Whether a statically initialised delayed item is deferrable.
pub(super) fn is_deferrable(item: NonNull<UwWork>) -> bool {
    // SAFETY: the word is within a delayed item.
    unsafe { item.cast::<usize>().add(DEFERRABLE).read() != 0 }
}

/// Writes the pattern.
pub(super) fn write(item: NonNull<UwWork>, func: usize) {
    let words = expected(item.as_ptr().addr(), func);
    // SAFETY: the item, which only the initialising thread uses.
    unsafe { item.cast::<[usize; WORDS]>().write(words) };
}

/// Describes the damage of an item's memory; `None` if it is intact.
pub(super) fn damage(address: usize, func: usize) -> Option<&'static str> {
    match read(address) {
        None => Some("its memory no longer exists"),
        Some(words) if words == expected(address, func) => None,
        Some(_) => Some("its memory was freed or overwritten"),
    }
}

/// Reads the memory at `address`, which may be unmapped. The system call reports that instead of a
/// fault.
fn read<const N: usize>(address: usize) -> Option<[usize; N]> {
    let mut words = [0; N];
    let bytes = size_of_val(&words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address),
        iov_len: bytes,
    };
    // SAFETY: the call writes to `words` only.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    if count == bytes as isize {
        return Some(words);
    }
    // SAFETY: the thread's own errno.
    if count >= 0 || unsafe { *libc::__errno_location() } == libc::EFAULT {
        return None;
    }
    // A sandbox may forbid that system call. Then an access to unmapped memory ends the process
    // without a message.
    let at = std::ptr::with_exposed_provenance::<usize>(address);
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: the program guarantees that the item exists (uwork.h).
        *word = unsafe { at.add(index).read_volatile() };
    }
    Some(words)
}
