//! Timers that no parked worker keeps: the watch sleeps no longer than until the first of them.
//!
//! A worker that parks keeps its pool's timers. When it is woken for an item and no other worker is parked,
//! its pool's timers are left to the workers that run, which look at them between two batches. An item may
//! run or sleep for long, so the watch must wake in time as well. To call it for each batch would cost a wake
//! each; it is called only where it would sleep past the timer:
//!
//! ```text
//! a worker, before its batch            the watch, before it sleeps
//! (keeper = none, timer armed)          timers_at = NEVER
//! awake, or timers_at <= timer ?        all pools: the next timer that is not kept
//!   no: wakes the watch                 timers_at = that time; sleeps until then
//! ```
//!
//! All of these are sequentially consistent. A worker that finds an old `timers_at` has made its change before
//! the watch began to look, which therefore finds the timer. A worker that finds `NEVER` wakes the watch, which
//! looks again. The same holds for a thread that arms a timer where none is kept.
//!
//! Nor is it called where it will look at the CPUs before that timer ([`super::changes`]), as it does while any
//! worker is at work: it looks at the timers then as well.
//!
//! A pool whose timers were left since the last look stays covered, though a worker keeps them again: it is
//! woken for items, and would call the watch for each timer. So a timer costs at most one more wake, by a
//! clock and not across CPUs, and none where nothing but timers wakes the pool.
//!
//! Where a pool's items are short, a worker is expected at the timer before the watch, which therefore looks up to
//! [`TIMER_SLACK_NS`] later. It brings a worker up for a timer that is overdue, above the target as well; where none
//! can come it queues the due items itself, so that a rescuer may take them.

use super::{ASLEEP, NO_LOOK};
use crate::engine::Engine;
use crate::host::{Cure, Host};
use crate::pool::progress::TIMER_SLACK_NS;
use crate::pool::{NEVER, Pool};
use crate::sync::Ordering;

impl<H: Host> Engine<H> {
    /// The watch must look at timers at this time at the latest.
    pub(crate) fn call_watch_by(&self, at: u64) {
        let watch = self.watch_state();
        let look_at = watch.next_look.load(Ordering::SeqCst);
        let looks_before = (look_at != NO_LOOK && look_at <= at)
            || watch.called.load(Ordering::SeqCst)
            || watch.awake.load(Ordering::SeqCst) != ASLEEP
            || watch.timers_at.load(Ordering::SeqCst) <= at;
        if !looks_before {
            // Before the wake: the next thread need not call again. The watch overwrites it when it looks.
            watch.timers_at.fetch_min(at, Ordering::SeqCst);
            self.nudge_watch();
        }
    }

    /// Serves the timers that are overdue, and says when the next one that no worker keeps will be. The watch
    /// is about to sleep until then.
    pub(super) fn look_at_timers(&self) -> u64 {
        let watch = self.watch_state();
        watch.timers_at.store(NEVER, Ordering::SeqCst);
        let until = self.serve_timers(self.host().now(), true);
        watch.timers_at.store(until, Ordering::SeqCst);
        until
    }

    /// Brings a worker up for timers that are overdue without a worker that keeps them. When the next one will be.
    /// `sleeps`: the watch will not look again before that.
    pub(super) fn serve_timers(&self, now: u64, sleeps: bool) -> u64 {
        let (mut until, mut overdue) = (NEVER, Vec::new());
        if self.host().reverts(Cure::KeptTimers) {
            return until;
        }
        self.for_each_pool(|pool| {
            let Some(at) = left_timer(pool, now, sleeps) else { return };
            if at > now {
                until = until.min(at);
            } else if !pool.state.counts().kept {
                overdue.push(pool.id);
            }
        });
        for id in overdue {
            let pool = self.pool(id);
            self.bring_for_timers(pool, now);
            if pool.next_wake() != NEVER {
                // Should it not come, or not soon: once more.
                until = until.min(now.saturating_add(TIMER_SLACK_NS));
            }
        }
        until
    }
}

/// When the watch must look at this pool's timers, if that is left to it.
fn left_timer<H: Host>(pool: &Pool<H>, now: u64, sleeps: bool) -> Option<u64> {
    let next = pool.next_wake();
    if next == NEVER || pool.state.is_retired() {
        return None;
    }
    let was_left = sleeps && pool.take_left_timers();
    match pool.state.counts().kept {
        false => Some(next.saturating_add(slack(pool, next, now))),
        true if was_left => Some(next.saturating_add(TIMER_SLACK_NS)),
        true => None,
    }
}

/// How much later than a timer that no worker keeps the watch looks after it. Not later, where those that run are
/// not expected to be back in time.
fn slack<H: Host>(pool: &Pool<H>, timer: u64, now: u64) -> u64 {
    let since_take = now.saturating_sub(pool.last_take.load(Ordering::Relaxed));
    let is_far = timer.saturating_sub(now) >= TIMER_SLACK_NS;
    if is_far || since_take >= TIMER_SLACK_NS { 0 } else { pool.timer_slack() }
}
