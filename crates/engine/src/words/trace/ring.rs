//! A bounded ring of records, for any number of writers and one reader. A writer never waits: it
//! overwrites the oldest record, and drops its own if another writer holds the place.
//!
//! Record number i has place i modulo the length. The place's `turn` says what it holds:
//!
//! | turn | meaning |
//! |---|---|
//! | 0 | nothing yet |
//! | 2i + 1 | a writer stores record i |
//! | 2i + 2 | record i |
//!
//! A writer claims the place by a compare-and-swap from an even, earlier turn, so two writers a lap
//! apart never mix their words. The reader compares the turn before and after it copies the words.

use crate::words::sync::{AtomicU64, Ordering, fence};

/// Records of a ring.
pub(super) const RECORDS: u64 = 2048;

/// The words of a record.
pub(super) type Words = [u64; 4];

struct Place {
    turn: AtomicU64,
    words: [AtomicU64; 4],
}

pub(crate) struct Ring {
    /// The number of the next record.
    head: AtomicU64,
    places: Box<[Place]>,
}

impl Ring {
    pub(super) fn new() -> Ring {
        let place = || Place { turn: AtomicU64::new(0), words: [0; 4].map(AtomicU64::new) };
        Ring { head: AtomicU64::new(0), places: (0..RECORDS).map(|_| place()).collect() }
    }

    /// Adds a record.
    pub(super) fn push(&self, words: Words) {
        let number = self.head.fetch_add(1, Ordering::Relaxed);
        let place = self.place(number);
        let (found, writing) = (place.turn.load(Ordering::Relaxed), 2 * number + 1);
        if found % 2 != 0 || found > writing {
            return;
        }
        let claim =
            place.turn.compare_exchange(found, writing, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_err() {
            return;
        }
        // Partner: the fence in `get`. A reader that sees any of the words below sees the turn
        // above, or a later one, when it looks again.
        fence(Ordering::Release);
        for (to, word) in place.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        place.turn.store(writing + 1, Ordering::Release);
    }

    /// The number of the next record.
    pub(super) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The record with this number; None if it was overwritten, dropped, or is being stored.
    pub(super) fn get(&self, number: u64) -> Option<Words> {
        let place = self.place(number);
        let whole = 2 * number + 2;
        if place.turn.load(Ordering::Acquire) != whole {
            return None;
        }
        let words = std::array::from_fn(|word| place.words[word].load(Ordering::Relaxed));
        // Partner: the fence in `push`.
        fence(Ordering::Acquire);
        (place.turn.load(Ordering::Relaxed) == whole).then_some(words)
    }

    fn place(&self, number: u64) -> &Place {
        &self.places[(number % RECORDS) as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_keeps_the_newest_records() {
        let ring = Ring::new();
        (0..RECORDS + 3).for_each(|at| ring.push([at, at, at, at]));
        assert_eq!(ring.head(), RECORDS + 3);
        assert!((0..3).all(|number| ring.get(number).is_none()), "overwritten");
        assert!((3..RECORDS + 3).all(|number| ring.get(number) == Some([number; 4])));
        assert_eq!(ring.get(RECORDS + 3), None, "not written yet");
    }

    #[test]
    fn records_are_never_mixed() {
        let ring = Ring::new();
        std::thread::scope(|threads| {
            for writer in 0..3_u64 {
                let ring = &ring;
                threads.spawn(move || (0..20_000).for_each(|at| ring.push([writer << 32 | at; 4])));
            }
            let mut read = 0;
            while read < 30_000 {
                let number = ring.head().saturating_sub(RECORDS / 2);
                if let Some(words) = ring.get(number) {
                    assert_eq!(words, [words[0]; 4]);
                }
                read = number;
                std::thread::yield_now();
            }
        });
        let kept = (ring.head() - RECORDS..ring.head()).filter_map(|number| ring.get(number));
        assert!(kept.clone().all(|words| words == [words[0]; 4]));
        assert!(kept.count() > 0);
    }
}
