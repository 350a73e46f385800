//! What a pwq remembers beside its items: how often they block, and a call of its queue's rescuer.

use uwork_policy::blocking::{PRESUME_BLOCKED_AFTER, block_score_after};

use super::Pwq;
use crate::host::Host;
use crate::sync::Ordering;

impl<H: Host> Pwq<H> {
    /// Records whether a run that was sampled for it was blocked.
    pub(crate) fn note_block(&self, slept: bool) {
        // A race with other writers costs a single count.
        let block_score = self.block_score.load(Ordering::Relaxed);
        self.block_score.store(block_score_after(block_score, slept), Ordering::Relaxed);
    }

    /// Whether the next run is presumed to block.
    #[inline]
    pub(crate) fn presumes_block(&self) -> bool {
        self.block_score() >= PRESUME_BLOCKED_AFTER
    }

    /// How many runs in a row were found blocked, within bounds.
    pub(crate) fn block_score(&self) -> u32 {
        self.block_score.load(Ordering::Relaxed)
    }

    /// A pool calls the queue's rescuer for this pwq. Returns false if one calls already.
    pub(crate) fn call_rescuer(&self, pool: u32) -> bool {
        self.mayday.swap(pool + 1, Ordering::SeqCst) == 0
    }

    /// The rescuer calls itself again: its turn comes after those of the other pwqs.
    pub(crate) fn call_rescuer_again(&self, pool: u32) {
        self.mayday.store(pool + 1, Ordering::SeqCst);
    }

    /// Whether a pool calls the rescuer.
    pub(crate) fn calls_rescuer(&self) -> bool {
        self.mayday.load(Ordering::SeqCst) != 0
    }

    /// The rescuer answers. Returns the pool that called.
    pub(crate) fn answer_call(&self) -> Option<u32> {
        self.mayday.swap(0, Ordering::SeqCst).checked_sub(1)
    }
}
