//! A histogram of run times: counts by powers of two.

/// The number of classes.
pub const CLASSES: usize = 32;

/// How many runs took how long. The classes are powers of two: class 0 has the runs below 2 ns,
/// class n those from 2^n to below 2^(n + 1) ns, and the last class all longer ones too.
///
/// ```
/// use uwork_policy::histogram::Histogram;
///
/// let mut times = Histogram::default();
/// times.add(3_000, 2); // A batch of two items that took 3 us.
/// assert_eq!((times.count(), times.sum_ns()), (2, 3_000));
/// assert_eq!(times.below(10), 0, "below 1,024 ns each");
/// assert_eq!(times.below(11), 2, "below 2,048 ns each");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; CLASSES],
    sum_ns: u64,
}

impl Histogram {
    /// `count` runs took `sum_ns` together; each counts as the mean of them. Wraps.
    #[inline]
    pub fn add(&mut self, sum_ns: u64, count: u32) {
        if count > 0 {
            let class = class_of(sum_ns / u64::from(count));
            self.counts[class] = self.counts[class].wrapping_add(u64::from(count));
            self.sum_ns = self.sum_ns.wrapping_add(sum_ns);
        }
    }

    /// Adds the runs of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(sum, more)| *sum = sum.wrapping_add(more));
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// All runs.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// The time of all runs, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The runs that took less than 2^`power` ns. From [`CLASSES`] on: all runs.
    pub fn below(&self, power: usize) -> u64 {
        self.counts.iter().take(power).fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// The run time, in nanoseconds, that `percent` of the runs did not exceed: the upper end of a
    /// class. None without runs.
    pub fn percentile_ns(&self, percent: u32) -> Option<u64> {
        let all = u128::from(self.count());
        let wanted = (all * u128::from(percent.min(100))).div_ceil(100).max(1);
        let class = (1..=CLASSES).find(|&power| u128::from(self.below(power)) >= wanted);
        class.filter(|_| all > 0).map(|power| 1 << power)
    }
}

fn class_of(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_in_the_class_of_its_power_of_two() {
        for (ns, class) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1 << 31, 31), (u64::MAX, 31)] {
            assert_eq!(class_of(ns), class, "{ns}");
        }
    }

    #[test]
    fn percentiles_are_upper_ends_of_classes() {
        let mut times = Histogram::default();
        assert_eq!(times.percentile_ns(50), None);
        times.add(99 * 100, 99);
        times.add(1_000_000, 1);
        assert_eq!(times.percentile_ns(50), Some(128));
        assert_eq!(times.percentile_ns(99), Some(128));
        assert_eq!(times.percentile_ns(100), Some(1 << 20));
        assert_eq!(times.percentile_ns(0), Some(128));
    }

    #[test]
    fn a_merged_histogram_has_the_runs_of_both() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(10, 1);
        other.add(50, 2);
        other.add(0, 0);
        one.merge(&other);
        assert_eq!((one.count(), one.sum_ns(), one.below(4), one.below(5)), (3, 60, 1, 3));
    }
}
