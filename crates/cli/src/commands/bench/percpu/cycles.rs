//! How many cycles of the core a piece of time has: by a chain of additions, of which a core does one in a cycle.

use std::arch::asm;
use std::time::{Duration, Instant};

/// Additions of one measurement: some tens of microseconds, which often pass without an interruption.
const CHAIN: u64 = 80_000;
const TRIES: u32 = 300;

/// Cycles in a nanosecond, at the speed that the core has now.
pub(super) fn per_nanosecond() -> f64 {
    let fastest = (0..TRIES).map(|_| chain()).min().unwrap_or(Duration::from_nanos(1));
    CHAIN as f64 / fastest.as_nanos() as f64
}

fn chain() -> Duration {
    let start = Instant::now();
    let mut left = CHAIN;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: arithmetic on two registers.
    unsafe {
        asm!(
            "2:",
            "add {sum}, 1", "add {sum}, 1", "add {sum}, 1", "add {sum}, 1",
            "add {sum}, 1", "add {sum}, 1", "add {sum}, 1", "add {sum}, 1",
            "sub {left}, 8",
            "jnz 2b",
            sum = out(reg) _,
            left = inout(reg) left,
            options(nomem, nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: arithmetic on two registers.
    unsafe {
        asm!(
            "2:",
            "add {sum}, {sum}, #1", "add {sum}, {sum}, #1", "add {sum}, {sum}, #1", "add {sum}, {sum}, #1",
            "add {sum}, {sum}, #1", "add {sum}, {sum}, #1", "add {sum}, {sum}, #1", "add {sum}, {sum}, #1",
            "subs {left}, {left}, #8",
            "b.ne 2b",
            sum = out(reg) _,
            left = inout(reg) left,
            options(nomem, nostack)
        );
    }
    std::hint::black_box(left);
    start.elapsed()
}
