//! The watcher checks whether the CPUs have changed ([`crate::lifecycle::cpus`]) while any worker is busy. So
//! a change is noticed within a second without effort by a worker, and applied by a thread that
//! holds no work and serves no pool. `next_check` is the time of the next check, or says that none
//! is planned. A worker that finds that time over wakes the watcher. While no worker is busy, there
//! is no check and no wake-up. A CPU that came back does not stay refused either: a thread that is
//! refused a CPU calls for a check, as a worker does.
//!
//! ```text
//! a worker that becomes busy               the watcher
//! W1: running += 1                         W2: next_check = NO_CHECK
//! R1: next_check is over, or NO_CHECK ?      R2: any worker busy ?
//!   yes: claims it, wakes                    yes: next_check = in SCAN_NS, sleeps until then
//! ```
//!
//! R2 counts a pool with a timer that expires before the next check as busy.
//!
//! This is a Dekker pair, sequentially consistent: R1 sees W2, or R2 sees W1. If both missed, a
//! busy process would no longer notice changed CPUs. A worker that stops to count while it is in an
//! item is found by the lists of its pool instead; one that returns from a wait checks `next_check`
//! again.

use super::Watch;
use crate::engine::Engine;
use crate::words::host::Host;
use crate::words::sync::Ordering;
use crate::words::wake::WakeToken;

use super::NO_CHECK;

/// The longest time between two checks of the CPUs while any worker is busy.
const SCAN_NS: u64 = 250_000_000;

impl<H: Host> Watch<H> {
    /// A worker becomes busy at `now`; 0 if it does not know the time. Calls the watcher if a check
    /// is due.
    #[inline]
    pub(crate) fn heartbeat(&self, engine: &Engine<H>, now: u64) {
        // SeqCst: R1, after the count of running workers was raised (see the module).
        if self.next_check.load(Ordering::SeqCst) <= now {
            self.request_check(engine);
        }
    }

    #[cold]
    pub(crate) fn request_check(&self, engine: &Engine<H>) {
        if engine.host().thread_id() == 0 {
            return;
        }
        let (watch, now) = (self, engine.host().now());
        let due = watch.next_check.load(Ordering::SeqCst);
        let next = now.saturating_add(SCAN_NS);
        let claim = |due| {
            watch.next_check.compare_exchange(due, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if due <= now && claim(due) && self.start(engine).is_ok() {
            watch.called.store(true, Ordering::SeqCst);
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(engine.host());
        }
    }

    /// Checks the CPUs if the watcher was called or the time has come. Returns until when the
    /// watcher may sleep.
    pub(super) fn check_cpus(&self, engine: &Engine<H>, at: Option<u64>) -> Option<u64> {
        let watch = self;
        let called = watch.called.swap(false, Ordering::SeqCst);
        if !called && at.is_none_or(|at| at > engine.host().now()) {
            return at;
        }
        if let Some(cpus) = engine.host().cpus_changed() {
            engine.set_cpus(cpus);
        }
        engine.versions.refit_again(engine);
        // W2 before R2: set the mark, then search for busy workers (see the module).
        watch.next_check.store(NO_CHECK, Ordering::SeqCst);
        let next = engine.host().now().saturating_add(SCAN_NS);
        // The worker that called may be done already, and will be busy again: one more check is
        // cheaper than a call for each item.
        if !called && !self.is_any_worker_busy_before(engine, next) {
            return None;
        }
        watch.next_check.store(next, Ordering::SeqCst);
        Some(next)
    }

    /// Whether any worker searches for items or computes in one, is on its way up, or will be for a
    /// timer before `next`. A worker that wakes for its timers would call the watcher, which costs one wake more
    /// than a check that is planned.
    fn is_any_worker_busy_before(&self, engine: &Engine<H>, next: u64) -> bool {
        let mut found = false;
        engine.for_each_pool(|pool| {
            let counts = pool.state.counts();
            found |= counts.running > 0 || counts.waking || pool.next_wake() < next;
            if !found && counts.workers > counts.idle {
                found = pool.list_workers().iter().any(|&id| engine.slot(id).computes());
            }
        });
        found
    }
}
