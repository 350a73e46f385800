//! Which pools of a set may have room for a neighbour's items: one bit for each pool.
//!
//! A pool has room if fewer of its workers run than its target asks for, and none is on its way up. The
//! bits spare a thread that
//! looks for room the reading of the counters of all pools, which their workers write all the time
//! ([decision 80](../../../../docs/decisions/0080-bits-of-pools-with-room.md)). A pool's workers only
//! set its bit, where room arises, and leave it set when they are busy again. The thread that finds a
//! set bit without room clears it. So a pool that parks and wakes all the time changes its bit only as
//! often as others look for room there.
//!
//! ```text
//! worker that makes room                   thread that clears the bit
//! W1: the counters                         C1: clears the bit
//! R1: the bit: sets it if it is clear      C2: the counters: room ? Sets the bit, tries again
//! ```
//!
//! All four are SeqCst, so a pool that has room does not stay without its bit. And with a submitter
//! whose own pod is busy:
//!
//! ```text
//! worker that makes room                   submitter
//! W1, R1 as above                          S1: pushes, makes the pwq ready
//! W2: reads the neighbours' lists          S2: reads the bits
//! ```
//!
//! At least one of the two sees the other, or another thread cleared the bit for an instant. That
//! thread then sees the room in C2, and claims it. The worker that it wakes first runs that thread's
//! items, and looks at all lists before it parks again; until then the watcher may find the
//! submitter's item.

use crate::sync::{AtomicU64, Line, Ordering};

/// Pools of one word: enough that a search reads few words, and few enough that their workers do not
/// wait for each other at it.
const POOLS_PER_WORD: usize = 32;

/// See the module.
pub(crate) struct RoomMap {
    words: Box<[Line<AtomicU64>]>,
}

impl RoomMap {
    /// For this many pools, all with room.
    pub(crate) fn new(pools: usize) -> RoomMap {
        let bits = |first: usize| match pools - first {
            rest if rest < POOLS_PER_WORD => (1 << rest) - 1,
            _ => (1 << POOLS_PER_WORD) - 1,
        };
        let words = (0..pools).step_by(POOLS_PER_WORD);
        RoomMap { words: words.map(|first| Line(AtomicU64::new(bits(first)))).collect() }
    }

    fn place(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.words[at / POOLS_PER_WORD].0, 1 << (at % POOLS_PER_WORD))
    }

    /// The pool at this position has room. The caller has changed its counters before (R1).
    pub(crate) fn set(&self, at: usize) {
        let (word, bit) = self.place(at);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// The first answer of `claim` for a pool with room, without the pool at `from`: words in the order
    /// of their distance from it, and the pools of a word in ascending order. `claim` returns `None` for
    /// a pool without room, and `has_room` reads the counters once more.
    pub(crate) fn claim<R>(
        &self,
        from: usize,
        claim: impl Fn(usize) -> Option<R>,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<R> {
        self.near(from).filter(|&at| at != from).find_map(|at| {
            loop {
                let claimed = claim(at);
                if claimed.is_some() {
                    return claimed;
                }
                self.clear(at);
                if !has_room(at) {
                    return None;
                }
                // A submitter may have missed the bit meanwhile. The worker that the caller claims
                // sees its items.
                self.set(at);
            }
        })
    }

    /// C1.
    fn clear(&self, at: usize) {
        let (word, bit) = self.place(at);
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// The positions with a set bit, those of the words closest to the pool at `from` first.
    fn near(&self, from: usize) -> impl Iterator<Item = usize> {
        let (own, count) = (from / POOLS_PER_WORD, self.words.len());
        let at_distance = move |distance: usize| {
            let below = own.checked_sub(distance).filter(|_| distance > 0);
            let above = Some(own + distance).filter(|&at| at < count);
            above.into_iter().chain(below)
        };
        (0..count).flat_map(at_distance).flat_map(|word| {
            let mut bits = self.words[word].0.load(Ordering::SeqCst);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * POOLS_PER_WORD + bit)
            })
        })
    }
}

impl std::fmt::Debug for RoomMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.near(0)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bits_of(map: &RoomMap, from: usize) -> Vec<usize> {
        map.near(from).collect()
    }

    #[test]
    fn each_pool_begins_with_room() {
        for pools in [1, 31, 32, 33, 64, 100] {
            assert_eq!(bits_of(&RoomMap::new(pools), 0), (0..pools).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_pools_that_were_found_without_room_lose_their_bits() {
        let map = RoomMap::new(70);
        assert_eq!(map.claim(40, |at| (at == 66).then_some(at), |_| false), Some(66));
        // The search began in the word of the pools 32 to 63. Pool 40 asked, and 66 was claimed.
        let kept: Vec<_> = (0..32).chain([40]).chain(66..70).collect();
        assert_eq!(bits_of(&map, 0), kept);
    }

    #[test]
    fn room_that_arises_meanwhile_is_claimed() {
        let map = RoomMap::new(2);
        let running = std::cell::Cell::new(2);
        let claim = |at| (running.get() == 0).then_some(at);
        // The pool's last worker parks after each look.
        let has_room = |_| running.replace(running.get() - 1) == 1;
        assert_eq!(map.claim(0, claim, has_room), None);
        map.set(1);
        assert_eq!(map.claim(0, claim, has_room), Some(1));
    }

    #[test]
    fn the_closest_words_come_first() {
        let map = RoomMap::new(128);
        (0..128).for_each(|at| map.clear(at));
        assert_eq!(bits_of(&map, 70), []);
        [1, 40, 70, 127].into_iter().for_each(|at| map.set(at));
        assert_eq!(bits_of(&map, 64), [70, 127, 40, 1]);
        assert_eq!(bits_of(&map, 0), [1, 40, 70, 127]);
        map.clear(70);
        assert_eq!(bits_of(&map, 127), [127, 40, 1]);
    }
}
