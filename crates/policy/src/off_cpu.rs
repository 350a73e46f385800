//! How many workers a pool needs whose items leave the CPU for a part of their time.
//!
//! A pool with `cpus` CPUs whose items are off the CPU for a share `s` of their run time keeps these
//! CPUs busy with `cpus / (1 - s)` workers, as in Little's law. So sleeps that are too short to be
//! detected one by one need no detection: two sums are enough, the time on the CPU and off it.
//! The rule is for pools in which most batches leave the CPU. Where a few long sleeps are among many
//! short items, each worker more would be woken for items that are sooner run than moved, and single
//! sleeps are long enough to be detected. Times go in, a number comes out.

/// A batch of a pool is measured this long after the last one. A measurement takes 0.5 us, and some
/// microseconds more where batches leave the CPU.
pub const MEASURE_EVERY_NS: u64 = 1_000_000;

/// Batches that are shorter by expectation are not measured: their sleeps, if any, are shorter than
/// the switch to another worker.
pub const MEASURED_NS_MIN: u64 = 10_000;

/// A run that was off the CPU for a shorter time has not slept: what a switch to another thread and
/// back takes.
pub const OFF_NS_MIN: u64 = 5_000;

/// After this long without a measurement that confirms it, a raised number of workers is dropped.
pub const RAISED_NS: u64 = 50_000_000;

/// The most workers for each CPU.
pub const WORKERS_PER_CPU_MAX: u32 = 128;

/// The number of measurements after which the weight of one has fallen to about a third.
const WINDOW: u64 = 16;

/// What one batch adds to the counts of batches, so that their decay is smooth.
pub const UNIT: u64 = 1_024;

/// A measured time counts as at most this long, so that the sums do not overflow.
const NS_MAX: u64 = 1_000_000_000;

/// One measurement: a batch, or several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// From its begin to its end.
    pub wall_ns: u64,
    /// The thread's CPU time meanwhile.
    pub cpu_ns: u64,
    /// How long the thread waited meanwhile for a CPU that other threads had.
    pub delay_ns: u64,
}

impl Measured {
    /// The time in which it neither had a CPU nor wanted one.
    #[must_use]
    pub fn off_ns(self) -> u64 {
        self.wall_ns.saturating_sub(self.cpu_ns).saturating_sub(self.delay_ns)
    }

    /// Whether it may have slept.
    #[must_use]
    pub fn left_cpu(self) -> bool {
        self.off_ns() >= OFF_NS_MIN
    }
}

/// The times of a pool's measured runs, as exponentially decaying sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// On a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// Neither on a CPU nor waiting for one, in nanoseconds.
    pub off_ns: u64,
    /// Measured batches, [`UNIT`] for each.
    pub batches: u64,
    /// Those that left the CPU, [`UNIT`] for each.
    pub left: u64,
}

impl OffCpu {
    /// With one more measurement.
    #[must_use]
    pub fn with(self, measured: Measured) -> OffCpu {
        let decayed = |sum: u64| sum - sum / WINDOW;
        let (off_ns, left) = match measured.left_cpu() {
            true => (measured.off_ns(), UNIT),
            false => (0, 0),
        };
        OffCpu {
            cpu_ns: decayed(self.cpu_ns) + measured.cpu_ns.clamp(1, NS_MAX),
            off_ns: decayed(self.off_ns) + off_ns.min(NS_MAX),
            batches: decayed(self.batches) + UNIT,
            left: decayed(self.left) + left,
        }
    }

