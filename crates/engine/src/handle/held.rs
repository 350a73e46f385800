//! When a frame with an item on it may end.
//!
//! The engine's last touch of a queueing is one of three: the run begins, a cancel takes the item off,
//! or the engine lets go of it unrun. The third is for a timer whose queue is gone: the engine makes the
//! item idle first and then tells its holder, so "idle" alone would be too early. [`Held`] counts
//! queueings that have not come to any of these, and a frame ends when
//!
//! 1. the item is disabled, off every list, and no run of it is going on (`disable_sync`);
//! 2. the count is 0. From there on the engine does not know the item.

use std::ptr::NonNull;

use crate::cancel::DepthError;
use crate::engine::Engine;
use crate::host::Host;
use crate::submit::Queued;
use crate::sync::{AtomicU32, Ordering};
use crate::work::Work;

/// Queueings of one item that have not come to their end. See the module.
pub struct Held(AtomicU32);

impl Default for Held {
    fn default() -> Held {
        Held::new()
    }
}

impl Held {
    /// Of an item that was never queued.
    pub fn new() -> Held {
        Held(AtomicU32::new(0))
    }

    /// Queues the item by `queue`.
    pub fn offer(&self, queue: impl FnOnce() -> Queued) -> Queued {
        // Before the item can run. Relaxed: handed on by the queueing itself.
        self.0.fetch_add(1, Ordering::Relaxed);
        let outcome = queue();
        if outcome != Queued::Yes {
            self.end_one();
        }
        outcome
    }

    /// A queueing has come to its end: the item's function calls this first, whether the item is run or
    /// let go of. For one that is let go of the last touch: the frame may be gone afterwards.
    pub fn end_one(&self) {
        // Release: the thread that waits for 0 goes on after what this side did to the item.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Takes the item off, without waiting for a run. True if it was pending.
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

    /// Disables the item for good and waits until nothing of it is left: after this the frame may end.
    ///
    /// # Errors
    /// The item was disabled as often as can be counted; nothing was done.
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
            // An expiry is about to let go of the item, in some instructions.
            engine.host().relax(round);
            round += 1;
        }
        Ok(())
    }
}
