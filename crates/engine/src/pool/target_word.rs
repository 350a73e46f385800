//! A pool's target, and whether the pool is displaced, in one word: a thread that looks for room reads
//! both in one load.
//!
//! | bits | name |
//! |---|---|
//! | 0..=30 | target: how many workers should run while work is pending; at least 1 |
//! | 31 | displaced: the pool may use none of its CPUs, and runs no items of neighbours |
//!
//! The two have different writers, so a change of one keeps the other.

use crate::words::sync::{AtomicU32, Line, Ordering};

const DISPLACED: u32 = 1 << 31;

/// See the module. Every access is SeqCst: a thread that changes the word reads the lists and the bits of
/// pools with room next, and its partners write those first and read the word second (README.md).
pub(crate) struct Target(Line<AtomicU32>);

impl Target {
    /// A target of one worker.
    pub(crate) fn new() -> Target {
        Target(Line(AtomicU32::new(1)))
    }

    /// How many workers should run for the pool's own items.
    #[inline]
    #[track_caller]
    pub(crate) fn get(&self) -> u32 {
        self.0.0.load(Ordering::SeqCst) & !DISPLACED
    }

    /// How many workers should run for items of neighbours: none if the pool is displaced.
    #[inline]
    #[track_caller]
    pub(crate) fn for_neighbours(&self) -> u32 {
        let word = self.0.0.load(Ordering::SeqCst);
        if word & DISPLACED == 0 { word } else { 0 }
    }

    /// Changes both. `note_room` sets the pool's bit if the pool has room now: it reads the word.
    #[track_caller]
    pub(crate) fn place(&self, displaced: bool, target: u32, note_room: impl FnOnce()) {
        self.set_displaced(displaced);
        self.set(target);
        note_room();
    }

    /// Changes the target.
    #[track_caller]
    pub(crate) fn set(&self, target: u32) {
        debug_assert!(target & DISPLACED == 0, "a target of {target} workers");
        let with_target = |word| Some(word & DISPLACED | target.max(1));
        let _ = self.0.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, with_target);
    }

    /// Changes whether the pool is displaced.
    #[track_caller]
    fn set_displaced(&self, displaced: bool) {
        if displaced {
            self.0.0.fetch_or(DISPLACED, Ordering::SeqCst);
        } else {
            self.0.0.fetch_and(!DISPLACED, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_displaced_pool_keeps_a_target_for_its_own_items() {
        let (word, noted) = (Target::new(), std::cell::Cell::new(0));
        word.place(true, 7, || noted.set(word.for_neighbours()));
        assert_eq!((word.get(), word.for_neighbours(), noted.get()), (7, 0, 0));
        word.set(0);
        assert_eq!((word.get(), word.for_neighbours()), (1, 0));
        word.place(false, 3, || noted.set(word.for_neighbours()));
        assert_eq!((word.get(), word.for_neighbours(), noted.get()), (3, 3, 3));
    }
}
