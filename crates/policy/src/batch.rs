//! How many items a worker takes from a queue at once, what it knows of their run times, and what it
//! does with a batch.

/// The most items that one worker takes at once.
pub const BATCH_MAX: u32 = 256;

/// The run time that one batch should not exceed, estimated from the items' past run times.
///
/// The items of a batch wait for the worker that took them. A short horizon keeps that wait short,
/// and the cost of one pool lock per horizon is negligible.
pub const BATCH_HORIZON_NS: u64 = 20_000;

/// A batch that is still in progress after this long is overdue: another worker that has nothing
/// to do takes its tail.
pub const BATCH_OVERDUE_NS: u64 = 2 * BATCH_HORIZON_NS;

/// The run time that is assumed of a queue's items before any has been measured.
///
/// The value is high on purpose: the first batches stay small, and other workers are woken for the
/// rest.
pub const UNKNOWN_RUN_NS: u64 = 100_000;

/// A batch that takes longer than this counts as this long. The limit keeps the sums of
/// [`RunTimes`] far from an overflow, and is long compared with every cost that is weighed.
pub const RUN_NS_MAX: u64 = 100_000_000;

/// From this run time on the CPU time of a batch is measured. A shorter batch counts its run time.
pub const CPU_MEASURED_NS: u64 = 100_000;

/// The CPU time of a longer batch that was not measured counts as its run time, up to this much: its
/// queue's items were short until then, so a longer one probably slept.
pub const CPU_UNMEASURED_MAX_NS: u64 = 10 * CPU_MEASURED_NS;

/// The number of short batches after which a thread's CPU clock is read anew. The worker's own CPU
/// time between batches counts for the next long batch, so this limits the error to some tens of
/// microseconds.
pub const CPU_READING_BATCHES: u32 = 64;

/// The number of batches after which a batch's weight in [`RunTimes`] has fallen to about a third.
const WINDOW: u64 = 64;

/// The run times of a queue's items in one pool.
///
/// The mean run time is not what an arriving item waits for. A long run occupies its worker for
/// longer, so an arrival is more likely to meet a long run than a short one: the inspection paradox.
/// The mean time that is left of the run that an arrival meets is `E[S^2] / 2 E[S]`
/// (L. Kleinrock, Queueing Systems, volume 1, 1975, section 5.2). So both moments are kept, as
/// exponentially decaying sums over the last batches.
///
/// ```
/// use uwork_policy::batch::RunTimes;
///
/// let mut times = RunTimes::UNKNOWN;
/// for n in 0..1_000 {
///     // One item in twenty takes 500 us, all others 20 us.
///     times.add(if n % 20 == 0 { 500_000 } else { 20_000 }, 1);
/// }
/// assert!((120_000..180_000).contains(&times.estimate().residual_ns), "far more than half of the mean");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes {
    /// A moving average of an item's run time.
    item_ns: u64,
    /// The decaying sum of the batches' run times, in nanoseconds.
    sum: u64,
    /// The decaying sum of their squares.
    square_sum: u64,
}

impl RunTimes {
    /// Nothing is measured yet.
    pub const UNKNOWN: RunTimes = RunTimes { item_ns: UNKNOWN_RUN_NS, sum: 0, square_sum: 0 };

    /// Takes a batch of `items` into account that took `batch_ns`.
    ///
    /// The moving average rises quickly and falls slowly. An average that is too low leaves items
    /// stuck behind a long one; one that is too high costs a lock or a wake.
    #[inline]
    pub fn add(&mut self, batch_ns: u64, items: u32) {
        if items == 0 {
            return;
        }
        let sample = batch_ns / u64::from(items);
        self.item_ns = if sample >= self.item_ns {
            self.item_ns / 2 + sample / 2 + 1
        } else {
            self.item_ns - (self.item_ns - sample) / 4
        };
        let batch_ns = batch_ns.clamp(1, RUN_NS_MAX);
        // At most WINDOW * RUN_NS_MAX^2 = 6.4e17: no overflow.
        self.sum = self.sum - self.sum / WINDOW + batch_ns;
        self.square_sum = self.square_sum - self.square_sum / WINDOW + batch_ns * batch_ns;
    }

