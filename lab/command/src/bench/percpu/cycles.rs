//! Converts time to core cycles, with a chain of dependent additions: a core executes one of them
//! per cycle.

use std::arch::asm;
use std::time::{Duration, Instant};

/// Additions of one measurement: some tens of microseconds, short enough to complete often without
/// an interruption.
const CHAIN: u64 = 80_000;
/// Additions in one iteration of the loop. The loop's own instructions execute in parallel with
/// them.
const UNROLLED: u64 = 16;
/// Few in a debug build, whose figures are meaningless.
const TRIES: u32 = if cfg!(debug_assertions) { 10 } else { 300 };

/// Cycles per nanosecond at the current clock frequency.
pub(super) fn per_nanosecond() -> f64 {
    let fastest = (0..TRIES).map(|_| chain()).min().unwrap_or(Duration::from_nanos(1));
    CHAIN as f64 / fastest.as_nanos() as f64
}

fn chain() -> Duration {
    let start = Instant::now();
    let mut sum = 0_u64;
    for _ in 0..CHAIN / UNROLLED {
        for _ in 0..UNROLLED {
            sum = sum.wrapping_add(1);
            // SAFETY: the assembly is empty. The compiler must assume that it changes the sum, so
            // it cannot merge the additions, and each depends on the previous one.
            unsafe { asm!("/* {sum} */", sum = inout(reg) sum, options(nomem, nostack)) };
        }
    }
    std::hint::black_box(sum);
    start.elapsed()
}
