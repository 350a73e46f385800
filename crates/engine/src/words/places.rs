//! The places of a bounded queue, and the producers that wait for one.
//!
//! One word has both counts:
//!
//! | bits | count | changed by |
//! |---|---|---|
//! | 0 to 39 | free places | `try_take` and `claim`: one fewer; `give`: one more |
//! | 40 to 63 | producers that sleep, or are about to | `announce`: one more; `claim`, `withdraw`: one fewer |
//!
//! Free places never exceed the capacity. A forked child inherits counts of items and producers that do
//! not exist there, and makes all places free before it uses them (`renew`).
//!
//! **No producer sleeps while a place is free.** A producer announces itself only in a step that finds
//! no free place. All steps of the word have one order, so a `give` comes before that step, which then
//! finds its place, or after it, and then sees the producer and wakes:
//!
//! ```text
//! producer                                 release
//! --------                                 -------
//! announce: 0 free, 1 waits
//! seen = freed
//! claim: 0 free
//!                                          give: 1 free, sees that 1 waits
//!                                          freed + 1
//! sleep while freed == seen: returns       wake: no thread sleeps
//! claim: takes the place
//! ```
//!
//! The producer reads `freed` before it looks for a place. If it read the number after the increase,
//! the look finds the place: the increase is a release, the read an acquire, and the place was added
//! before. With the two exchanged, the producer would find no place, then read the increased number,
//! and sleep on it beside the free place.
//!
//! Each `give` wakes one producer, also where other places are free: two sleepers need two wakes. A
//! producer that finds the place of its wake taken sleeps again; the thief's own `give` sees it.
//! A producer whose time is over looks a last time in the step that withdraws its announcement.

use crate::words::futex::Futex;
use crate::words::sync::{AtomicU32, AtomicU64, Ordering};

const FREE_BITS: u32 = 40;
const FREE_MASK: u64 = (1 << FREE_BITS) - 1;
/// A system has at most 2^22 threads, and the count has room for 2^24.
const WAITER: u64 = 1 << FREE_BITS;

/// See the module.
pub struct Places {
    capacity: u64,
    counts: AtomicU64,
    /// How many places were freed while producers waited, which sleep on it. It may wrap: a producer
    /// misses a wake only if exactly 2^32 of them come between its read and its sleep.
    freed: AtomicU32,
}

impl Places {
    /// The maximum capacity.
    pub const CAPACITY_MAX: usize = FREE_MASK as usize;

    /// `capacity` free places, if that is within 1 and [`Places::CAPACITY_MAX`].
    pub fn new(capacity: usize) -> Option<Places> {
        let within = (1..=Places::CAPACITY_MAX).contains(&capacity);
        within.then(|| Places {
            capacity: capacity as u64,
            counts: AtomicU64::new(capacity as u64),
            freed: AtomicU32::new(0),
        })
    }

    /// How many places exist.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// How many places are free. May be out of date on return.
    pub fn free(&self) -> usize {
        (self.counts.load(Ordering::Relaxed) & FREE_MASK) as usize
    }

    /// How many producers wait. May be out of date on return.
    pub fn waiting(&self) -> usize {
        (self.counts.load(Ordering::Relaxed) >> FREE_BITS) as usize
    }

    /// Makes all places free, without producers that wait. For a forked child, whose items and producers
    /// are its parent's, before any of its threads uses the places.
    pub fn renew(&self) {
        // Relaxed: the caller makes it visible to the other threads.
        self.counts.store(self.capacity, Ordering::Relaxed);
    }

    /// Takes a place if one is free. Never waits.
    #[must_use]
    pub fn try_take(&self) -> bool {
        self.step(|now| (now & FREE_MASK > 0).then(|| now - 1)).is_some()
    }

    /// Takes a place; waits for it until `futex` times out. False if no place became free.
    #[must_use]
    pub fn take(&self, futex: &impl Futex) -> bool {
        if self.announce() {
            return true;
        }
        loop {
            // Acquire pairs with `give`; before the look, see the module.
            let seen = self.freed.load(Ordering::Acquire);
            if self.claim() {
                return true;
            }
            if !futex.wait(&self.freed, seen) {
                return self.withdraw();
            }
        }
    }

    /// Frees a place. False, and nothing changes, if all places are free.
    #[must_use]
    pub fn give(&self, futex: &impl Futex) -> bool {
        let more = |now| (now & FREE_MASK < self.capacity).then(|| now + 1);
        let Some(before) = self.step(more) else {
            return false;
        };
        if before >= WAITER {
            // Release: a producer that reads this number finds the place.
            self.freed.fetch_add(1, Ordering::Release);
            futex.wake(&raw const self.freed);
        }
        true
    }

    /// Takes a place, or counts the caller as waiting. True if it has a place.
    fn announce(&self) -> bool {
        let next = |now| if now & FREE_MASK > 0 { now - 1 } else { now + WAITER };
        self.step(|now| Some(next(now))).is_some_and(|before| before & FREE_MASK > 0)
    }

    /// A waiting producer takes a place if one is free, and no longer waits then.
    fn claim(&self) -> bool {
        self.step(|now| (now & FREE_MASK > 0).then(|| now - 1 - WAITER)).is_some()
    }

    /// A waiting producer no longer waits. True if it has a place, which it takes if one is free.
    fn withdraw(&self) -> bool {
        let next = |now| if now & FREE_MASK > 0 { now - 1 - WAITER } else { now - WAITER };
        self.step(|now| Some(next(now))).is_some_and(|before| before & FREE_MASK > 0)
    }

    /// Changes the word. Returns the value before, or `None` where `next` returns `None`.
    fn step(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        // Release and acquire: a producer that takes a place sees what came before its release.
        self.counts.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).ok()
    }
}
