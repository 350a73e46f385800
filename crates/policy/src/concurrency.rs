//! How many workers a pool should have running, and which idle ones may retire.
//!
//! Counters go in, a decision comes out. The counters are those of one pool at one instant.

use crate::batch::{RunEstimate, UNKNOWN_RUN_NS};
use crate::blocking::WAKE_COST_NS;

/// The counters of one pool at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Workers that are neither parked nor blocked.
    pub running: u32,
    /// Workers that are parked on the idle stack.
    pub idle: u32,
    /// Workers that exist: running, idle, blocked, or being woken or spawned.
    pub workers: u32,
    /// Whether a worker is being woken or spawned: it was picked or is being created, and is not
    /// yet running.
    pub waking: bool,
    /// Whether a parked worker is the keeper: it sleeps no longer than until the pool's next timer.
    pub kept: bool,
}

/// Whether a pool with pending work should wake or spawn one more worker.
///
/// At most one worker is being woken at a time; it wakes the next one itself.
/// ```
/// use uwork_policy::concurrency::{PoolCounts, need_more_workers};
/// let idle = PoolCounts { idle: 1, workers: 1, ..PoolCounts::default() };
/// assert!(need_more_workers(idle, 1));
/// assert!(!need_more_workers(PoolCounts { waking: true, ..idle }, 1));
/// assert!(!need_more_workers(PoolCounts { running: 1, ..idle }, 1));
/// ```
#[inline]
pub fn need_more_workers(counts: PoolCounts, target: u32) -> bool {
    !counts.waking && counts.running < target
}

/// Whether a running worker may start another item.
///
/// A worker that returns from a wait may raise `running` above the target. The first worker to
/// reach an item boundary then stops.
#[inline]
pub fn may_start_another(counts: PoolCounts, target: u32) -> bool {
    counts.running <= target
}

/// Busy workers that justify one idle worker beyond the first two; further idle workers retire (the
/// kernel's `MAX_IDLE_WORKERS_RATIO`).
pub const IDLE_WORKERS_RATIO: u32 = 4;

/// Whether the pool has more idle workers than its busy workers justify.
///
/// Two idle workers always stay. Source of the rule: `too_many_workers()` in the kernel.
///
/// ```
/// use uwork_policy::concurrency::{PoolCounts, too_many_workers};
/// let counts = |idle, busy| PoolCounts { idle, workers: idle + busy, ..PoolCounts::default() };
/// assert!(!too_many_workers(counts(2, 0)));
/// assert!(too_many_workers(counts(3, 4)));
/// assert!(!too_many_workers(counts(3, 5)));
/// ```
#[inline]
pub fn too_many_workers(counts: PoolCounts) -> bool {
    let busy = counts.workers.saturating_sub(counts.idle);
    counts.idle > 2 && (counts.idle - 2) * IDLE_WORKERS_RATIO >= busy
}

/// Whether a shared pool may have one more worker in place of one that computes for long.
///
/// A pool may have up to twice as many computing workers as CPUs. The short items then get a fair
/// share of the CPUs; more workers would only divide the same CPUs among more threads. `computing`
/// counts the pool's workers that are neither idle nor blocked.
/// ```
/// use uwork_policy::concurrency::may_replace_hog;
/// assert!(may_replace_hog(3, 2));
/// assert!(!may_replace_hog(4, 2));
/// ```
pub fn may_replace_hog(computing: u32, target: u32) -> bool {
    computing < 2 * target
}

/// Whether to report a function that computed for too long for the `count`th time. Reports start
/// with the `threshold`th time and then come at distances that double. A threshold of 0 means
/// never.
/// Source of the rule: `wq_cpu_intensive_report()` in the kernel.
///
/// ```
/// use uwork_policy::concurrency::hog_report_due;
/// let due: Vec<u64> = (1..20).filter(|&count| hog_report_due(count, 4)).collect();
/// assert_eq!(due, [4, 5, 7, 11, 19]);
/// ```
pub fn hog_report_due(count: u64, threshold: u64) -> bool {
    threshold != 0 && count >= threshold && (count - threshold + 1).is_power_of_two()
}

