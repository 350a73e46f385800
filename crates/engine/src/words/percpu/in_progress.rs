//! Operations in progress, and a wait for those that have begun, but for none that begin later.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 30 | the number of operations in progress that began on side 0 |
//! | 31 to 61 | the same for side 1 |
//! | 62 | a waiter waits |
//! | 63 | the side on which new operations begin |
//!
//! The waiter flips the side that new operations use, then waits until the old side is empty. So it
//! waits for those that began before, and for no new operation, and ends no matter how many begin.
//! The README of `uwork-percpu` proves that no operation is missed.

use crate::words::host::Host;
use crate::words::sync::{AtomicU64, Ordering, fence};

/// The side on which new operations begin.
const CURRENT: u64 = 1 << 63;
const WAITING: u64 = 1 << 62;
/// Of each side. A process cannot have more threads than that.
const COUNT_BITS: u32 = 31;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// See the module.
pub struct InProgress<H: Host> {
    word: AtomicU64,
    /// The waiter sleeps on it.
    ended: H::Event,
}

/// The side on which an operation has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what begins ends"]
pub struct Side {
    shift: u32,
}

impl Side {
    fn of_new_operations(word: u64) -> Side {
        Side { shift: if word & CURRENT == 0 { 0 } else { COUNT_BITS } }
    }

    fn count(self, word: u64) -> u64 {
        word >> self.shift & COUNT
    }
}

impl<H: Host> Default for InProgress<H> {
    fn default() -> InProgress<H> {
        InProgress { word: AtomicU64::new(0), ended: H::Event::default() }
    }
}

impl<H: Host> InProgress<H> {
    /// Begins an operation. A thread that sees a store which the caller makes afterwards, and then
    /// calls [`InProgress::turn`], waits for the operation.
    pub fn begin(&self) -> Side {
        let mut word = self.word.load(Ordering::Relaxed);
        // Relaxed: ordered by the fence.
        while let Err(now) = self.word.compare_exchange_weak(
            word,
            word + (1 << Side::of_new_operations(word).shift),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = now;
        }
        // Pairs with the fence in `turn`: a thread that sees the caller's next store sees the count
        // as well.
        fence(Ordering::Release);
        Side::of_new_operations(word)
    }

    /// Ends an operation.
    pub fn end(&self, host: &H, side: Side) {
        // Release: the waiter sees the effects. Acquire: and those of operations that have ended
        // before.
        let before = self.word.fetch_sub(1 << side.shift, Ordering::AcqRel);
        // One word orders the two sides. Either the waiter has set WAITING before, and this thread
        // sees it and wakes; or it sets WAITING later, and finds a count without this operation.
        if before & WAITING != 0 && side.count(before) == 1 {
            // SAFETY: `self` is borrowed, and so is the event.
            unsafe { host.wake(&raw const self.ended) };
        }
    }

    /// Flips the side on which new operations begin. Returns the side to wait for, if operations
    /// are in progress there. One thread at a time may turn and wait.
    pub fn turn(&self) -> Option<Side> {
        // Pairs with the fence in `begin`.
        fence(Ordering::Acquire);
        // Acquire: the effects of ended operations are visible.
        let before = self.word.fetch_xor(CURRENT, Ordering::AcqRel);
        let side = Side::of_new_operations(before);
        (side.count(before) > 0).then_some(side)
    }

    /// Waits until no operation is in progress on a side that [`InProgress::turn`] returned.
    pub fn wait(&self, host: &H, side: Side) {
        let mut word = self.word.fetch_or(WAITING, Ordering::Acquire);
        while side.count(word) > 0 {
            let _ = host.park(&self.ended, None);
            // Acquire: as in `turn`.
            word = self.word.load(Ordering::Acquire);
        }
        self.word.fetch_and(!WAITING, Ordering::Relaxed);
    }
}
