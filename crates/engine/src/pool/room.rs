//! Which pools of a set have room for a neighbour's items: one bit for each pool.
//!
//! A pool has room if fewer of its workers run than its target asks for, and none is on its way up.
//! The bits spare a thread that looks for room the reading of the counters of all pools, which
//! their workers write all the time ([decision
//! 80](../../../../docs/decisions/0080-bits-of-pools-with-room.md)). A pool's workers only set its
//! bit, where room arises, and leave it set when they are busy again. The thread that finds a set
//! bit without room clears it. So a pool that parks and wakes all the time changes its bit only as
//! often as others look for room there.
//!
//! ```text
//! worker that makes room                   thread that clears the bit
//! W1: the counters                         C1: clears the bit
//! R1: the bit: sets it if it is clear      C2: the counters: room ? Sets the bit, tries again
//! ```
//!
//! All four are SeqCst, so a pool that has room does not stay without its bit. And with a submitter
//! whose own pool is busy:
//!
//! ```text
//! worker that makes room                   submitter
//! W1, R1 as above                          S1: pushes, makes the pwq ready
//! W2: reads the neighbours' lists          S2: reads the bits
//! ```
//!
//! At least one of the two sees the other, or another thread cleared the bit for an instant. That
//! thread then sees the room in C2, and calls the pool's next worker for the items of any pool before
//! it tries again. One case is left to the watcher: a thread has cleared the bit of a pool of several
//! CPUs because a worker was on its way up there, and until that worker arrives no other thread calls
//! it.

use std::ops::Range;

use super::CalledBy;
use crate::sync::{AtomicU64, Line, Ordering};

/// Pools of one word: enough that a search reads few words, and few enough that their workers do not
/// wait for each other at it.
const POOLS_PER_WORD: usize = u32::BITS as usize;

/// What a pool that runs fewer workers than its target asks for has for a thread that looks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller has claimed the pool's wake.
    Claimed,
    /// A worker is on its way up.
    Comes,
}

/// What a search has found, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The caller has claimed this pool's wake.
    Claimed(usize),
    /// No wake can be claimed. In this pool a worker is on its way up.
    Comes(usize),
    /// No pool has room.
    None,
}

/// The pools of a set, by their positions in it.
pub(crate) trait Pools {
    /// Claims the wake of a pool; `None` if as many workers run as its target asks for.
    fn claim(&self, at: usize) -> Option<Claim>;

    /// Whether fewer workers run than the pool's target asks for, and none is on its way up.
    fn has_room(&self, at: usize) -> bool;

    /// Calls the next worker that comes up.
    fn call(&self, at: usize, called_by: CalledBy);
}

/// See the module.
pub(crate) struct RoomMap {
    words: Box<[Line<AtomicU64>]>,
}

impl RoomMap {
    /// For this many pools, all with room.
    pub(crate) fn new(pools: usize) -> RoomMap {
        let bits = |first: usize| match pools - first {
            rest if rest < POOLS_PER_WORD => (1 << rest) - 1,
            _ => u64::from(u32::MAX),
        };
        let words = (0..pools).step_by(POOLS_PER_WORD);
        RoomMap { words: words.map(|first| Line(AtomicU64::new(bits(first)))).collect() }
    }

