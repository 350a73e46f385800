//! How many items a worker takes from a queue at once, and what it does with them.

/// The most items that one worker takes at once.
pub const BATCH_MAX: u32 = 256;

/// The run time that one batch should not exceed, estimated from the items' past run times.
///
/// The items of a batch wait for the worker that took them. A short horizon keeps that wait short,
/// and the cost of one pool lock per horizon is negligible.
pub const BATCH_HORIZON_NS: u64 = 100_000;

/// The run time that is assumed of a queue's items before any has been measured.
///
/// The value is high on purpose: the first batches stay small, and other workers are woken for the
/// rest.
pub const UNKNOWN_RUN_NS: u64 = BATCH_HORIZON_NS;

/// The number of items to take when `backlog` items wait and each recently took about `item_ns`.
///
/// The result is never zero. The worker leaves a fair share for the `sharers` workers that may take
/// from the same backlog.
///
/// ```
/// use uwork_policy::batch::{BATCH_MAX, batch_size};
/// assert_eq!(batch_size(1_000_000, 1, 10), BATCH_MAX);
/// assert_eq!(batch_size(8, 2, 10), 4);
/// assert_eq!(batch_size(1_000, 1, 1_000_000), 1);
/// ```
#[inline]
pub fn batch_size(backlog: usize, sharers: u32, item_ns: u64) -> u32 {
    let by_time = BATCH_HORIZON_NS / item_ns.max(1);
    let by_share = backlog.div_ceil(sharers.max(1) as usize) as u64;
    by_time.min(by_share).clamp(1, u64::from(BATCH_MAX)) as u32
}

/// The estimate of an item's run time after a batch of `items` took `batch_ns`.
///
/// The estimate rises quickly and falls slowly. An estimate that is too short leaves items stuck
/// behind a long one; an estimate that is too long costs a lock or a wake.
#[inline]
pub fn update_item_ns(estimate: u64, batch_ns: u64, items: u32) -> u64 {
    if items == 0 {
        return estimate;
    }
    let sample = batch_ns / u64::from(items);
    if sample >= estimate {
        (estimate + sample) / 2 + 1
    } else {
        estimate - (estimate - sample) / 4
    }
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
    /// It may presume that the run blocks, and leave the running count for that reason.
    pub may_presume: bool,
    /// It settles the pool that it took the batch from, besides its own. Its own pool is always
    /// settled, as the last step before the run.
    pub settle_source: bool,
}

/// What a worker does with a batch that it has just taken.
///
/// A presumption is about one run, so a longer batch makes none. Neither does a batch for which the
/// worker does not count anyway.
/// ```
/// use uwork_policy::batch::{TakenBatch, plan_batch};
/// let plan = plan_batch(TakenBatch { count: 7, intensive: false, stolen: true });
/// assert!(plan.publish && plan.settle_source);
/// assert!(!plan.leave_count && !plan.may_presume);
/// ```
#[inline(always)]
pub fn plan_batch(batch: TakenBatch) -> BatchPlan {
    BatchPlan {
        publish: batch.count > 1,
        leave_count: batch.intensive,
        may_presume: batch.count == 1 && !batch.intensive,
        settle_source: batch.stolen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_time_estimate_rises_and_falls() {
        let mut estimate = UNKNOWN_RUN_NS;
        for _ in 0..64 {
            estimate = update_item_ns(estimate, 2_000, 100);
        }
        assert!(estimate <= 24, "{estimate}");
        for _ in 0..8 {
            estimate = update_item_ns(estimate, 1_000_000, 1);
        }
        assert!(estimate > 900_000, "{estimate}");
        assert_eq!(update_item_ns(7, 0, 0), 7);
    }
}
