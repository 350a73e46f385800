//! What a pool's timers ask of its workers: when one must be awake, and how long the keeper may sleep.

use super::progress::TIMER_SLACK_NS;
use super::{NEVER, Pool};
use crate::engine::Engine;
use crate::timer::TimerBase;
use crate::words::host::Host;
use crate::words::sync::Ordering;

impl<H: Host> Pool<H> {
    /// Whether a timer of either kind may expire. A hint.
    #[inline]
    pub(crate) fn has_due_timers(&self, now: u64) -> bool {
        // A thread that must not miss a timer is woken for it, or parks with `next_wake`.
        self.timers.open() <= now || self.deferrable.open() <= now
    }

    /// When a worker must be awake for a timer, or `NEVER`. Deferrable timers count only if no
    /// queue sends items here, because then no other event brings a worker up.
    pub(crate) fn next_wake(&self) -> u64 {
        let next = self.timers.next(Ordering::SeqCst);
        if self.has_no_routes() { next.min(self.deferrable.next(Ordering::SeqCst)) } else { next }
    }

    /// How long the window is that ends at [`Pool::next_wake`]. A hint.
    pub(crate) fn slack_of_next_wake(&self) -> u64 {
        let next = |base: &TimerBase<H>| base.next(Ordering::Relaxed);
        let by_deferrable = self.has_no_routes() && next(&self.deferrable) < next(&self.timers);
        if by_deferrable { self.deferrable.slack_ns() } else { self.timers.slack_ns() }
    }

    /// The wheels of the timers for which a worker must be awake: those of [`Pool::next_wake`].
    pub(crate) fn waking_bases(&self) -> impl Iterator<Item = &TimerBase<H>> {
        let deferrable = self.has_no_routes().then_some(&self.deferrable);
        std::iter::once(&self.timers).chain(deferrable)
    }

    /// Both wheels.
    pub(crate) fn timer_bases(&self) -> [&TimerBase<H>; 2] {
        [&self.timers, &self.deferrable]
    }

    /// Whether a timer of either kind is armed.
    pub(crate) fn has_timers(&self) -> bool {
        let next = |base: &TimerBase<H>| base.next(Ordering::SeqCst);
        next(&self.timers) != NEVER || next(&self.deferrable) != NEVER
    }

    /// How long the keeper may sleep. Under the pool lock.
    ///
    /// SeqCst: the keeper first stores KEPT and `NEVER`, then reads the timers. A thread that arms
    /// an earlier timer publishes it first, then reads `keeper_until`. It finds `NEVER`, or a time
    /// that takes the new timer into account, or a time later than the timer, and then it wakes the
    /// keeper. Otherwise the keeper's read finds the timer.
    ///
    /// While another thread fires a wheel, the keeper need not wake for that wheel. It reads that
    /// after the wheel's `next`. The thread that fires publishes `next`, gives its right back, and
    /// settles: then it finds `keeper_until`, and wakes the keeper if that is too late.
    pub(crate) fn keep_until(&self, engine: &Engine<H>) -> u64 {
        let next = self.next_wake();
        let is_firing = self.timers.is_firing() || self.deferrable.is_firing();
        if self.keeper_until.load(Ordering::Relaxed) == next && !is_firing {
            return next;
        }
        self.keeper_until.store(NEVER, Ordering::SeqCst);
        let soon = || engine.host().now().saturating_add(TIMER_SLACK_NS);
        let until = self.waking_bases().map(|base| {
            let next = base.next(Ordering::SeqCst);
            if base.is_firing() { next.max(soon()) } else { next }
        });
        let until = until.min().unwrap_or(NEVER);
        self.keeper_until.store(until, Ordering::SeqCst);
        until
    }
}