    /// What they say about the items that come.
    #[inline]
    #[must_use]
    pub fn estimate(&self) -> RunEstimate {
        let residual_ns = match self.sum {
            0 => UNKNOWN_RUN_NS / 2,
            sum => self.square_sum / (2 * sum),
        };
        RunEstimate { item_ns: self.item_ns, residual_ns }
    }
}

/// What the run times of a queue's items lately say about the items that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEstimate {
    /// How long an item takes.
    pub item_ns: u64,
    /// How long the batch still takes that an arriving item meets.
    pub residual_ns: u64,
}

impl RunEstimate {
    /// How long it takes until the worker that now runs another batch has run `backlog` items that
    /// wait behind it.
    #[inline]
    #[must_use]
    pub fn backlog_ns(&self, backlog: u64) -> u64 {
        self.residual_ns.saturating_add(backlog.saturating_mul(self.item_ns))
    }
}

/// Whether a batch of such items may take so long that its CPU time is measured.
#[inline]
#[must_use]
pub fn measures_cpu(estimate: RunEstimate) -> bool {
    estimate.item_ns.max(estimate.residual_ns) >= CPU_MEASURED_NS
}

/// The number of items to take when `backlog` items wait, which take as long as `estimate` says.
///
/// The result is never zero. The worker leaves a fair share for the `sharers` workers of its pool
/// that may take from the same backlog. Where some items are long, and `others_may_help`, it takes
/// a single item: an item that is scheduled behind a long one is reached by no other worker.
///
/// ```
/// use uwork_policy::batch::{BATCH_MAX, RunTimes, batch_size};
///
/// let mut short = RunTimes::UNKNOWN;
/// (0..100).for_each(|_| short.add(1_000, 100));
/// assert_eq!(batch_size(1_000_000, 1, true, short.estimate()), BATCH_MAX);
/// assert_eq!(batch_size(8, 2, true, short.estimate()), 4);
///
/// // One batch in a thousand takes 10 ms: an item that has to wait waits for that one.
/// let mut rarely_long = short;
/// rarely_long.add(10_000_000, 100);
/// (0..100).for_each(|_| rarely_long.add(1_000, 100));
/// assert_eq!(batch_size(1_000_000, 1, true, rarely_long.estimate()), 1);
/// assert_eq!(batch_size(1_000_000, 1, false, rarely_long.estimate()), BATCH_MAX);
/// ```
#[inline]
#[must_use]
pub fn batch_size(
    backlog: usize,
    sharers: u32,
    others_may_help: bool,
    estimate: RunEstimate,
) -> u32 {
    if others_may_help && estimate.residual_ns >= BATCH_HORIZON_NS {
        return 1;
    }
    let by_time = BATCH_HORIZON_NS / estimate.item_ns.max(1);
    let by_share = backlog.div_ceil(sharers.max(1) as usize) as u64;
    by_time.min(by_share).clamp(1, u64::from(BATCH_MAX)) as u32
}

/// A batch that a worker has just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBatch {
    /// How many items it has.
    pub count: u32,
    /// Whether the items' queue is CPU-intensive.
    pub intensive: bool,
    /// Whether the worker took it from another pool than its own.
    pub stolen: bool,
}

/// What a worker does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BatchPlan {
    /// It publishes the batch, so that the watcher can take the items back that wait behind the
    /// first.
    pub publish: bool,
    /// It leaves its pool's running count until the batch ends.
    pub leave_count: bool,
    /// It may presume for a run that it blocks, and leave the running count for that reason.
    pub may_presume: bool,
    /// It settles the pool that it took the batch from, besides its own. Its own pool is always
    /// settled, as the last step before the run.
    pub settle_source: bool,
}

