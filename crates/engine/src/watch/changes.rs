//! The watch looks whether the CPUs have changed ([`crate::cpus`]), while anybody is at work: so
//! that a change is noticed within a second without a worker's doing, and applied by a thread that
//! holds no work and serves no pool. `next_look` says when it will look, or that it will not. A worker
//! that finds the time over wakes it; nobody at work, nobody looks, nobody is woken. Nor does a CPU that
//! came back stay refused: a thread that is refused one calls for a look, as a worker does.
//!
//! ```text
//! a worker that gets to work            the watch
//! running += 1                          next_look = NO_LOOK
//! next_look is over, or NO_LOOK ?       anybody at work ?
//!   yes: claims it, wakes                 yes: next_look = in LOOK_NS, sleeps until then
//! ```
//!
//! Sequentially consistent again. A worker that stops to count while it is in an item is found by its
//! pool's lists instead; one that comes back from a wait asks again.

use crate::engine::Engine;
use crate::host::Host;
use crate::sync::Ordering;
use crate::wake::WakeToken;

use super::NO_LOOK;

/// Times between two looks at the CPUs, at most, while somebody is at work.
const LOOK_NS: u64 = 250_000_000;

impl<H: Host> Engine<H> {
    /// The caller is a worker that gets to work at `now`, or at a time that it does not know.
    #[inline]
    pub(crate) fn be_seen(&self, now: u64) {
        // SeqCst: comes after the count of running workers was raised (see the module).
        if self.watch_state().next_look.load(Ordering::SeqCst) <= now {
            self.call_for_a_look();
        }
    }

    #[cold]
    pub(crate) fn call_for_a_look(&self) {
        if self.host().thread_id() == 0 {
            return;
        }
        let (watch, now) = (self.watch_state(), self.host().now());
        let due = watch.next_look.load(Ordering::SeqCst);
        let next = now.saturating_add(LOOK_NS);
        let claim = |due| {
            watch.next_look.compare_exchange(due, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if due <= now && claim(due) && self.start_watch().is_ok() {
            watch.called.store(true, Ordering::SeqCst);
            // SAFETY: the event lives as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const watch.event) }.send(self.host());
        }
    }

    /// The watch looks at the CPUs if it was asked to or the time has come. Until when it may sleep.
    pub(super) fn look_at_cpus(&self, at: Option<u64>) -> Option<u64> {
        let watch = self.watch_state();
        let called = watch.called.swap(false, Ordering::SeqCst);
        if !called && at.is_none_or(|at| at > self.host().now()) {
            return at;
        }
        if let Some(cpus) = self.host().cpus_changed() {
            self.set_cpus(cpus);
        }
        self.refit_again();
        // First the mark, then the look at who is at work (see the module).
        watch.next_look.store(NO_LOOK, Ordering::SeqCst);
        // Who has called may be done already, and will be back: one more look is less than a call for
        // each item.
        if !called && !self.is_anybody_at_work() {
            return None;
        }
        let next = self.host().now().saturating_add(LOOK_NS);
        watch.next_look.store(next, Ordering::SeqCst);
        Some(next)
    }

    /// Whether any worker looks for items or computes in one.
    fn is_anybody_at_work(&self) -> bool {
        let mut found = false;
        self.for_each_pool(|pool| {
            let counts = pool.state.counts();
            found |= counts.running > 0;
            if !found && counts.workers > counts.idle {
                found = pool.list_workers().iter().any(|&id| self.slot(id).computes());
            }
        });
        found
    }
}
