//! The size of the stacks of the library's threads.
//!
//! By default it is the one that a plain thread gets from the C library: `ulimit -s` at the start of
//! the program. The size of a thread that runs items is the program's choice. Other threads of the
//! library have at least [`SERVICE`] bytes.

use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sizes that may be chosen: enough for the library's own frames, and what an address space has.
pub const STACK_SIZES: RangeInclusive<usize> = 128 << 10..=1 << 40;
/// The same as text.
pub const STACK_SIZES_TEXT: &str = "131072 (128K) to 1099511627776 (1024G) bytes";

/// The least stack of a thread that runs no items.
const SERVICE: usize = 2 << 20;

/// The chosen size; 0: none was chosen.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Sets the size for threads that start from now on.
pub(crate) fn choose(size: usize) {
    CHOSEN.store(size, Ordering::Relaxed);
}

/// The size for a thread that starts now.
pub(crate) fn of_thread(runs_items: bool) -> usize {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    let size = if chosen == 0 { default().max(rust_minimum()) } else { chosen };
    if runs_items { size.max(*STACK_SIZES.start()) } else { size.max(SERVICE) }
}

/// The size of a thread that the C library creates without a choice. Glibc takes `ulimit -s` of the
/// program's start, and 2 MiB if that is unlimited.
fn default() -> usize {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut size = 0;
    // SAFETY: initialised, read and destroyed, in this order; the result is live.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    size
}

/// The least stack of the threads of a Rust program, `RUST_MIN_STACK`. 0 if it is not set. Read once, as
/// the standard library does: a program in C may change its environment later.
fn rust_minimum() -> usize {
    static MINIMUM: OnceLock<usize> = OnceLock::new();
    let read = || std::env::var("RUST_MIN_STACK").ok()?.parse().ok();
    *MINIMUM.get_or_init(|| read().unwrap_or(0))
}

/// A permitted size: a number of bytes, or of the unit `K`, `M` or `G` that follows it.
pub(crate) fn parse(text: &str) -> Option<usize> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let size = number.parse::<usize>().ok().filter(|_| is_number)?.checked_mul(1 << shift)?;
    STACK_SIZES.contains(&size).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let read = ["131072", "128K", "64M", "1024G", "1099511627776"].map(parse);
        assert_eq!(read, [128 << 10, 128 << 10, 64 << 20, 1 << 40, 1 << 40].map(Some));
        let refused = [
            "",
            "0",
            "131071",
            "127K",
            "1025G",
            "8 M",
            "8m",
            "8MB",
            "+8M",
            "K",
            "99999999999999999999",
        ];
        assert_eq!(refused.map(parse), [None; 11]);
    }
}
