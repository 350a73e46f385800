//! What a pool owes its items and timers after a change: which thread must be woken, and when.
//!
//! One snapshot goes in, one obligation comes out. The rule of progress: at any instant, for a pool
//! in which an item waits or an armed timer may wake, at least one of these holds.
//!
//! - A worker is being woken or spawned.
//! - As many workers run as the target says, and the watcher scans the pool within a bounded time.
//! - No worker can be spawned, the rescuers are called, and the watcher tries again.
//! - For a timer alone: the keeper, or the watcher, sleeps no longer than until that timer.
//!
//! The engine asks after each change that may have broken the rule, and settles the obligation that
//! is returned.

use crate::concurrency::{PoolCounts, need_more_workers};

/// The time of a timer that is not armed, or of a sleep without an end.
pub const NEVER: u64 = u64::MAX;

/// A pool at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Its workers.
    pub counts: PoolCounts,
    /// The target: how many workers should run while an item waits.
    pub target: u32,
    /// Whether a queue has items here that a worker could take.
    pub ready: bool,
    /// Whether items were taken into a batch and wait behind its running item.
    pub scheduled: bool,
    /// Whether the watcher can help items that wait behind running workers.
    pub watcher_helps: bool,
    /// When the next timer that may wake a worker expires, or [`NEVER`].
    pub timer: u64,
    /// Until when the keeper sleeps. [`NEVER`] while it has not published a time.
    pub keeper_until: u64,
    /// How much later than the timer the watcher may handle it.
    pub timer_slack: u64,
}

/// The obligation: the threads that must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an obligation that is not met leaves items or timers behind"]
pub struct Obligation {
    /// One more worker must come, an idle one or a new one. It settles again before it runs
    /// anything.
    pub worker: bool,
    /// The keeper must examine the timers again.
    pub keeper: bool,
    /// The latest time of the watcher's next scan. 0 means now, [`NEVER`] that none is needed.
    pub scan_by: u64,
}

impl Obligation {
    /// Nothing is owed.
    pub const NOTHING: Obligation = Obligation { worker: false, keeper: false, scan_by: NEVER };
}

/// What a pool owes.
///
/// A worker that is being woken is enough: it examines timers and items when it arrives, and
/// settles again before it runs anything.
/// ```
/// use uwork_policy::concurrency::PoolCounts;
/// use uwork_policy::progress::{NEVER, Obligation, PoolView, obligation};
/// let view = PoolView {
///     counts: PoolCounts { running: 1, workers: 1, ..PoolCounts::default() },
///     target: 1,
///     ready: true,
///     scheduled: false,
///     watcher_helps: true,
///     timer: NEVER,
///     keeper_until: NEVER,
///     timer_slack: 0,
/// };
/// assert_eq!(obligation(view).scan_by, 0);
/// assert!(obligation(PoolView { target: 2, ..view }).worker);
/// assert_eq!(obligation(PoolView { ready: false, timer: 7, ..view }).scan_by, 7);
/// assert_eq!(obligation(PoolView { ready: false, ..view }), Obligation::NOTHING);
/// ```
#[inline]
pub fn obligation(view: PoolView) -> Obligation {
    if view.counts.waking {
        return Obligation::NOTHING;
    }
    if view.ready && need_more_workers(view.counts, view.target) {
        return Obligation { worker: true, ..Obligation::NOTHING };
    }
    let is_late = view.timer < view.keeper_until;
    let scan_by = match (view.ready || view.scheduled) && view.watcher_helps {
        true => 0,
        false if view.timer != NEVER && !view.counts.kept => {
            view.timer.saturating_add(view.timer_slack)
        }
        false => NEVER,
    };
    Obligation { worker: false, keeper: view.counts.kept && is_late, scan_by }
}

/// Whether a pool that the watcher scans breaks the rule: an item waits, fewer workers run than the
/// target, and none is being woken. This state is normal for the moment between a change and its
/// settling; if it lasts, it is a defect.
#[inline]
pub fn is_stranded(counts: PoolCounts, target: u32, ready: bool) -> bool {
    ready && need_more_workers(counts, target)
}
