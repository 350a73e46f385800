//! Computing for a given CPU time.
//!
//! An item counts the CPU time of its thread, not the time on the clock: a preempted item computes
//! as long as an undisturbed one. It does not count steps either: two hardware threads of one core
//! take up to twice as long for a step when both are busy, so a load of 60 % would become a load of
//! more, and the computed limit would be that of another load.
//!
//! A read of the thread's CPU clock is a system call of some 0.3 us, so an item computes for half
//! of the remaining time between two reads: an item of 20 us reads the clock about seven times. The
//! call is a part of the item's time.

use std::hint;

use super::clock;

/// Steps in one call of [`steps`] of the calibration: about 50 us on a CPU of 2020.
const CALIBRATION_STEPS: u64 = 30_000;
const CALIBRATION_ROUNDS: usize = 20;

/// The speed of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    /// When nothing else uses the core.
    steps_per_us: u64,
    /// The CPU time of a read of the clock.
    read_ns: u64,
}

impl Spin {
    /// Measures the machine, which takes milliseconds.
    pub(super) fn calibrate() -> Self {
        let fastest = |run: &dyn Fn()| {
            let once = |_| {
                let begin = clock::thread_cpu_ns();
                run();
                clock::thread_cpu_ns() - begin
            };
            (0..CALIBRATION_ROUNDS).map(once).min().expect("at least one round")
        };
        let read_ns = fastest(&|| ());
        let steps_ns = fastest(&|| steps(CALIBRATION_STEPS)).saturating_sub(read_ns).max(1);
        Self { steps_per_us: (CALIBRATION_STEPS * 1_000 / steps_ns).max(1), read_ns }
    }

    /// Computes until the calling thread has used this CPU time. Returns the CPU time that it used.
    pub(super) fn compute(&self, ns: u64) -> u64 {
        let begin = clock::thread_cpu_ns();
        loop {
            // Half of the first read precedes `begin`, and half of the last one is yet to come.
            let used = clock::thread_cpu_ns() - begin + self.read_ns;
            let left = ns.saturating_sub(used);
            // Another read would exceed the time by more than this one falls short of it.
            if left <= self.read_ns / 2 {
                return used;
            }
            steps(left * self.steps_per_us / 2_000);
        }
    }
}

/// Each step depends on the result of the previous step, so the CPU cannot overlap them.
fn steps(count: u64) {
    let mut value = 1_u64;
    for _ in 0..count {
        value = hint::black_box(value).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    hint::black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_computes_for_its_cpu_time_and_says_how_long() {
        let spin = Spin::calibrate();
        for ns in [20_000, 500_000] {
            let begin = clock::thread_cpu_ns();
            let used = spin.compute(ns);
            let measured = clock::thread_cpu_ns() - begin;
            assert!(used + spin.read_ns >= ns, "{used} of {ns}");
            assert!(measured + spin.read_ns >= ns, "{measured} of {ns}");
        }
    }
}
