//! The clocks of the benchmark, in nanoseconds, and the sleep until a time.

use std::{mem, ptr};

const NS_PER_S: u64 = 1_000_000_000;

/// The time since some point in the past.
pub(super) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread.
pub(in crate::bench) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time of this process.
pub(in crate::bench) fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    // SAFETY: all-zero bytes are a valid timespec, which is plain integers.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live timespec. Linux has all three clocks, so the call succeeds.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// Sleeps until this time of [`now_ns`]. May return early after a signal.
pub(super) fn sleep_until(ns: u64) {
    // SAFETY: as in `read`.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    time.tv_sec = (ns / NS_PER_S) as libc::time_t;
    time.tv_nsec = (ns % NS_PER_S) as _;
    // SAFETY: the time is live and valid, and the remaining time is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            ptr::null_mut(),
        )
    };
}

/// Removes the timer slack of the calling thread: 50 us by default, by which its sleeps may be
/// late.
pub(super) fn sleep_precisely() {
    // The least: 0 would restore the default.
    let slack_ns: libc::c_ulong = 1;
    // SAFETY: no pointers; the setting affects the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}
