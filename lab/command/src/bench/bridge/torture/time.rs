//! The time of records and disturbances: the monotonic clock, which all processes share and no step
//! of a server's clock moves.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since the machine started.
pub(in super::super) fn now_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live, and this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// The time of this clock at a time of the system's. None before the machine started.
pub(in super::super) fn from_unix_ms(ms: u64) -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_millis(ms)).ok()?;
    now_us().checked_sub(u64::try_from(since.as_micros()).ok()?)
}
