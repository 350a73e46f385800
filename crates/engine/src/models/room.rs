//! The bits of pools with room: a worker that parks, a thread that finds its pool busy and clears the
//! bit, and a submitter that looks for room.
//!
//! **Proves.** A pool that has room does not stay without its bit. Of a worker that parks in one pool
//! and a submitter in another, at least one sees the other, or the thread that clears the bit claims
//! the pool's wake.
//!
//! **Bounds.** The production bits; one word for the counters of the pool, one for the list of items;
//! any number of preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - the thread that clears a bit does not read the counters again;
//! - it then sets the bit, and does not try again;
//! - the worker sets the bit before it changes the counters;
//! - the worker reads the lists before it sets the bit.

use std::sync::Arc;

use loom::thread;

use super::{Preemptions, explore};
use crate::pool::room::RoomMap;
use crate::sync::{AtomicU64, Ordering};

// The pools of the worker and of the submitter.
const PARKS: usize = 1;
const SUBMITS: usize = 0;

/// A pool that is busy, with its bit set, and a neighbour without items.
struct Set {
    room: RoomMap,
    running: AtomicU64,
    items: AtomicU64,
}

impl Set {
    fn new() -> Arc<Set> {
        let (running, items) = (AtomicU64::new(1), AtomicU64::new(0));
        Arc::new(Set { room: RoomMap::new(2), running, items })
    }

    /// As a worker that parks. Returns whether it sees the neighbour's item.
    fn park(&self) -> bool {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.room.set(PARKS);
        self.items.load(Ordering::SeqCst) > 0
    }

    /// As a thread that looks for room. Returns whether it claims the pool's wake.
    fn claim(&self) -> bool {
        let has_room = |_| self.running.load(Ordering::SeqCst) == 0;
        // A claim counts as a worker that runs.
        let claim = |_| {
            let swapped = self.running.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
            swapped.ok()
        };
        self.room.claim(SUBMITS, claim, has_room).is_some()
    }

    /// As a submitter. Returns whether it brings a worker up.
    fn submit(&self) -> bool {
        self.items.fetch_add(1, Ordering::SeqCst);
        self.claim()
    }
}

#[test]
fn a_pool_with_room_has_its_bit() {
    explore("room: a bit is cleared while a worker parks", Preemptions::Any, || {
        let set = Set::new();
        let other = set.clone();
        let clears = thread::spawn(move || other.claim());
        set.park();
        let claimed = clears.join().unwrap();
        // The next thread that looks finds the room that is left.
        assert!(claimed || set.claim());
    });
}

#[test]
fn a_worker_that_parks_or_the_submitter_sees_the_other() {
    explore("room: a worker parks beside a submitter", Preemptions::Any, || {
        let set = Set::new();
        let (clearing, submitting) = (set.clone(), set.clone());
        let clears = thread::spawn(move || clearing.claim());
        let parks = thread::spawn(move || set.park());
        let brought = submitting.submit();
        let (claimed, seen) = (clears.join().unwrap(), parks.join().unwrap());
        assert!(brought || claimed || seen);
    });
}
