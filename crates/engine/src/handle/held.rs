//! When a stack frame that holds an item may end.
//!
//! The engine's last access for a queueing is one of three: the run begins, a cancel dequeues the
//! item, or the engine releases it unrun. The third happens when a timer expires and its queue no
//! longer exists: the engine first makes the item idle and then notifies its holder, so "idle"
//! alone would be too early. [`Held`] counts queueings that have not reached any of these points. A
//! frame may end when
//!
//! 1. the item is disabled, off every list, and no run of it is in progress (`disable_sync`);
//! 2. the count is 0. From there on the engine does not access the item.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::host::Host;
use crate::item::Work;
use crate::queue::submit::Queued;
use crate::sync::{AtomicU32, Ordering, const_unless_modelled};
use crate::wait::cancel::DepthError;

/// The number of queueings of one item that have not ended. See the module.
pub struct Held(AtomicU32);

impl Default for Held {
    fn default() -> Held {
        Held::new()
    }
}

impl Held {
    const_unless_modelled! {
        /// The count of an item that was never queued.
        pub fn new() -> Held {
            Held(AtomicU32::new(0))
        }
    }

    /// Queues the item by `queue`.
    pub fn offer(&self, queue: impl FnOnce() -> Queued) -> Queued {
        // Before the item can run. Relaxed: the queueing itself publishes it.
        self.0.fetch_add(1, Ordering::Relaxed);
        let outcome = queue();
        if outcome != Queued::Yes {
            self.end_one();
        }
        outcome
    }

    /// Ends a queueing: the item's function calls this first, whether the item is run or
    /// released. For a released item this is the last access: the frame may end at once.
    pub fn end_one(&self) {
        // Release: the thread that waits for 0 continues after everything that this side did to the
        // item.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Cancels the item, without waiting for a run. True if it was pending.
    ///
    /// # Safety
    /// `work` is the item that is counted here, live, and was only queued on queues of `engine`.
    pub unsafe fn cancel<H: Host>(&self, engine: &Engine<H>, work: NonNull<Work>) -> bool {
        // SAFETY: by this function's contract.
        let was_pending = unsafe { engine.cancel(work) };
        if was_pending {
            self.end_one();
        }
        was_pending
    }

    /// Disables the item permanently and waits until the engine no longer uses it: after this the
    /// frame may end.
    ///
    /// # Errors
    /// The disable depth is at its maximum; nothing was done.
    ///
    /// # Safety
    /// As for [`Held::cancel`]; and the calling thread is not inside a run of the item.
    pub unsafe fn end<H: Host>(
        &self,
        engine: &Engine<H>,
        work: NonNull<Work>,
    ) -> Result<(), DepthError> {
        // SAFETY: by this function's contract.
        if unsafe { engine.disable_sync(work) }? {
            self.end_one();
        }
        let mut round = 0;
        // Acquire: pairs with `end_one`.
        while self.0.load(Ordering::Acquire) != 0 {
            // An expiry is about to release the item, within some instructions.
            engine.host().relax(round);
            round += 1;
        }
        Ok(())
    }
}