/// What a worker does with a batch that it has just taken.
///
/// A worker that does not count anyway presumes nothing.
/// ```
/// use uwork_policy::batch::{TakenBatch, plan_batch};
/// let plan = plan_batch(TakenBatch { count: 7, intensive: false, stolen: true });
/// assert!(plan.publish && plan.settle_source);
/// assert!(!plan.leave_count && plan.may_presume);
/// ```
#[inline(always)]
pub fn plan_batch(batch: TakenBatch) -> BatchPlan {
    BatchPlan {
        publish: batch.count > 1,
        leave_count: batch.intensive,
        may_presume: !batch.intensive,
        settle_source: batch.stolen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(batches: impl IntoIterator<Item = (u64, u32)>) -> RunTimes {
        let mut times = RunTimes::UNKNOWN;
        batches.into_iter().for_each(|(ns, items)| times.add(ns, items));
        times
    }

    #[test]
    fn the_run_time_estimate_rises_and_falls() {
        let mut times = after((0..64).map(|_| (2_000, 100)));
        assert!(times.estimate().item_ns <= 24, "{times:?}");
        (0..8).for_each(|_| times.add(1_000_000, 1));
        assert!(times.estimate().item_ns > 900_000, "{times:?}");
        let before = times;
        times.add(0, 0);
        assert_eq!(times, before, "a batch without items says nothing");
    }

    #[test]
    fn equal_runs_leave_half_of_a_run() {
        for ns in [100, 20_000, 3_000_000] {
            let left = after((0..1_000).map(|_| (ns, 1))).estimate().residual_ns;
            assert!(left.abs_diff(ns / 2) <= ns / 20 + 2, "{ns}: {left}");
        }
    }

    #[test]
    fn a_long_run_counts_by_its_length() {
        // E[S^2] / 2 E[S] = (0.05 * 3000^2 + 0.95 * 20^2) / (2 * (0.05 * 3000 + 0.95 * 20)) = 1333.
        let times = after((0..2_000).map(|n| (if n % 20 == 7 { 3_000_000 } else { 20_000 }, 1)));
        assert!((1_200_000..1_450_000).contains(&times.estimate().residual_ns), "{times:?}");
    }

    #[test]
    fn a_single_long_run_is_forgotten_in_time() {
        let mut times = after((0..100).map(|_| (1_000, 1)));
        times.add(10_000_000, 1);
        assert!(times.estimate().residual_ns > 1_000_000, "{times:?}");
        (0..1_500).for_each(|_| times.add(1_000, 1));
        assert!(times.estimate().residual_ns < 1_000, "{times:?}");
    }

    #[test]
    fn run_times_from_nothing_to_an_hour_do_not_overflow() {
        const HOUR: u64 = 3_600_000_000_000;
        let mut times = RunTimes::UNKNOWN;
        for n in 0..10_000_u64 {
            times.add([0, 10, HOUR, u64::MAX][n as usize % 4], 1 + n as u32 % 3);
            assert!(times.estimate().residual_ns <= RUN_NS_MAX / 2 + 1, "{times:?}");
            assert!(batch_size(usize::MAX, u32::MAX, n % 2 == 0, times.estimate()) >= 1);
            let _ = times.estimate().backlog_ns(u64::MAX);
        }
        let long = after((0..10_000).map(|_| (u64::MAX, 1)));
        assert!(long.estimate().residual_ns >= RUN_NS_MAX / 2 - 1_000_000, "{long:?}");
    }

    #[test]
    fn a_batch_leaves_a_share_and_respects_the_horizon() {
        let of = |ns| after((0..200).map(|_| (ns, 1))).estimate();
        assert_eq!(batch_size(0, 1, true, of(10)), 1);
        assert_eq!(batch_size(1_000, 4, true, of(10)), 250);
        assert_eq!(batch_size(1_000, 0, true, of(10)), BATCH_MAX);
        assert_eq!(batch_size(1_000, 1, true, of(5_000)), 3, "the average stops a little above");
        assert_eq!(batch_size(1_000, 1, true, RunTimes::UNKNOWN.estimate()), 1);
    }
}
