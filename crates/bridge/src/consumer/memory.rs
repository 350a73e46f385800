//! The bytes of jobs that a consumer holds. Each is counted before it is allocated: those of a payload
//! until its handler has returned, the others until the server knows the outcome. The result that takes
//! its place is counted when it exists, until then, too: a large one delays further entries.
//!
//! | a field of an entry | is taken |
//! |---|---|
//! | while less than the bound is held | always |
//! | while the bound is held, none of it by others | always: an entry of any size can be held alone |
//! | of 64 KiB at most, and the entry has begun | always: what comes after the payload |
//! | else | not: the entry is refused, and handed back |
//!
//! So what is held beside results never exceeds the bound by more than one entry, and the small fields of those that
//! other threads read at that moment: two cannot both find less than the bound before they exceed it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A field beside the payload.
const SMALL: usize = 64 << 10;

/// For whom the entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The reader has three quarters, or the jobs of dead consumers would find none of it.
    Reader,
    Orphans,
}

#[derive(Debug)]
pub(crate) struct Memory {
    max: usize,
    /// Written by the threads that read replies, and by the workers when a run ends. No other data
    /// depends on it.
    held: AtomicUsize,
    /// How many entries found no room: what it grows by in a read says that some did not.
    refused: AtomicUsize,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Memory {
        Memory { max: max.max(1), held: AtomicUsize::new(0), refused: AtomicUsize::new(0) }
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn bound(&self, share: Share) -> usize {
        match share {
            Share::Reader => self.max - self.max / 4,
            Share::Orphans => self.max,
        }
    }

    /// Takes bytes for an entry that has `own` already. False if there is no room for it.
    #[must_use]
    pub(crate) fn take(&self, share: Share, own: usize, bytes: usize) -> bool {
        let bound = self.bound(share);
        let fits = |held| held < bound || held == own || (own > 0 && bytes <= SMALL);
        let taken = |held: usize| fits(held).then(|| held.saturating_add(bytes));
        let updated = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        if updated.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        updated.is_ok()
    }

    /// Counts bytes that exist whatever the bound: those of a result.
    pub(crate) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give(&self, bytes: usize) {
        if bytes > 0 {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The bytes that are left until no entry is taken.
    pub(crate) fn left(&self, share: Share) -> usize {
        self.bound(share).saturating_sub(self.held.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_exceeded_by_one_entry_and_an_entry_of_any_size_is_held_alone() {
        let memory = Memory::new(1_000_000);
        let orphans = Share::Orphans;
        assert!(memory.take(orphans, 0, 5_000_000), "alone");
        assert!(memory.take(orphans, 5_000_000, 1_000_000), "and all its fields");
        assert!(!memory.take(orphans, 0, 1), "another one");
        memory.give(6_000_000);
        assert!(memory.take(orphans, 0, 999_999) && memory.take(orphans, 0, 3_000_000));
        assert!(!memory.take(orphans, 0, 1) && !memory.take(orphans, 3_000_000, 100_000));
        assert!(memory.take(orphans, 3_000_000, SMALL), "a field after the payload");
        memory.give(3_999_999 + SMALL);
        assert_eq!(memory.left(orphans), 1_000_000);
    }

    #[test]
    fn the_reader_leaves_a_quarter_to_the_jobs_of_dead_consumers() {
        let memory = Memory::new(1_000);
        assert!(memory.take(Share::Reader, 0, 750));
        assert!(!memory.take(Share::Reader, 0, 1));
        assert_eq!((memory.left(Share::Reader), memory.left(Share::Orphans)), (0, 250));
        assert!(memory.take(Share::Orphans, 0, 1));
    }

    #[test]
    fn a_small_bound_has_room_for_an_entry() {
        assert!(Memory::new(0).take(Share::Reader, 0, 100));
    }
}
