//! A bit for each pool of a wide set, by the pools' positions.

use std::ops::Range;

use crate::words::sync::{AtomicU64, Line, Ordering};

/// Pools of one word: enough that a search reads few words, and few enough that their workers do not
/// wait for each other at it.
const POOLS_PER_WORD: usize = u32::BITS as usize;

/// See the module. Every access is SeqCst: the users of bits say which order they rely on.
pub(crate) struct PoolBits {
    words: Box<[Line<AtomicU64>]>,
}

impl PoolBits {
    /// For this many pools, all with their bit set.
    pub(crate) fn new(pools: usize) -> PoolBits {
        let bits = |first: usize| match pools - first {
            rest if rest < POOLS_PER_WORD => (1 << rest) - 1,
            _ => u64::from(u32::MAX),
        };
        let words = (0..pools).step_by(POOLS_PER_WORD);
        PoolBits { words: words.map(|first| Line(AtomicU64::new(bits(first)))).collect() }
    }

    fn place(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.words[at / POOLS_PER_WORD].0, 1 << (at % POOLS_PER_WORD))
    }

    #[track_caller]
    pub(crate) fn has(&self, at: usize) -> bool {
        let (word, bit) = self.place(at);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Sets the bit, if it is clear.
    #[track_caller]
    pub(crate) fn set(&self, at: usize) {
        let (word, bit) = self.place(at);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    #[track_caller]
    pub(crate) fn clear(&self, at: usize) {
        let (word, bit) = self.place(at);
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// The positions with a set bit in this range, in their order. Reads the range's words only.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let words = range.start / POOLS_PER_WORD..range.end.div_ceil(POOLS_PER_WORD);
        let pools = words.flat_map(|word| self.bits(word, 0));
        pools.filter(move |at| range.contains(at))
    }

    /// The positions with a set bit, those of the words closest to the pool at `from` first. Each word
    /// is read from the position of `from` in its own word on, so that threads of different pools begin
    /// at different ones.
    pub(crate) fn near(&self, from: usize) -> impl Iterator<Item = usize> {
        let (own, count) = (from / POOLS_PER_WORD, self.words.len());
        let at_distance = move |distance: usize| {
            let below = own.checked_sub(distance).filter(|_| distance > 0);
            let above = Some(own + distance).filter(|&at| at < count);
            above.into_iter().chain(below)
        };
        (0..count)
            .flat_map(at_distance)
            .flat_map(move |word| self.bits(word, from % POOLS_PER_WORD))
    }

    /// The positions with a set bit in this word, from bit `turn` on.
    fn bits(&self, word: usize, turn: usize) -> impl Iterator<Item = usize> + use<> {
        let bits = self.words[word].0.load(Ordering::SeqCst) as u32;
        let mut bits = bits.rotate_right(turn as u32);
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(word * POOLS_PER_WORD + (bit + turn) % POOLS_PER_WORD)
        })
    }
}

impl std::fmt::Debug for PoolBits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.near(0)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bits_of(bits: &PoolBits, from: usize) -> Vec<usize> {
        bits.near(from).collect()
    }

    #[test]
    fn each_pool_begins_with_its_bit() {
        for pools in [1, 31, 32, 33, 64, 100] {
            assert_eq!(bits_of(&PoolBits::new(pools), 0), (0..pools).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_closest_words_come_first() {
        let bits = PoolBits::new(128);
        (0..128).for_each(|at| bits.clear(at));
        assert_eq!(bits_of(&bits, 70), []);
        [1, 40, 65, 70, 127].into_iter().for_each(|at| bits.set(at));
        // Each word from bit 6, 0 and 31 on.
        assert_eq!(bits_of(&bits, 70), [70, 65, 127, 40, 1]);
        assert_eq!(bits_of(&bits, 0), [1, 40, 65, 70, 127]);
        bits.clear(70);
        assert_eq!(bits_of(&bits, 127), [127, 65, 40, 1]);
        assert!(bits.has(65) && !bits.has(70));
    }

    #[test]
    fn a_range_has_the_pools_of_its_words_only() {
        let bits = PoolBits::new(128);
        assert_eq!(bits.within(30..35).collect::<Vec<_>>(), [30, 31, 32, 33, 34]);
        assert_eq!(bits.within(64..64).collect::<Vec<_>>(), []);
        (0..128).filter(|at| at % 2 == 0).for_each(|at| bits.clear(at));
        assert_eq!(bits.within(126..128).collect::<Vec<_>>(), [127]);
    }
}
