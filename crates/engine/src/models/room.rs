//! The bits of pools with room: a worker that parks or comes up, a thread that finds its pool busy and
//! clears the bit, and a submitter that looks for room.
//!
//! **Proves.** A pool that has room does not stay without its bit. A worker that parks sees a
//! submitter's item in another pool, or the submitter brings a worker up, or the worker that is on
//! its way up is called for the item. A worker that comes up in a pool of two CPUs is called for the
//! item, too; not if a third thread clears the pool's bit meanwhile. A displaced pool that gets its CPU
//! back does not stay without its bit either.
//!
//! **Bounds.** The production bits, counters of the pool and calls of a worker on its way up; one word
//! for the list of items; any number of preemptions, or five with three threads.
//!
//! **Seen to fail** with each of these:
//!
//! - the thread that clears a bit does not read the counters again;
//! - it then sets the bit, and does not try again;
//! - it then tries again, and does not call the worker;
//! - the worker sets the bit before it changes the counters;
//! - the worker reads the lists before it sets the bit;
//! - the worker takes its calls before it arrives;
//! - two calls at once lose one;
//! - a pool with a worker on its way up is taken for one without room;
//! - a worker that comes up does not set the bit for the room that it leaves;
//! - the bit of a pool that gets its CPU back is set before the mark is cleared;
//! - the accesses of the word with that mark are relaxed.

use std::sync::Arc;

use loom::thread;
use uwork_policy::concurrency::need_more_workers;

use super::{Preemptions, explore};
use crate::pool::room::{Claim, Found, Pools, RoomMap};
use crate::pool::state::PoolState;
use crate::pool::target_word::Target;
use crate::pool::{CalledBy, ComingHelp};
use crate::words::sync::{AtomicU64, Ordering};

// The positions, and ids, of three pools: that of the worker, that of the submitter, and that of the
// thread that clears bits.
const WORKS: usize = 0;
const SUBMITS: usize = 1;
const CLEARS: usize = 2;

/// A pool with its bit set, and two busy neighbours without bits.
struct Set {
    room: RoomMap,
    state: PoolState,
    target: u32,
    calls: ComingHelp,
    items: AtomicU64,
}

impl Set {
    /// All CPUs of the worker's pool are busy.
    fn new(target: u32) -> Arc<Set> {
        let state = PoolState::new();
        for _ in 0..target {
            state.add_worker();
            assert!(state.begin_wake(target));
            state.arrive();
        }
        let (calls, items) = (ComingHelp::new(), AtomicU64::new(0));
        let set = Set { room: RoomMap::new(3), state, target, calls, items };
        set.room.set(WORKS);
        Arc::new(set)
    }

    /// Whether fewer workers run than the target asks for.
    fn wants(&self, at: usize) -> bool {
        at == WORKS && self.state.counts().running < self.target
    }

    fn note_room(&self) {
        if self.has_room(WORKS) {
            self.room.set(WORKS);
        }
    }

    /// As a worker that parks. Returns whether it sees the submitter's item.
    fn park(&self) -> bool {
        self.state.running_to_idle();
        self.note_room();
        self.items.load(Ordering::SeqCst) > 0
    }

    /// As a worker that comes up, and finds items of its own pool. Returns for whom it was called.
    fn come_up(&self) -> CalledBy {
        self.state.arrive();
        let called_by = self.calls.take();
        self.note_room();
        called_by
    }

    /// As a thread that looks for room for items of its pool, and then makes the call that a thread
    /// makes. Returns whether it claims the wake.
    fn look(&self, from: usize) -> bool {
        let found = self.room.find(from, self);
        if found == Found::None {
            return false;
        }
        self.call(WORKS, CalledBy::Pool(from as u32));
        found == Found::Claimed(WORKS) || self.state.begin_wake(self.target)
    }

    /// As a submitter. Returns whether it brings a worker up.
    fn submit(&self) -> bool {
        self.items.fetch_add(1, Ordering::SeqCst);
        self.look(SUBMITS)
    }

    /// Whether a worker is on its way up that was called for the submitter's item.
    fn comes(&self) -> bool {
        self.state.counts().waking && is_for_submitter(self.calls.take())
    }
}

impl Pools for Set {
    fn claim(&self, at: usize) -> Option<Claim> {
        match at == WORKS && self.state.begin_wake(self.target) {
            true => Some(Claim::Claimed),
            false => self.wants(at).then_some(Claim::Comes),
        }
    }

