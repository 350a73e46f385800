//! What a worker does with a batch, over the whole table of facts.

use uwork_policy::batch::{RunEstimate, TakenBatch, plan_batch};
use uwork_policy::concurrency::{NEIGHBOUR_WAKE_COST_NS, PoolCounts, spills};

#[test]
fn a_batch_is_published_if_items_wait_behind_its_first() {
    for (count, publish) in [(1, false), (2, true), (u32::MAX, true)] {
        for intensive in [false, true] {
            for stolen in [false, true] {
                let batch = TakenBatch { count, intensive, stolen };
                let plan = plan_batch(batch);
                assert_eq!(plan.publish, publish, "{batch:?}");
                // "Workers do not count during batches of a CPU-intensive queue."
                assert_eq!(plan.leave_count, intensive, "{batch:?}");
                // The worker leaves the count for one reason at a time.
                assert_eq!(plan.may_presume, !intensive, "{batch:?}");
                assert_eq!(plan.settle_source, stolen, "{batch:?}");
            }
        }
    }
}

#[test]
fn a_pool_spills_at_its_target_if_the_backlog_is_worth_a_wake() {
    for running in 0..4 {
        for target in 1..4 {
            for (backlog, item_ns, residual_ns, worth) in [
                (0, u64::MAX, u64::MAX, false),
                (1, 0, 0, false),
                (1, NEIGHBOUR_WAKE_COST_NS - 1, 0, false),
                (1, NEIGHBOUR_WAKE_COST_NS, 0, true),
                (1, 0, NEIGHBOUR_WAKE_COST_NS, true),
                (1, NEIGHBOUR_WAKE_COST_NS / 2, NEIGHBOUR_WAKE_COST_NS / 2 - 1, false),
                (1, NEIGHBOUR_WAKE_COST_NS / 2, NEIGHBOUR_WAKE_COST_NS / 2, true),
                (NEIGHBOUR_WAKE_COST_NS, 1, 0, true),
                (u64::MAX, u64::MAX, u64::MAX, true),
            ] {
                let estimate = RunEstimate { item_ns, residual_ns };
                let counts = PoolCounts { running, workers: 4, ..PoolCounts::default() };
                // Below the target, the pool wakes a worker of its own.
                let expected = worth && target <= running;
                let text = format!("{running} of {target}: {backlog} of {estimate:?}");
                assert_eq!(spills(counts, target, backlog, estimate), expected, "{text}");
            }
        }
    }
}
