//! A call of the rescuer of a pwq's queue.

use super::Pwq;
use crate::words::host::Host;
use crate::words::sync::Ordering;

impl<H: Host> Pwq<H> {
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