    fn place(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.words[at / POOLS_PER_WORD].0, 1 << (at % POOLS_PER_WORD))
    }

    /// The pool at this position has room. The caller has changed its counters before (R1).
    #[track_caller]
    pub(crate) fn set(&self, at: usize) {
        let (word, bit) = self.place(at);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Looks at the pools with a set bit, words in the order of their distance from the pool at `from`,
    /// until a wake is claimed. Returns the position of the claimed pool, or else that of the first one
    /// with a worker on its way up.
    pub(crate) fn find(&self, from: usize, pools: &impl Pools) -> Found {
        let mut comes = None;
        for at in self.near(from).filter(|&at| at != from) {
            loop {
                match pools.claim(at) {
                    Some(Claim::Claimed) => return Found::Claimed(at),
                    Some(Claim::Comes) => _ = comes.get_or_insert(at),
                    None => {}
                }
                self.clear(at);
                if !pools.has_room(at) {
                    break;
                }
                self.set(at);
                // A submitter may have missed the bit meanwhile.
                pools.call(at, CalledBy::Any);
            }
        }
        comes.map_or(Found::None, Found::Comes)
    }

    /// The pools of this range that may have room, in their order. Reads the range's words only.
    pub(crate) fn with_room(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let words = range.start / POOLS_PER_WORD..range.end.div_ceil(POOLS_PER_WORD);
        let pools = words.flat_map(|word| self.bits(word, 0));
        pools.filter(move |at| range.contains(at))
    }

    /// C1.
    fn clear(&self, at: usize) {
        let (word, bit) = self.place(at);
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// The positions with a set bit, those of the words closest to the pool at `from` first. Each word
    /// is read from the position of `from` in its own word on, so that threads of different pools begin
    /// at different ones.
    fn near(&self, from: usize) -> impl Iterator<Item = usize> {
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

impl std::fmt::Debug for RoomMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.near(0)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn bits_of(map: &RoomMap, from: usize) -> Vec<usize> {
        map.near(from).collect()
    }

    /// Busy pools, except for one with an idle worker and one with a worker on its way up.
    struct Set {
        idle: usize,
        comes: usize,
        /// A pool that has room when its counters are read again.
        parks: usize,
        called: RefCell<Vec<(usize, CalledBy)>>,
    }

    impl Set {
        fn new(idle: usize, comes: usize) -> Set {
            Set { idle, comes, parks: NONE, called: RefCell::new(Vec::new()) }
        }
    }

    impl Pools for Set {
        fn claim(&self, at: usize) -> Option<Claim> {
            match at {
                _ if at == self.idle => Some(Claim::Claimed),
                _ if at == self.comes => Some(Claim::Comes),
                _ if self.called.borrow().iter().any(|call| call.0 == at) => Some(Claim::Claimed),
                _ => None,
            }
        }

        fn has_room(&self, at: usize) -> bool {
            self.parks == at
        }

        fn call(&self, at: usize, called_by: CalledBy) {
            self.called.borrow_mut().push((at, called_by));
        }
    }

    /// No pool.
    const NONE: usize = usize::MAX;

    #[test]
    fn each_pool_begins_with_room() {
        for pools in [1, 31, 32, 33, 64, 100] {
            assert_eq!(bits_of(&RoomMap::new(pools), 0), (0..pools).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_pools_that_were_found_without_room_lose_their_bits() {
        let map = RoomMap::new(70);
        assert_eq!(map.find(40, &Set::new(66, 50)), Found::Claimed(66));
        // The search began in the word of the pools 32 to 63. Pool 40 asked, and 66 was claimed.
        let kept: Vec<_> = (0..32).chain([40]).chain(66..70).collect();
        assert_eq!(bits_of(&map, 0), kept);
        assert_eq!(map.find(40, &Set::new(NONE, 69)), Found::Comes(69));
        assert_eq!(bits_of(&map, 0), [40]);
        assert_eq!(map.find(50, &Set::new(NONE, NONE)), Found::None);
    }

    #[test]
    fn room_that_arises_meanwhile_is_claimed_for_the_items_of_any_pool() {
        let (map, set) = (RoomMap::new(2), Set { parks: 1, ..Set::new(NONE, NONE) });
        assert_eq!(map.find(0, &set), Found::Claimed(1));
        assert_eq!(*set.called.borrow(), [(1, CalledBy::Any)]);
        assert_eq!(bits_of(&map, 0), [0, 1]);
    }

    #[test]
    fn the_closest_words_come_first() {
        let map = RoomMap::new(128);
        (0..128).for_each(|at| map.clear(at));
        assert_eq!(bits_of(&map, 70), []);
        [1, 40, 65, 70, 127].into_iter().for_each(|at| map.set(at));
        // Each word from bit 6, 0 and 31 on.
        assert_eq!(bits_of(&map, 70), [70, 65, 127, 40, 1]);
        assert_eq!(bits_of(&map, 0), [1, 40, 65, 70, 127]);
        map.clear(70);
        assert_eq!(bits_of(&map, 127), [127, 65, 40, 1]);
    }

    #[test]
    fn a_range_has_the_pools_of_its_words_only() {
        let map = RoomMap::new(128);
        assert_eq!(map.with_room(30..35).collect::<Vec<_>>(), [30, 31, 32, 33, 34]);
        assert_eq!(map.with_room(64..64).collect::<Vec<_>>(), []);
        (0..128).filter(|at| at % 2 == 0).for_each(|at| map.clear(at));
        assert_eq!(map.with_room(126..128).collect::<Vec<_>>(), [127]);
    }
}
