//! The CPU time that control groups grant.

use std::cmp::Ordering;
use std::fmt;

/// A limit on CPU time: an amount per period, over all CPUs together.
///
/// ```
/// use uwork::topology::Quota;
///
/// let quota = Quota::new(150_000, 100_000).unwrap();
/// assert_eq!(quota.cpus(), 1.5);
/// assert_eq!(quota.cpus_rounded_up(), 2);
/// assert_eq!(quota.to_string(), "1.50 CPUs (150000 us in every 100000 us)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    quota_us: u64,
    period_us: u64,
}

impl Quota {
    /// A limit of `quota_us` of CPU time in every `period_us`; `None` if either is 0.
    #[must_use]
    pub fn new(quota_us: u64, period_us: u64) -> Option<Self> {
        (quota_us > 0 && period_us > 0).then_some(Self { quota_us, period_us })
    }

    /// CPU time per period, in microseconds.
    #[must_use]
    pub fn quota_us(self) -> u64 {
        self.quota_us
    }

    /// The period, in microseconds.
    #[must_use]
    pub fn period_us(self) -> u64 {
        self.period_us
    }

    /// How many CPUs the limit keeps busy.
    #[must_use]
    pub fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    /// The number of CPUs needed to use up the limit; at least 1.
    #[must_use]
    pub fn cpus_rounded_up(self) -> u64 {
        self.quota_us.div_ceil(self.period_us)
    }

    /// Compares two limits by the CPU time that they grant.
    pub(super) fn cmp_cpus(&self, other: &Self) -> Ordering {
        let cross = |a: u64, b: u64| u128::from(a) * u128::from(b);
        cross(self.quota_us, other.period_us).cmp(&cross(other.quota_us, self.period_us))
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota_us, period_us } = self;
        write!(f, "{:.2} CPUs ({quota_us} us in every {period_us} us)", self.cpus())
    }
}
