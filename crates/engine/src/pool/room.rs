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
use super::bits::PoolBits;

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
#[derive(Debug)]
pub(crate) struct RoomMap(PoolBits);

impl RoomMap {
    /// For this many pools, all with room.
    pub(crate) fn new(pools: usize) -> RoomMap {
        RoomMap(PoolBits::new(pools))
    }

    /// The pool at this position has room. The caller has changed its counters before (R1).
    #[track_caller]
    pub(crate) fn set(&self, at: usize) {
        self.0.set(at);
    }

    /// Looks at the pools with a set bit, words in the order of their distance from the pool at `from`,
    /// until a wake is claimed. Returns the position of the claimed pool, or else that of the first one
    /// with a worker on its way up.
    pub(crate) fn find(&self, from: usize, pools: &impl Pools) -> Found {
        let mut comes = None;
        for at in self.0.near(from).filter(|&at| at != from) {
            loop {
                match pools.claim(at) {
                    Some(Claim::Claimed) => return Found::Claimed(at),
                    Some(Claim::Comes) => _ = comes.get_or_insert(at),
                    None => {}
                }
                self.0.clear(at);
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
        self.0.within(range)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn bits_of(map: &RoomMap, from: usize) -> Vec<usize> {
        map.0.near(from).collect()
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
}
