//! The one place that keeps the rule of progress: what must follow a change of a pool.
//!
//! README.md states the rule and its proof. A change that may leave an item or a timer behind
//! returns [`Unsettled`]; the caller releases its locks and settles. Settling takes one snapshot,
//! asks `uwork_policy::progress` what the pool is owed, and does it. No other code decides whether
//! a worker must come up, a keeper must check its timers, or the watcher must scan.

use uwork_policy::blocking::Tier;
use uwork_policy::progress::{Obligation, PoolView, obligation};

use super::{CalledBy, NEVER, Pool};
use crate::engine::Engine;
use crate::queue::pwq::Pwq;
use crate::words::host::{Host, Observer};

/// Items that take this long keep a worker away from the timers for too long.
const LONG_ITEM_NS: u64 = 1_000_000;
/// How long after a due timer the watcher checks it, if a worker is expected to fire it first.
pub(crate) const TIMER_SLACK_NS: u64 = 200_000;

/// A pool has changed and may be owed a worker or a scan: settle it once every lock is released.
#[must_use = "a change that is not settled may leave an item or a timer behind"]
pub(crate) struct Unsettled<'a, H: Host>(&'a Pool<H>);

impl<'a, H: Host> Unsettled<'a, H> {
    pub(super) fn new(pool: &'a Pool<H>) -> Self {
        Unsettled(pool)
    }

    /// Does what the pool is owed after the change.
    pub(crate) fn settle(self, engine: &Engine<H>) {
        self.take().settle(engine);
    }

    /// As [`Unsettled::settle`], for a submitter, which must not spawn threads: the watcher spawns
    /// a missing worker, unless the pool has no worker at all.
    #[inline]
    pub(crate) fn settle_for_submitter(self, engine: &Engine<H>) {
        let pool = self.take();
        let owed = obligation(pool.view_of_submitter());
        if owed == Obligation::NOTHING || pool.is_served_by_caller(engine) {
            // The caller may be a worker of the pool between two items; it settles the pool in its
            // next step.
            return;
        }
        if !owed.worker {
            return pool.call_watch(engine);
        }
        pool.settle_with(engine, Maker::Watch);
    }

    /// As [`Unsettled::settle`], after a claim for a neighbour's work was given up.
    pub(crate) fn settle_for_neighbour(self, engine: &Engine<H>) {
        self.take().settle_with(engine, Maker::Neighbour);
    }

    /// As [`Unsettled::settle`], for a thread that arms timers, which must not spawn threads.
    pub(crate) fn settle_for_arming_thread(self, engine: &Engine<H>) {
        self.take().settle_with(engine, Maker::Watch);
    }

    /// Leaves the change to the caller, a worker of the pool between two items. Its next step ends
    /// with the pool settled.
    pub(crate) fn settled_by_caller(self, engine: &Engine<H>) {
        debug_assert!(
            self.0.is_served_by_caller(engine),
            "only a worker that scans next may defer the settlement"
        );
        let _ = self.take();
    }

    /// For models of a part of the engine that has no pool to settle.
    #[cfg(test)]
    #[allow(dead_code, reason = "only models have pools without an engine")]
    pub(crate) fn ignore_in_model(self) {
        let _ = self.take();
    }

    fn take(self) -> &'a Pool<H> {
        let pool = self.0;
        std::mem::forget(self);
        pool
    }
}

impl<H: Host> Drop for Unsettled<'_, H> {
    fn drop(&mut self) {
        debug_assert!(std::thread::panicking(), "a change of a pool was not settled");
    }
}

/// The thread that spawns a missing worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The thread that finds it missing: a worker, the watcher, or a thread that may take its time.
    Caller,
    /// The watcher, if it runs and the pool has a worker already.
    Watch,
    /// As `Caller`, after a claim for a neighbour's work was given up. If no worker can come, no
    /// further neighbour is woken: that could go on from pool to pool without bound.
    Neighbour,
}

