//! The namespace of the process's clock: records of the system's have the time of the system's own
//! `CLOCK_MONOTONIC`, and the process's can be ahead of that or behind it.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::small_files::read;

/// The last known offset.
static KNOWN: AtomicU64 = AtomicU64::new(0);

/// How far the process's `CLOCK_MONOTONIC` is ahead of the system's, in nanoseconds, wrapping. It is
/// constant for a process; a forked child can have another one. Takes some microseconds.
///
/// The file has the offsets that the process's children will have. After an `unshare` these are others:
/// then the last known one, 0 at first, stays.
pub(crate) fn ahead_ns() -> u64 {
    let own = namespace(c"/proc/thread-self/ns/time");
    if own.is_some() && own == namespace(c"/proc/thread-self/ns/time_for_children") {
        let mut text = [0; 256];
        let length = read(c"/proc/thread-self/timens_offsets", &mut text);
        if let Some(offset) = length.and_then(|length| monotonic_of(&text[..length])) {
            KNOWN.store(offset, Ordering::Relaxed);
        }
    }
    KNOWN.load(Ordering::Relaxed)
}

/// What tells a namespace from others. `None` before Linux 5.6, and without `/proc`.
fn namespace(path: &CStr) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path and the structure are live; the call fills it if it succeeds.
    unsafe {
        (libc::stat(path.as_ptr(), stat.as_mut_ptr()) == 0).then(|| {
            let stat = stat.assume_init();
            (stat.st_dev, stat.st_ino)
        })
    }
}

/// The line `monotonic SECONDS NANOSECONDS`, of which the first number may be negative.
fn monotonic_of(text: &[u8]) -> Option<u64> {
    let line =
        std::str::from_utf8(text).ok()?.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut words = line.split_whitespace();
    let seconds: i64 = words.next()?.parse().ok()?;
    let ns: i64 = words.next()?.parse().ok()?;
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(ns).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_that_of_the_monotonic_clock() {
        let of = |seconds: i64, ns: i64| Some((seconds * 1_000_000_000 + ns).cast_unsigned());
        for (text, offset) in [
            ("monotonic           0         0\nboottime            0         0\n", Some(0)),
            ("monotonic        -100       500\nboottime            7         0\n", of(-100, 500)),
            (
                "boottime            7         0\nmonotonic    86400000 999999999\n",
                of(86_400_000, 999_999_999),
            ),
            ("boottime            7         0\n", None),
            ("", None),
            ("monotonic 1\n", None),
        ] {
            assert_eq!(monotonic_of(text.as_bytes()), offset, "{text}");
        }
    }
}
