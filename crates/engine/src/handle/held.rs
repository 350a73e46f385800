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
//!
//! | bits | set by | meaning |
//! |---|---|---|
//! | 0 to 15 | every queueing and its end | the count |
//! | 16 to 30 | the first operation in a process | the number of forks that led to the process |
//! | 31, WAITED | the frame's owner, once | the owner sleeps on the word until the count is 0 |
//!
//! **Forks.** A frame may be open in a forked child, whose item is idle: queueings of the parent do not
//! end there. So a count belongs to a process. The first operation in a child sees another number of
//! forks and replaces the count, in one step: by 1 if the child has inherited a queueing, which has
//! then not reached its end, otherwise by 0. An end that comes first is that of the inherited
//! queueing, and leaves 0.
//!
//! The release of an item may take long: the engine reports the refused item first, and its thread
//! may be preempted. So the owner sleeps. No wake is lost: each change of the word is one atomic
//! step. The last end of a queueing either comes before WAITED, and then the owner reads 0; or it
//! finds WAITED, and wakes. A wake before the sleep has changed the word, which the futex compares.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::queue::submit::Queued;
use crate::wait::cancel::DepthError;
use crate::words::futex::Futex;
use crate::words::host::Host;
use crate::words::item::Work;
use crate::words::sync::{AtomicU32, Ordering, const_unless_modelled};

/// The count: the owner's queueing, and one for each thread that tries to queue the item.
const COUNT: u32 = (1 << 16) - 1;
/// The number of forks, in its lowest bits.
const FORKS_SHIFT: u32 = 16;
const FORKS: u32 = 0x7fff << FORKS_SHIFT;
/// The frame's owner sleeps on the word.
const WAITED: u32 = 1 << 31;

/// The word without queueings in the process after so many `forks`.
fn none(forks: u32) -> u32 {
    (forks << FORKS_SHIFT) & FORKS
}

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

    /// Makes the count that of this process, the one after `forks` forks. Called before every other
    /// operation except [`Held::end_one`]. `is_queued` tells whether the item is pending or runs.
    #[inline]
    pub fn settle(&self, forks: u32, is_queued: impl Fn() -> bool) {
        // Relaxed: written by the thread that created the frame, or by one of this process.
        let mut now = self.0.load(Ordering::Relaxed);
        while now & FORKS != none(forks) {
            // While the number is an old one, an inherited queueing has not ended: then the item is
            // pending, or its run has begun. It cannot be cancelled meanwhile: a cancel settles first.
            let count = none(forks) + u32::from(is_queued());
            match self.0.compare_exchange(now, count, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Queues the item by `queue`.
    pub fn offer(&self, forks: u32, futex: &impl Futex, queue: impl FnOnce() -> Queued) -> Queued {
        // Before the item can run. Relaxed: the queueing itself publishes it.
        self.0.fetch_add(1, Ordering::Relaxed);
        let outcome = queue();
        if outcome != Queued::Yes {
            // SAFETY: the caller has a reference.
            unsafe { Held::end_one(self, forks, futex) };
        }
        outcome
    }

    /// Ends a queueing: the item's function calls this first, whether the item is run or
    /// released. For a released item this is the last access: the frame may end at once.
    ///
    /// # Safety
    /// `this` is live until the count is 0, which it may become by this call.
    pub unsafe fn end_one(this: *const Held, forks: u32, futex: &impl Futex) {
        // SAFETY: live until the subtraction; only the address is used after that.
        let word = unsafe { &raw const (*this).0 };
        // SAFETY: as above.
        let now = unsafe { (*word).load(Ordering::Relaxed) };
        if now & FORKS != none(forks) {
            // In a child, the end of an inherited queueing. Release: as below.
            // SAFETY: as above: the count is not 0 for the frame's owner until this succeeds.
            let settled = unsafe {
                (*word).compare_exchange(now, none(forks), Ordering::Release, Ordering::Relaxed)
            };
            if settled.is_ok() {
                return;
            }
            // Another thread has settled the word, and counts this queueing.
        }
        // SAFETY: as above. Release: the thread that waits for 0 continues after everything that
        // this side did to the item.
        let before = unsafe { (*word).fetch_sub(1, Ordering::Release) };
        if before & (WAITED | COUNT) == WAITED | 1 {
            futex.wake(word);
        }
    }

    /// Cancels the item, without waiting for a run. True if it was pending.
    ///
    /// # Safety
    /// `work` is the item that is counted here, live, and was only queued on queues of `engine`.
    pub unsafe fn cancel<H: Host>(
        &self,
        engine: &Engine<H>,
        work: NonNull<Work>,
        forks: u32,
        futex: &impl Futex,
    ) -> bool {
        // SAFETY: by this function's contract.
        let was_pending = unsafe { engine.cancel(work) };
        if was_pending {
            // SAFETY: the caller has a reference.
            unsafe { Held::end_one(self, forks, futex) };
        }
        was_pending
    }

    /// Disables the item permanently and waits until the engine no longer uses it: after this the
    /// frame may end. Called once, by the frame's owner. `futex` sets no limit.
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
        forks: u32,
        futex: &impl Futex,
    ) -> Result<(), DepthError> {
        // SAFETY: by this function's contract.
        if unsafe { engine.disable_sync(work) }? {
            // SAFETY: the caller has a reference.
            unsafe { Held::end_one(self, forks, futex) };
        }
        // Acquire: pairs with `end_one`.
        let mut now = self.0.load(Ordering::Acquire);
        // Otherwise an expiry is about to release the item.
        while now & COUNT != 0 {
            if now & WAITED == 0 {
                now = self.0.fetch_or(WAITED, Ordering::Acquire) | WAITED;
                continue;
            }
            let _ = futex.wait(&self.0, now);
            now = self.0.load(Ordering::Acquire);
        }
        Ok(())
    }
}
