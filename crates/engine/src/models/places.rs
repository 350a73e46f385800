//! Places of a bounded queue: producers that wait, that give up, and releases.
//!
//! **Proves.** No producer sleeps while a place is free. Never more producers have a place than
//! places exist, and each sees what came before the release of its place. A producer that gives up
//! keeps no place, and takes no other producer's wake with it.
//!
//! **Bounds.** The production counters. One place and three producers; two places that are released
//! at once to two waiting producers; a producer whose time is over when it is woken, beside another
//! one; time as a thread that may end any wait.
//!
//! **Seen to fail** with each of these:
//!
//! - `take` looks for a place before it reads `freed`;
//! - `give` does not count in `freed`, does not wake, or wakes before it counts;
//! - `give` wakes only where no place was free before, or where a producer waited before its step;
//! - the read of `freed`, or its increase, is relaxed;
//! - `step` only acquires, or only releases;
//! - `claim` or `withdraw` keeps the announcement, or `withdraw` takes no place where one is free.

use std::sync::Arc;

use loom::thread;

use super::host::WordSleep;
use super::{Preemptions, explore};
use crate::words::futex::Futex;
use crate::words::places::Places;
use crate::words::sync::{AtomicBool, AtomicU32, Cell, Ordering};

struct World {
    places: Places,
    futex: WordSleep,
    /// Changed by the producer with the place, where one place exists.
    runs: Cell<u32>,
}

/// Waits that end by a wake once, and time out from then on.
struct OneWake<'a> {
    futex: &'a WordSleep,
    over: AtomicBool,
}

impl Futex for OneWake<'_> {
    fn wait(&self, word: &AtomicU32, expected: u32) -> bool {
        // Relaxed: one thread uses it.
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        self.over.store(true, Ordering::Relaxed);
        self.futex.wait(word, expected)
    }

    fn wake(&self, word: *const AtomicU32) {
        self.futex.wake(word);
    }
}

impl World {
    fn new(places: usize) -> Arc<World> {
        let places = Places::new(places).unwrap();
        Arc::new(World { places, futex: WordSleep::default(), runs: Cell::new(0) })
    }

    /// What a producer and its item do with the only place.
    fn run(&self) {
        // SAFETY: one place exists, and the caller has it. The model checks exactly that.
        unsafe { self.runs.set(self.runs.get() + 1) };
        self.give();
    }

    fn give(&self) {
        assert!(self.places.give(&self.futex), "a place was taken");
    }

    fn spawn(self: &Arc<World>, body: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || body(&world))
    }

    /// After all producers: each place is free, and none waits.
    fn end(&self, runs: u32) {
        assert_eq!((self.places.free(), self.places.waiting()), (self.places.capacity(), 0));
        assert!(!self.places.give(&self.futex), "all are free");
        // SAFETY: no other thread is left.
        assert_eq!(unsafe { self.runs.get() }, runs);
    }
}

#[test]
fn producers_share_one_place() {
    explore("places: three producers, one place", Preemptions::Deep(4), || {
        let world = World::new(1);
        let produce = |world: &World| {
            assert!(world.places.take(&world.futex));
            world.run();
        };
        let others = [0; 2].map(|_| world.spawn(produce));
        produce(&world);
        others.into_iter().for_each(|other| other.join().unwrap());
        world.end(3);
    });
}

/// The producers keep their places: no release but the two here wakes them.
#[test]
fn two_releases_wake_two_producers() {
    explore("places: two releases, two producers", Preemptions::Deep(4), || {
        let world = World::new(2);
        assert!(world.places.try_take() && world.places.try_take());
        let keep = |world: &World| assert!(world.places.take(&world.futex));
        let producers = [0; 2].map(|_| world.spawn(keep));
        world.give();
        world.give();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!((world.places.free(), world.places.waiting()), (0, 0));
        world.give();
        world.give();
        world.end(0);
    });
}

#[test]
fn a_wake_that_meets_a_timeout_is_not_lost() {
    explore("places: a wake that meets a timeout", Preemptions::Deep(4), || {
        let world = World::new(1);
        assert!(world.places.try_take());
        let impatient = world.spawn(|world| {
            let futex = OneWake { futex: &world.futex, over: AtomicBool::new(false) };
            if world.places.take(&futex) {
                world.run();
            }
        });
        let patient = world.spawn(|world| assert!(world.places.take(&world.futex)));
        world.give();
        patient.join().unwrap();
        // The other producer may still wait for this place.
        world.give();
        impatient.join().unwrap();
        assert_eq!((world.places.free(), world.places.waiting()), (1, 0));
    });
}

#[test]
fn a_producer_that_gives_up_keeps_no_place() {
    explore("places: producers that give up", Preemptions::Deep(4), || {
        let world = World::new(1);
        assert!(world.places.try_take());
        let producers = [0; 2].map(|_| {
            world.spawn(|world| {
                if world.places.take(&world.futex) {
                    world.run();
                }
            })
        });
        world.give();
        world.futex.expire();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!((world.places.free(), world.places.waiting()), (1, 0));
    });
}
