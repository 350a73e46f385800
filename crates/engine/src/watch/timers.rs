//! Timers that no keeper covers: the watcher sleeps no longer than until the first of them.
//!
//! A worker that parks as its pool's keeper covers the pool's timers. When the keeper is woken for
//! an item and no other worker is parked, the timers are left to the running workers, which check
//! them between two batches. An item may run or sleep for long, so the watcher must wake in time as
//! well. A call for each batch would cost a wake each, so a worker calls the watcher only if it
//! would sleep past the timer:
//!
//! ```text
//! a worker, before its batch               the watcher, before it sleeps
//! W1: keeper = none (a timer is armed)     W2: timers_at = NEVER
//! R1: awake, or timers_at <= timer ?       R2: all pools: the next timer without a keeper
//!   no: wakes the watcher                  timers_at = that time; sleeps until then
//! ```
//!
//! This is a Dekker pair, sequentially consistent on both sides. If R1 reads an old `timers_at`, it
//! precedes W2, so W1 precedes R2, and the watcher finds the timer. If R1 reads `NEVER`, the worker
//! wakes the watcher, which scans again. Otherwise R1 reads the new time, which is correct. The
//! same holds for a thread that arms a timer in a pool without a keeper: arming is its W1. The lost
//! event would be a timer that expires with no thread awake for it.
//!
//! The worker does not call the watcher either if a check of the CPUs is due before that timer
//! ([`super::changes`]), as it is while any worker runs: the watcher serves the timers then as
//! well.
//!
//! A pool whose timers were uncovered since the last scan stays covered by the watcher, even if it
//! has a keeper again: the keeper is woken for items, and would call the watcher for each timer. So
//! a timer costs at most one more wake, by a clock and not across CPUs, and none where only timers
//! wake the pool.
//!
//! Where a pool's items are short, a worker is expected at the timer before the watcher, which
//! therefore wakes up to [`TIMER_SLACK_NS`] later. It wakes or creates a worker for an overdue
//! timer, even above the target, unless a thread fires the timer's wheel. If no worker can be had, it
//! queues the due items itself, so that a rescuer may take them.

use super::Watch;
use super::{ASLEEP, NO_CHECK};
use crate::engine::Engine;
use crate::pool::progress::TIMER_SLACK_NS;
use crate::pool::{NEVER, Pool};
use crate::words::host::Host;
use crate::words::sync::Ordering;

impl<H: Host> Watch<H> {
    /// Makes the watcher serve timers at `at` at the latest.
    pub(crate) fn call_by(&self, engine: &Engine<H>, at: u64) {
        // R1 of the module's diagram.
        let watch = self;
        let check_at = watch.next_check.load(Ordering::SeqCst);
        let scans_before = (check_at != NO_CHECK && check_at <= at)
            || watch.called.load(Ordering::SeqCst)
            || watch.awake.load(Ordering::SeqCst) != ASLEEP
            || watch.timers_at.load(Ordering::SeqCst) <= at;
        if !scans_before {
            // Before the wake, so that the next thread need not call again. The watcher overwrites
            // it when it scans.
            watch.timers_at.fetch_min(at, Ordering::SeqCst);
            self.wake_for_scan(engine);
        }
    }

    /// Serves the overdue timers. Returns when the next one without a keeper is due; the watcher is
    /// about to sleep until then.
    pub(super) fn serve_due_timers(&self, engine: &Engine<H>) -> u64 {
        let watch = self;
        // W2 before R2 (see the module).
        watch.timers_at.store(NEVER, Ordering::SeqCst);
        let until = self.serve_timers(engine, engine.host().now(), true);
        watch.timers_at.store(until, Ordering::SeqCst);
        until
    }

    /// Wakes or creates a worker for each pool with overdue timers and no keeper. Returns when the
    /// next timer is due. `sleeps`: the watcher will not scan again before that.
    pub(super) fn serve_timers(&self, engine: &Engine<H>, now: u64, sleeps: bool) -> u64 {
        let (mut until, mut overdue) = (NEVER, Vec::new());
        engine.for_each_pool(|pool| {
            let Some(at) = left_timer(pool, now, sleeps) else { return };
            if at > now {
                until = until.min(at);
            } else if !pool.has_unfired_wakes(now) {
                until = until.min(now.saturating_add(TIMER_SLACK_NS));
            } else if !pool.state.counts().kept {
                overdue.push(pool.id);
            }
        });
        for id in overdue {
            let pool = engine.pool(id);
            pool.bring_for_timers(engine, now);
            if pool.next_wake() != NEVER {
                // The worker may fail to come, or come late: check once more.
                until = until.min(now.saturating_add(TIMER_SLACK_NS));
            }
        }
        until
    }
}

/// When the watcher must serve this pool's timers; `None` if the keeper does.
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

/// How much later than a timer without a keeper the watcher serves it: 0 if the running workers are
/// not expected to end their batches in time.
fn slack<H: Host>(pool: &Pool<H>, timer: u64, now: u64) -> u64 {
    let since_take = pool.since_progress(now);
    let is_far = timer.saturating_sub(now) >= TIMER_SLACK_NS;
    if is_far || since_take >= TIMER_SLACK_NS { 0 } else { pool.timer_slack() }
}