/// Whether a worker that computes, while another one takes its CPU, goes to the other CPUs of its pod. Its
/// items take `item_ns` on average: at least what is assumed of items that have never run. The two
/// changes of its thread's affinity cost about 5 % of that.
///
/// ```
/// use uwork_policy::concurrency::leaves_cpu;
/// assert!(leaves_cpu(1_000_000));
/// assert!(!leaves_cpu(1_000));
/// ```
pub fn leaves_cpu(item_ns: u64) -> bool {
    item_ns >= UNKNOWN_RUN_NS
}

/// A worker without work compares this many overloaded pools at a time, the nearest ones first, and
/// takes from the one that has waited longest. Before its yield it looks at the nearest ones only, and
/// takes back overdue batches of these only.
pub const STEAL_CHOICE: usize = 8;

/// How long ago a neighbour's last batch must be, or how long its items must be on average, before a
/// worker without work steals unprompted. About the cost of a batch that moves to another CPU: its
/// cache lines, and the neighbour's next wake.
pub const STEAL_AFTER_NS: u64 = 20_000;

/// Whether a worker without work, which was not woken for a neighbour's items, takes those of an
/// overloaded neighbour. `since_batch_ns`: how long ago a worker took a batch there. `estimate`: of
/// the items in that batch's queue.
///
/// A neighbour that takes batches of short items all the time needs no help: its own worker is
/// sooner there than the items' cache lines are here.
/// ```
/// use uwork_policy::batch::RunEstimate;
/// use uwork_policy::concurrency::may_steal_unprompted;
/// let short = RunEstimate { item_ns: 100, residual_ns: 1_000 };
/// let long = RunEstimate { item_ns: 20_000, residual_ns: 20_000 };
/// assert!(!may_steal_unprompted(5_000, short));
/// assert!(may_steal_unprompted(20_000, short));
/// assert!(may_steal_unprompted(0, long));
/// ```
#[inline]
#[must_use]
pub fn may_steal_unprompted(since_batch_ns: u64, estimate: RunEstimate) -> bool {
    since_batch_ns.max(estimate.item_ns) >= STEAL_AFTER_NS
}

/// The approximate cost of a cross-CPU wake, to the thread that sends it and to the worker that is
/// woken. Work that is worth less than this stays in its pool.
pub const NEIGHBOUR_WAKE_COST_NS: u64 = 50_000;
// The same wake, weighed against a block instead of a backlog.
const _: () = assert!(NEIGHBOUR_WAKE_COST_NS == WAKE_COST_NS);

/// Whether a pool that is at its target should wake a worker of a neighbouring pool to take over
/// some of its backlog: `backlog` items, which take as long as `estimate` says.
///
/// Without help the items wait for the rest of the batch that runs, then for each other.
/// ```
/// use uwork_policy::batch::RunTimes;
/// use uwork_policy::concurrency::wake_neighbour;
///
/// let items_of = |ns| {
///     let mut times = RunTimes::UNKNOWN;
///     (0..200).for_each(|_| times.add(ns, 1));
///     times.estimate()
/// };
/// assert!(!wake_neighbour(100, items_of(100)));
/// assert!(wake_neighbour(1_000, items_of(100)));
/// assert!(!wake_neighbour(1, items_of(20_000)), "one short item is sooner run than moved");
/// assert!(wake_neighbour(1, items_of(100_000)));
/// assert!(!wake_neighbour(0, items_of(100_000)));
/// ```
#[inline]
pub fn wake_neighbour(backlog: u64, estimate: RunEstimate) -> bool {
    backlog > 0 && estimate.backlog_ns(backlog) >= NEIGHBOUR_WAKE_COST_NS
}

/// Whether a worker that has just taken a batch from a pool with these counters wakes a worker of a
/// neighbouring pool for the rest. Below the target, the pool wakes a worker of its own instead.
/// ```
/// use uwork_policy::batch::RunEstimate;
/// use uwork_policy::concurrency::{PoolCounts, spills};
/// let counts = PoolCounts { running: 2, workers: 2, ..PoolCounts::default() };
/// let long = RunEstimate { item_ns: 1_000_000, residual_ns: 500_000 };
/// assert!(spills(counts, 2, 1, long));
/// assert!(!spills(counts, 3, 1, long));
/// ```
#[inline]
#[must_use]
pub fn spills(counts: PoolCounts, target: u32, backlog: u64, estimate: RunEstimate) -> bool {
    counts.running >= target && wake_neighbour(backlog, estimate)
}