    /// How many workers keep `cpus` CPUs busy.
    /// ```
    /// use uwork_policy::off_cpu::OffCpu;
    /// let all_sleep = OffCpu { cpu_ns: 1_000, off_ns: 1_000, batches: 8, left: 8 };
    /// assert_eq!(all_sleep.workers(2), 4);
    /// assert_eq!(OffCpu { off_ns: 9_000, ..all_sleep }.workers(1), 10);
    /// assert_eq!(OffCpu { off_ns: 200, ..all_sleep }.workers(1), 1, "less than a fifth of the time");
    /// assert_eq!(OffCpu { left: 3, ..all_sleep }.workers(2), 2, "less than half of the batches");
    /// assert_eq!(OffCpu::default().workers(3), 3, "nothing is known");
    /// ```
    #[must_use]
    pub fn workers(self, cpus: u32) -> u32 {
        let (cpu_ns, off_ns) = (self.cpu_ns.max(1), self.off_ns);
        if off_ns < cpu_ns / 4 || self.left < self.batches / 2 {
            return cpus;
        }
        let needed = u64::from(cpus).saturating_mul(cpu_ns + off_ns).div_ceil(cpu_ns);
        let most = cpus.saturating_mul(WORKERS_PER_CPU_MAX);
        u32::try_from(needed).unwrap_or(u32::MAX).min(most)
    }

    /// The next target of a pool that has `target`, and `cpus` CPUs. It rises by doubling at most:
    /// a single long sleep does not bring up many workers.
    /// ```
    /// use uwork_policy::off_cpu::OffCpu;
    /// let sleeping = OffCpu { cpu_ns: 1_000, off_ns: 99_000, batches: 8, left: 8 };
    /// assert_eq!([1, 2, 40, 64, 100].map(|target| sleeping.target(target, 1)), [2, 4, 80, 100, 100]);
    /// assert_eq!(OffCpu { off_ns: 0, ..sleeping }.target(64, 1), 1);
    /// ```
    #[must_use]
    pub fn target(self, target: u32, cpus: u32) -> u32 {
        self.workers(cpus).min(target.saturating_mul(2)).max(cpus)
    }
}

/// Whether a worker measures its next batch. `since_ns`: how long ago the last measurement in its pool
/// began; `batch_ns`: how long the batch takes by expectation.
#[inline]
#[must_use]
pub fn is_measured(since_ns: u64, batch_ns: u64) -> bool {
    since_ns >= MEASURE_EVERY_NS && batch_ns >= MEASURED_NS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measured: Measured, times: usize) -> OffCpu {
        (0..times).fold(OffCpu::default(), |sums, _| sums.with(measured))
    }

    #[test]
    fn sums_follow_a_queue_that_begins_to_compute() {
        let sleeping = Measured { wall_ns: 300_000, cpu_ns: 5_000, delay_ns: 0 };
        let computing = Measured { wall_ns: 300_000, cpu_ns: 300_000, delay_ns: 0 };
        let sums = of(sleeping, 100);
        assert_eq!(sums.workers(1), 60);
        assert!((2..20).contains(&sums.with(computing).workers(1)));
        let later = (0..60).fold(sums, |sums, _| sums.with(computing));
        assert_eq!(later.workers(1), 1);
    }

    #[test]
    fn a_few_long_sleeps_among_many_short_items_bring_up_no_worker() {
        let sleeping = Measured { wall_ns: 1_000_000, cpu_ns: 10_000, delay_ns: 0 };
        let computing = Measured { wall_ns: 20_000, cpu_ns: 20_000, delay_ns: 0 };
        let mut sums = OffCpu::default();
        for _ in 0..100 {
            (0..9).for_each(|_| sums = sums.with(computing));
            sums = sums.with(sleeping);
            assert_eq!(sums.workers(2), 2);
        }
    }

    #[test]
    fn the_wait_for_a_cpu_is_no_sleep() {
        let preempted = Measured { wall_ns: 5_000_000, cpu_ns: 1_000_000, delay_ns: 4_000_000 };
        assert_eq!((preempted.off_ns(), of(preempted, 50).workers(2)), (0, 2));
    }

    #[test]
    fn sums_never_overflow() {
        let longest = Measured { wall_ns: u64::MAX, cpu_ns: 0, delay_ns: 0 };
        let sums = of(longest, 1_000);
        assert_eq!(sums.workers(u32::MAX), u32::MAX);
        assert_eq!(sums.target(u32::MAX, 1), WORKERS_PER_CPU_MAX);
        assert_eq!(Measured { cpu_ns: u64::MAX, ..longest }.off_ns(), 0);
    }
}
