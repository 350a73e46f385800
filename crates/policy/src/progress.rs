//! What a pool owes its items and timers after it has changed: which thread must be woken, and when.
//!
//! One snapshot in, one obligation out. The rule that it keeps, at any instant, for a pool in which an item
//! waits or an armed timer may wake:
//!
//! - a worker is on its way up; or
//! - as many workers run as should, and the watch looks at the pool within a bounded time; or
//! - no worker can be made, rescuers are called, and the watch tries again; or
//! - for a timer alone: a parked worker, or the watch, sleeps no longer than until that timer.
//!
//! The engine asks after each change that may have broken the rule, and does what is answered.

use crate::concurrency::{PoolCounts, need_more_workers};

/// No timer is armed, or no worker sleeps for one.
pub const NEVER: u64 = u64::MAX;

/// A pool at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Its workers.
    pub counts: PoolCounts,
    /// Workers that should run while an item waits.
    pub target: u32,
    /// Whether a queue has items here that a worker could take.
    pub ready: bool,
    /// Whether items were taken and wait behind one that runs.
    pub scheduled: bool,
    /// Whether the watch can do anything for items that wait behind running workers.
    pub watch_helps: bool,
    /// When the next timer that may wake a worker expires; [`NEVER`].
    pub timer: u64,
    /// Until when the parked worker that keeps the timers sleeps. [`NEVER`] if it has not said.
    pub kept_until: u64,
    /// How much later than the timer the watch may look after it.
    pub timer_slack: u64,
}

/// What is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an obligation that is not met leaves items or timers behind"]
pub struct Obligation {
    /// One more worker must come up, an idle one or a new one. It asks again before it runs anything.
    pub worker: bool,
    /// The parked worker that keeps the timers must look at them again.
    pub keeper: bool,
    /// The watch must look at this time at the latest; 0: now, [`NEVER`]: it need not.
    pub look: u64,
}

impl Obligation {
    /// The pool is looked after.
    pub const NOTHING: Obligation = Obligation { worker: false, keeper: false, look: NEVER };
}

/// What a pool owes.
///
/// A worker on its way up is enough: it looks at timers and items when it has arrived, and asks again before
/// it runs anything.
///
/// ```
/// use uwork_policy::concurrency::PoolCounts;
/// use uwork_policy::progress::{NEVER, Obligation, PoolView, obligation};
/// let view = PoolView {
///     counts: PoolCounts { running: 1, workers: 1, ..PoolCounts::default() },
///     target: 1,
///     ready: true,
///     scheduled: false,
///     watch_helps: true,
///     timer: NEVER,
///     kept_until: NEVER,
///     timer_slack: 0,
/// };
/// assert_eq!(obligation(view).look, 0);
/// assert!(obligation(PoolView { target: 2, ..view }).worker);
/// assert_eq!(obligation(PoolView { ready: false, timer: 7, ..view }).look, 7);
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
    let is_late = view.timer < view.kept_until;
    let look = match (view.ready || view.scheduled) && view.watch_helps {
        true => 0,
        false if view.timer != NEVER && !view.counts.kept => {
            view.timer.saturating_add(view.timer_slack)
        }
        false => NEVER,
    };
    Obligation { worker: false, keeper: view.counts.kept && is_late, look }
}

/// Whether a pool that the watch looks at breaks the rule: an item waits, fewer workers run than should, and
/// none is on its way up. For a moment that is so between any change and what follows it; for long it is a
/// defect.
#[inline]
pub fn is_stranded(counts: PoolCounts, target: u32, ready: bool) -> bool {
    ready && need_more_workers(counts, target)
}
