//! How many cycles of the core a piece of time has: by a chain of additions, of which a core does one in a cycle.

use std::arch::asm;
use std::time::{Duration, Instant};

/// Additions of one measurement: some tens of microseconds, which often pass without an interruption.
const CHAIN: u64 = 80_000;
/// Of these, in one turn of the loop, whose own instructions are done beside them.
const UNROLLED: u64 = 16;
const TRIES: u32 = 300;

/// Cycles in a nanosecond, at the speed that the core has now.
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
            // SAFETY: nothing at all. To the compiler it makes another number of the sum, so that each addition is done
            // by itself, after the one before.
            unsafe { asm!("/* {sum} */", sum = inout(reg) sum, options(nomem, nostack)) };
        }
    }
    std::hint::black_box(sum);
    start.elapsed()
}