    fn has_room(&self, at: usize) -> bool {
        self.wants(at) && !self.state.counts().waking
    }

    fn call(&self, _at: usize, called_by: CalledBy) {
        self.calls.mark(called_by);
    }
}

fn is_for_submitter(called_by: CalledBy) -> bool {
    called_by == CalledBy::Any || called_by == CalledBy::Pool(SUBMITS as u32)
}

#[test]
fn a_pool_with_room_has_its_bit() {
    explore("room: a bit is cleared while a worker parks", Preemptions::Any, || {
        let set = Set::new(1);
        let other = set.clone();
        let clears = thread::spawn(move || other.look(CLEARS));
        set.park();
        let claimed = clears.join().unwrap();
        // The next thread that looks finds the room that is left.
        assert!(claimed || set.look(SUBMITS));
    });
}

#[test]
fn a_worker_that_parks_or_the_submitter_sees_the_other() {
    explore("room: a worker parks beside a submitter", Preemptions::Deep(5), || {
        let set = Set::new(1);
        let (clearing, parking) = (set.clone(), set.clone());
        let clears = thread::spawn(move || clearing.look(CLEARS));
        let parks = thread::spawn(move || parking.park());
        let brought = set.submit();
        clears.join().unwrap();
        let seen = parks.join().unwrap();
        assert!(brought || seen || set.comes());
    });
}

/// A pool of two CPUs whose first worker is on its way up.
fn coming() -> Arc<Set> {
    let set = Set::new(2);
    set.state.running_to_idle();
    set.state.running_to_idle();
    assert!(set.state.begin_wake(2));
    set
}

#[test]
fn a_worker_that_comes_up_is_called_for_the_room_it_leaves() {
    explore("room: a worker comes up beside a submitter", Preemptions::Any, || {
        let set = coming();
        let other = set.clone();
        let comes_up = thread::spawn(move || other.come_up());
        let brought = set.submit();
        let called_by = comes_up.join().unwrap();
        assert!(brought || is_for_submitter(called_by) || set.comes());
    });
}

#[test]
fn the_room_that_a_worker_leaves_has_its_bit() {
    explore("room: a bit is cleared while a worker comes up", Preemptions::Any, || {
        let set = coming();
        let (clearing, coming) = (set.clone(), set.clone());
        let clears = thread::spawn(move || clearing.look(CLEARS));
        let comes_up = thread::spawn(move || coming.come_up());
        let claimed = clears.join().unwrap();
        comes_up.join().unwrap();
        assert!(claimed || set.look(SUBMITS));
    });
}

/// A pool with a parked worker, and its bit, which is displaced.
struct Displaced {
    room: RoomMap,
    state: PoolState,
    target: Target,
}

impl Displaced {
    fn new() -> Arc<Displaced> {
        let (room, state, target) = (RoomMap::new(3), PoolState::new(), Target::new());
        target.place(true, 1, || ());
        Arc::new(Displaced { room, state, target })
    }

    /// As a change of the CPUs.
    fn get_cpu_back(&self) {
        self.target.place(false, 1, || {
            if self.has_room(WORKS) {
                self.room.set(WORKS);
            }
        });
    }

    fn look(&self, from: usize) -> bool {
        self.room.find(from, self) == Found::Claimed(WORKS)
    }
}

impl Pools for Displaced {
    fn claim(&self, at: usize) -> Option<Claim> {
        let claims = at == WORKS && self.state.begin_wake(self.target.for_neighbours());
        claims.then_some(Claim::Claimed)
    }

    fn has_room(&self, at: usize) -> bool {
        at == WORKS && need_more_workers(self.state.counts(), self.target.for_neighbours())
    }

    fn call(&self, _at: usize, _called_by: CalledBy) {}
}

#[test]
fn a_pool_that_gets_its_cpu_back_has_its_bit() {
    explore("room: a bit is cleared while a CPU comes back", Preemptions::Any, || {
        let pool = Displaced::new();
        assert!(!pool.look(CLEARS), "a displaced pool has no room");
        pool.room.set(WORKS);
        let other = pool.clone();
        let clears = thread::spawn(move || other.look(CLEARS));
        pool.get_cpu_back();
        let claimed = clears.join().unwrap();
        assert!(claimed || pool.look(SUBMITS));
    });
}
