//! A histogram of times: counts in classes that are log-linear, two to each power of two.

/// The classes below this power of two are one class: 64 ns.
const FIRST_POWER: u32 = 6;
/// All times from this power of two on are one class: 34 s.
const LAST_POWER: u32 = 35;
/// The number of classes.
pub const CLASSES: usize = (2 * (LAST_POWER - FIRST_POWER) + 2) as usize;

/// How often something took how long. The first class has the times below 64 ns. Then each power of
/// two is halved into two classes: 64 to 95 ns, 96 to 127 ns, 128 to 191 ns and so on. The last
/// class has all times from 2^35 ns on. So a percentile is known to a factor of 1.5 or better.
///
/// ```
/// use uwork_policy::histogram::Histogram;
///
/// let mut times = Histogram::default();
/// times.add(3_000, 2); // A batch of two items that took 3 us.
/// assert_eq!((times.count(), times.sum_ns()), (2, 3_000));
/// assert_eq!(times.below(10), 0, "below 1,024 ns each");
/// assert_eq!(times.below(11), 2, "below 2,048 ns each");
/// assert_eq!(times.percentile_ns(99), Some(1_536));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; CLASSES],
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; CLASSES], sum_ns: 0 }
    }
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

    /// Adds the times of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(sum, more)| *sum = sum.wrapping_add(more));
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// How many times were added.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// The sum of all times, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// How many were shorter than 2^`power` ns. Below 2^6 ns: none, since those are one class. From
    /// 2^36 on: all.
    pub fn below(&self, power: usize) -> u64 {
        let classes = match power.checked_sub(FIRST_POWER as usize) {
            None => 0,
            Some(powers) => 2 * powers + 1,
        };
        self.counts.iter().take(classes).fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// The classes, in order: the first time that is too long for the class, and the count. The
    /// last class has no end.
    pub fn classes(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let end = |class| if class + 1 < CLASSES { Some(end_of(class)) } else { None };
        self.counts.iter().enumerate().map(move |(class, &count)| (end(class), count))
    }

    /// The time, in nanoseconds, that `percent` of them did not exceed: the upper end of a class.
    /// None without any.
    pub fn percentile_ns(&self, percent: u32) -> Option<u64> {
        let all = u128::from(self.count());
        let wanted = (all * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut seen = 0;
        let class = self.counts.iter().position(|&count| {
            seen += u128::from(count);
            seen >= wanted
        });
        class.filter(|_| all > 0).map(end_of)
    }
}

fn class_of(ns: u64) -> usize {
    let power = (ns | 1).ilog2();
    if power < FIRST_POWER {
        return 0;
    }
    let upper_half = (ns >> (power - 1)) & 1;
    let class = 2 * (power - FIRST_POWER) as usize + 1 + upper_half as usize;
    class.min(CLASSES - 1)
}

/// The first time that is too long for a class. The last class has no end; it gets the one that a
/// class at its place would have.
fn end_of(class: usize) -> u64 {
    let Some(index) = class.checked_sub(1) else { return 1 << FIRST_POWER };
    let power = FIRST_POWER + (index / 2) as u32;
    (1 << power) + ((1 + (index as u64 % 2)) << (power - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_class_that_ends_next_above_it() {
        for (ns, end) in [
            (0, 64),
            (63, 64),
            (64, 96),
            (95, 96),
            (96, 128),
            (128, 192),
            (192, 256),
            (1_000, 1_024),
        ] {
            assert_eq!(end_of(class_of(ns)), end, "{ns}");
        }
        for class in 0..CLASSES - 1 {
            let end = end_of(class);
            assert_eq!((class_of(end - 1), class_of(end)), (class, class + 1), "{end}");
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
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
        let ends: Vec<_> = times.classes().filter(|&(_, count)| count > 0).collect();
        assert_eq!(ends, [(Some(128), 99), (Some(1 << 20), 1)]);
    }

    #[test]
    fn a_merged_histogram_has_the_times_of_both() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(100, 1);
        other.add(2 * 200, 2);
        other.add(0, 0);
        one.merge(&other);
        assert_eq!((one.count(), one.sum_ns()), (3, 500));
        assert_eq!((one.below(5), one.below(7), one.below(8), one.below(64)), (0, 1, 3, 3));
    }
}
