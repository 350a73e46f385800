//! Things that are under way, and how to wait for those that have begun, but for none that begin later.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 30 | how many are under way that have begun on side 0 |
//! | 31 to 61 | the same of side 1 |
//! | 62 | somebody waits |
//! | 63 | the side on which newcomers begin |
//!
//! Who waits makes the other side the newcomers' and waits until the one before is empty: for those that came
//! before, and for no newcomer, so that it ends however many come. `docs/percpu.md` argues why that misses nobody.

use crate::host::Host;
use crate::sync::{AtomicU64, Ordering, fence};

/// Which side newcomers are on.
const CURRENT: u64 = 1 << 63;
const WAITING: u64 = 1 << 62;
/// Of each side. More threads than that cannot be.
const COUNT_BITS: u32 = 31;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// See the module.
pub struct Underway<H: Host> {
    word: AtomicU64,
    /// Where the one who waits sleeps.
    ended: H::Event,
}

/// Where something has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what begins ends"]
pub struct Side {
    shift: u32,
}

impl Side {
    fn of_newcomers(word: u64) -> Side {
        Side { shift: if word & CURRENT == 0 { 0 } else { COUNT_BITS } }
    }

    fn count(self, word: u64) -> u64 {
        word >> self.shift & COUNT
    }
}

impl<H: Host> Default for Underway<H> {
    fn default() -> Underway<H> {
        Underway { word: AtomicU64::new(0), ended: H::Event::default() }
    }
}

impl<H: Host> Underway<H> {
    /// Something begins. Whoever sees a store that the caller makes afterwards, and then calls [`Underway::turn`],
    /// waits for it.
    pub fn begin(&self) -> Side {
        let mut word = self.word.load(Ordering::Relaxed);
        // Relaxed: ordered by the fence.
        while let Err(now) = self.word.compare_exchange_weak(
            word,
            word + (1 << Side::of_newcomers(word).shift),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = now;
        }
        // Pairs with that of `turn`: who sees what is stored next, sees the count.
        fence(Ordering::Release);
        Side::of_newcomers(word)
    }

    /// It ends.
    pub fn end(&self, host: &H, side: Side) {
        // Release: who waits sees what was done. Acquire: and what the others did that have ended before.
        let before = self.word.fetch_sub(1 << side.shift, Ordering::AcqRel);
        // Either the waiter has said before that it waits, and we see that; or it says so later, and then looks
        // at a count without us.
        if before & WAITING != 0 && side.count(before) == 1 {
            // SAFETY: borrowed, as the whole is.
            unsafe { host.wake(&raw const self.ended) };
        }
    }

    /// Has newcomers begin on the other side. The side to wait for, if something is under way there. One thread at a
    /// time, until its wait is over.
    pub fn turn(&self) -> Option<Side> {
        // Pairs with that of `begin`.
        fence(Ordering::Acquire);
        // Acquire: what has ended is seen.
        let before = self.word.fetch_xor(CURRENT, Ordering::AcqRel);
        let side = Side::of_newcomers(before);
        (side.count(before) > 0).then_some(side)
    }

    /// Waits until nothing is under way on a side that [`Underway::turn`] gave.
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