impl<H: Host> Pool<H> {
    /// A snapshot of the pool.
    ///
    /// Each part is read with a sequentially consistent load, after the caller's change. README.md
    /// lists the pairs that this forms: with a worker that parks, and with a keeper that publishes
    /// `keeper_until`.
    #[inline]
    fn view(&self, engine: &Engine<H>) -> PoolView {
        let counts = self.state.counts();
        let timer = if self.state.is_retired() { NEVER } else { self.next_wake() };
        PoolView {
            counts,
            target: self.target(),
            ready: self.looks_ready(),
            scheduled: self.has_scheduled_batches(),
            watcher_helps: self.watcher_helps(engine),
            timer,
            keeper_until: self.keeper_until(),
            timer_slack: self.timer_slack(),
        }
    }

    /// The part of the snapshot that matters to a thread that has made a pwq ready. That change
    /// leaves no timer uncovered.
    #[inline]
    fn view_of_submitter(&self) -> PoolView {
        PoolView {
            counts: self.state.counts(),
            target: self.target(),
            ready: true,
            scheduled: false,
            watcher_helps: true,
            timer: NEVER,
            keeper_until: NEVER,
            timer_slack: 0,
        }
    }

    /// How long after the next timer's expiry the watcher may check it.
    pub(crate) fn timer_slack(&self) -> u64 {
        let long = self.estimate().item_ns >= LONG_ITEM_NS;
        if long { 0 } else { TIMER_SLACK_NS }
    }
}

impl<H: Host> Pwq<H> {
    /// Puts a pwq, whose readiness the caller claimed, on its list, and settles. This covers items
    /// that other submitters enqueued before: those found the pwq ready and did not settle.
    pub(crate) fn make_ready(&self, engine: &Engine<H>) {
        self.home().push_ready(self).settle(engine);
    }
}

impl<H: Host> Pool<H> {
    /// Does what a pool is owed, after any change. The caller holds no lock.
    #[inline]
    pub(crate) fn settle(&self, engine: &Engine<H>) {
        self.settle_with(engine, Maker::Caller);
    }

    #[inline]
    fn settle_with(&self, engine: &Engine<H>, maker: Maker) {
        loop {
            let owed = obligation(self.view(engine));
            if owed == Obligation::NOTHING {
                return;
            }
            if !owed.worker {
                return self.call_for(engine, owed);
            }
            if self.state.begin_wake(self.target()) {
                self.bring_worker(engine, maker);
                return;
            }
            // The counters have changed since the snapshot, so what is owed may have as well.
        }
    }

    /// The pool has enough workers: calls the keeper or the watcher, as owed.
    fn call_for(&self, engine: &Engine<H>, owed: Obligation) {
        if owed.keeper {
            let keeper = self.lock().keeper;
            if let Some(id) = keeper {
                self.wake_parked(engine, id);
            }
        }
        if owed.scan_by == 0 {
            self.call_watch(engine);
        } else if owed.scan_by != NEVER && !self.spares_watcher() {
            self.note_left_timers();
            engine.watch.call_by(engine, owed.scan_by);
        }
    }

    /// Whether a scan by the watcher can help items that wait behind running workers.
    pub(crate) fn watcher_helps(&self, engine: &Engine<H>) -> bool {
        let finds = engine.hogs.is_on() || engine.observer().tier() != Tier::Declared;
        // A saving pool gets more workers if one is not enough.
        self.others_may_help() || self.spec().saves || (finds && !self.spec().single)
    }

    /// Brings up one more worker if fewer run than the target, even if no item waits in this pool:
    /// the worker finds the work of `called_by`.
    pub(crate) fn bring_helper(&self, engine: &Engine<H>, called_by: CalledBy) {
        if self.state.begin_wake(self.target_for_neighbours()) {
            self.comes_to_help.mark(called_by);
            self.bring_worker(engine, Maker::Caller);
        }
    }

    /// A timer of this pool is overdue, and no worker has fired it. Called by the watcher.
    pub(crate) fn bring_for_timers(&self, engine: &Engine<H>, now: u64) {
        // A worker on its way up sees the timers. A worker is brought up even above the target; it
        // finds nothing else to do, and parks.
        if self.state.begin_wake(u32::MAX) && !self.bring_worker(engine, Maker::Caller) {
            // No worker can come. A rescuer may serve the items that the timers enqueue.
            self.fire_timers_as_watcher(engine, now);
        }
    }
}
