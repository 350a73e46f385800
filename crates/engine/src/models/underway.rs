//! A drain of per-CPU batches: what is in a batch, and what somebody who has filled one is handing on.
//!
//! **Proves.** When a drain returns, every item is in the sink that was added before the drain began, whoever has
//! handed it on, and what the sink did is seen. No wait is for ever, also where others begin meanwhile, and where
//! a second drain follows.
//!
//! **Bounds.** A batch of one item for each of two CPUs. One thread that fills one and one that drains, any number of
//! preemptions: 891 executions. Two that fill, two that drain, or one of each that do so twice, three or four
//! preemptions: 2,200 to 34,277.
//!
//! **Seen to fail** with an end that releases nothing, a turn or a wait that acquires nothing, a wait for the other
//! side, a wait that does not say that it waits, or looks before it says so, an end that wakes for another than the
//! last, a filler that begins after it has marked its batch empty, drains that do not follow each other.
//!
//! **Not found**: the fences of `begin` and `turn` missing. loom carries exchanges out in the order in which it runs
//! threads, so that the turn sees a count that was made before the mark which the drain has seen. Nor that newcomers
//! are not waited for: a wait for all of them ends as well where there are two.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::percpu::Underway;
use crate::sync::{AtomicU32, Cell, Ordering};

/// A batch is full with the second item.
struct Batch {
    /// How many items are in it. The mutex stands for its CPU's lock.
    items: Mutex<u32>,
    /// The same, for who looks without the lock.
    used: AtomicU32,
    /// How many items the sink has had: written by who has taken them out, one after the other.
    sunk: Cell<u32>,
}

struct World {
    host: LoomHost,
    batches: [Batch; 2],
    underway: Underway<LoomHost>,
    draining: Mutex<()>,
}

impl World {
    /// One item is in each batch.
    fn new() -> Arc<World> {
        let batch = || Batch { items: Mutex::new(1), used: AtomicU32::new(1), sunk: Cell::new(0) };
        Arc::new(World {
            host: LoomHost::new(0),
            batches: [batch(), batch()],
            underway: Underway::default(),
            draining: Mutex::new(()),
        })
    }

    /// Adds an item, and hands on the batch that it fills.
    fn fill(&self, cpu: usize) {
        let batch = &self.batches[cpu];
        let mut items = batch.items.lock().unwrap();
        if *items == 0 {
            // Taken by a drain. That the item is added is of no interest then.
            return;
        }
        let side = self.underway.begin();
        *items = 0;
        batch.used.store(0, Ordering::Relaxed);
        drop(items);
        batch.sink();
        self.underway.end(&self.host, side);
    }

    fn drain(&self) {
        let draining = self.draining.lock().unwrap();
        for batch in &self.batches {
            if batch.used.load(Ordering::Relaxed) > 0 {
                let items = std::mem::take(&mut *batch.items.lock().unwrap());
                if items > 0 {
                    batch.used.store(0, Ordering::Relaxed);
                    batch.sink();
                }
            }
        }
        if let Some(side) = self.underway.turn() {
            self.underway.wait(&self.host, side);
        }
        drop(draining);
    }

    fn check(&self) {
        for batch in &self.batches {
            // SAFETY: what was in the batch was handed on once. That it is done is what is being checked.
            assert_eq!(unsafe { batch.sunk.get() }, 1);
        }
    }
}

impl Batch {
    fn sink(&self) {
        // SAFETY: of what was in the batch, by who has taken it out.
        unsafe { self.sunk.set(self.sunk.get() + 1) };
    }
}

type Part = fn(&World);

/// Each thread does its part, the last one of them as it was made: who looks at what the others do.
fn run(parts: &[Part]) {
    let world = World::new();
    let threads: Vec<_> = parts
        .iter()
        .map(|&part| {
            let world = world.clone();
            thread::spawn(move || part(&world))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

fn drain(world: &World) {
    world.drain();
    world.check();
}

fn fill_first(world: &World) {
    world.fill(0);
}

fn fill_second(world: &World) {
    world.fill(1);
}

#[test]
fn a_drain_and_who_fills_a_batch() {
    explore("underway: a drain, one filler", Preemptions::Any, || run(&[fill_first, drain]));
}

#[test]
fn a_drain_and_two_who_fill() {
    explore("underway: a drain, two fillers", Preemptions::AtMost(3), || {
        run(&[fill_first, fill_second, drain]);
    });
}

#[test]
fn two_drains_and_who_fills_a_batch() {
    explore("underway: two drains, one filler", Preemptions::AtMost(4), || {
        run(&[fill_first, drain, drain]);
    });
}

/// Of one thread: the second drain waits on the other side.
#[test]
fn a_drain_after_a_drain() {
    explore("underway: a drain after a drain", Preemptions::AtMost(4), || {
        run(&[
            |world| {
                world.fill(0);
                world.fill(1);
            },
            |world| {
                drain(world);
                drain(world);
            },
        ]);
    });
}
