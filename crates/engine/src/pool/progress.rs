//! The one place that sees to it that a pool goes on: what must follow a change of the pool.
//!
//! README.md has the rule and why it holds. A change that may leave an item or a timer behind returns
//! [`Unsettled`]; the caller gives up its locks and settles. Settling takes one snapshot, asks
//! `uwork_policy::progress` what is owed, and does it. Nothing else decides whether a worker must come up, a
//! keeper must look again, or the watch must look.

use uwork_policy::blocking::Tier;
use uwork_policy::progress::{Obligation, PoolView, obligation};

use super::{NEVER, Pool};
use crate::engine::Engine;
use crate::host::{Cure, Host};
use crate::pwq::Pwq;
use crate::sync::Ordering;

/// Items that take this long keep a worker from the timers for too long.
const LONG_ITEM_NS: u64 = 1_000_000;
/// How much later than a timer the watch looks after it, where a worker is expected to be there first.
pub(crate) const TIMER_SLACK_NS: u64 = 200_000;

/// A pool has changed, and may owe something: settle it once every lock is released.
#[must_use = "a change that is not settled may leave an item or a timer behind"]
pub(crate) struct Unsettled<'a, H: Host>(&'a Pool<H>);

impl<'a, H: Host> Unsettled<'a, H> {
    pub(super) fn new(pool: &'a Pool<H>) -> Self {
        Unsettled(pool)
    }

    /// Sees to it that the pool goes on.
    pub(crate) fn settle(self, engine: &Engine<H>) {
        engine.settle(self.take());
    }

    /// As [`Unsettled::settle`], for a thread that queues items and is not to make threads for it: the watch
    /// makes a worker that is missing, unless the pool has none at all.
    #[inline]
    pub(crate) fn settle_for_submitter(self, engine: &Engine<H>) {
        let pool = self.take();
        let owed = obligation(pool.view_of_submitter());
        if owed == Obligation::NOTHING || pool.is_served_by_caller(engine) {
            // The caller may be a worker of the pool between two items, whose next step ends with the pool settled.
            return;
        }
        if !owed.worker {
            return engine.call_watch(pool);
        }
        engine.settle_with(pool, Maker::Watch);
    }

    /// As [`Unsettled::settle`], for a thread that arms timers and is not to make threads for it.
    pub(crate) fn settle_made_by_watch(self, engine: &Engine<H>) {
        engine.settle_with(self.take(), Maker::Watch);
    }

    /// The caller is a worker of the pool between two items. Its next step ends with the pool settled.
    pub(crate) fn left_to_caller(self, engine: &Engine<H>) {
        debug_assert!(
            self.0.is_served_by_caller(engine),
            "only a worker that looks next may leave it"
        );
        let _ = self.take();
    }

    /// In a model of a part of the engine, in which no worker is missed.
    #[cfg(test)]
    #[allow(dead_code, reason = "only models have pools without an engine")]
    pub(crate) fn in_a_model(self) {
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

/// Which thread makes a worker that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The one that finds it missing: a worker, the watch, or a thread that may take its time.
    Caller,
    /// The watch, if it exists and the pool has a worker already.
    Watch,
}

impl<H: Host> Pool<H> {
    /// The pool at this instant.
    ///
    /// Each part is read with sequentially consistent loads, after the caller's change: see README.md for
    /// the pairs that this makes.
    #[inline]
    fn view(&self, engine: &Engine<H>) -> PoolView {
        let counts = self.state.counts();
        let timer = if self.state.is_retired() { NEVER } else { self.next_wake() };
        PoolView {
            counts,
            target: self.target(),
            ready: self.looks_ready(),
            scheduled: self.lined_up.load(Ordering::SeqCst) > 0,
            watch_helps: engine.watch_helps(self),
            timer,
            kept_until: self.kept_until(),
            timer_slack: self.timer_slack(),
        }
    }

    /// The pool at this instant as far as it matters to a thread that has made a pwq ready: that leaves no timer
    /// uncovered.
    #[inline]
    fn view_of_submitter(&self) -> PoolView {
        PoolView {
            counts: self.state.counts(),
            target: self.target(),
            ready: true,
            scheduled: false,
            watch_helps: true,
            timer: NEVER,
            kept_until: NEVER,
            timer_slack: 0,
        }
    }

    /// How much later than the next timer the watch may look after it.
    pub(crate) fn timer_slack(&self) -> u64 {
        let long = self.item_ns.load(Ordering::Relaxed) >= LONG_ITEM_NS;
        if long { 0 } else { TIMER_SLACK_NS }
    }
}

impl<H: Host> Engine<H> {
    /// Sees to it that a pool goes on, after any change. Without locks held.
    #[inline]
    pub(crate) fn settle(&self, pool: &Pool<H>) {
        self.settle_with(pool, Maker::Caller);
    }

    #[inline]
    fn settle_with(&self, pool: &Pool<H>, maker: Maker) {
        loop {
            let owed = obligation(pool.view(self));
            if owed == Obligation::NOTHING {
                return;
            }
            if !owed.worker {
                return self.call_for(pool, owed);
            }
            if pool.state.begin_wake(pool.target()) {
                self.bring_worker(pool, maker);
                return;
            }
            // The counters have changed since the snapshot, so what is owed may have as well.
        }
    }

    /// The pool has all the workers that it should have: lets one that is parked, or the watch, look.
    fn call_for(&self, pool: &Pool<H>, owed: Obligation) {
        if owed.keeper {
            let keeper = pool.lock().keeper;
            if let Some(id) = keeper {
                pool.nudge(self, id);
            }
        }
        if owed.look == 0 {
            self.call_watch(pool);
        } else if owed.look != NEVER && !self.host().reverts(Cure::KeptTimers) {
            pool.note_left_timers();
            self.call_watch_by(owed.look);
        }
    }

    /// Whether a look of the watch at items that wait behind running workers can be of use.
    pub(crate) fn watch_helps(&self, pool: &Pool<H>) -> bool {
        let finds = self.hogs().is_on() || self.host().tier() != Tier::Declared;
        pool.others_may_help() || (finds && !pool.spec().single)
    }

    /// Puts a pwq whose readiness the caller claimed on its list. What waits in it was queued before,
    /// and those who queue more find it ready and do not look.
    pub(crate) fn make_ready(&self, pwq: &Pwq<H>) {
        pwq.home().push_ready(pwq).settle(self);
    }

    /// Brings one more worker up, if fewer run than should, whether or not an item waits in this pool: it
    /// finds one elsewhere.
    pub(crate) fn bring_helper(&self, pool: &Pool<H>) {
        if pool.state.begin_wake(pool.target()) {
            self.bring_worker(pool, Maker::Caller);
        }
    }

    /// A timer of `pool` is overdue, and no worker has come for it. Called by the watch.
    pub(crate) fn bring_for_timers(&self, pool: &Pool<H>, now: u64) {
        // One that is on its way up sees the timers. Above the target as well: this one will find nothing else
        // to do, and park.
        if pool.state.begin_wake(u32::MAX) && !self.bring_worker(pool, Maker::Caller) {
            // No worker can come. There may be a rescuer for what is queued now.
            self.fire_timers_as_watch(pool, now);
        }
    }
}
