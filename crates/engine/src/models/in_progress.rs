//! A drain of per-CPU batches: the items in a batch, and those that a filler is handing to the
//! sink.
//!
//! **Proves.** When a drain returns, the sink has every item that was added before the drain began,
//! whichever thread handed it over, and the sink's writes are visible. No wait is for ever, also
//! where other threads begin meanwhile, and where a second drain follows.
//!
//! **Bounds.** A batch of one item for each of two CPUs. One thread that fills a batch and one that
//! drains, any number of preemptions: 891 executions. Two fillers, two drainers, or one of each
//! twice, three or four preemptions: 2,200 to 34,277.
//!
//! **Seen to fail** with an end that releases nothing, a flip of the side or a wait that acquires
//! nothing, a wait for the other side, a wait that does not announce itself, or checks before it
//! announces itself, an end that wakes although it is not the last, a filler that begins after it
//! has marked its batch empty, drains that are not serialised.
//!
//! **Not found**: missing fences in `begin` and `turn`. loom executes exchanges in the order in
//! which it runs threads, so the flip always sees a count that was made before the mark that the
//! drain has seen. Also not found: a wait that includes newcomers, because with two threads such a
//! wait ends as well.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::percpu::InProgress;
use crate::sync::{AtomicU32, Cell, Ordering};

/// A batch that is full with its second item.
struct Batch {
    /// How many items are in the batch. The mutex stands for its CPU's lock.
    items: Mutex<u32>,
    /// The same number, for readers without the lock.
    used: AtomicU32,
    /// How many items the sink has received. Written by the threads that take items out, one after
    /// the other.
    sunk: Cell<u32>,
}

struct World {
    host: LoomHost,
    batches: [Batch; 2],
    underway: InProgress<LoomHost>,
    draining: Mutex<()>,
}

impl World {
    /// One item is in each batch.
    fn new() -> Arc<World> {
        let batch = || Batch { items: Mutex::new(1), used: AtomicU32::new(1), sunk: Cell::new(0) };
        Arc::new(World {
            host: LoomHost::new(0),
            batches: [batch(), batch()],
            underway: InProgress::default(),
            draining: Mutex::new(()),
        })
    }

    /// Adds an item, and hands the batch that it fills to the sink.
    fn fill(&self, cpu: usize) {
        let batch = &self.batches[cpu];
        let mut items = batch.items.lock().unwrap();
        if *items == 0 {
            // A drain has taken the first item, so this one does not fill the batch; the model
            // ignores it.
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
            // SAFETY: the batch's items were handed to the sink once. The model checks that this is
            // done.
            assert_eq!(unsafe { batch.sunk.get() }, 1);
        }
    }
}

impl Batch {
    fn sink(&self) {
        // SAFETY: only the thread that took the items out of the batch calls this for them.
        unsafe { self.sunk.set(self.sunk.get() + 1) };
    }
}

type Part = fn(&World);

/// Each thread runs its part. The last part runs on the thread created last: it reads what the
/// others write (see `models`).
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
fn a_drain_and_a_filler() {
    explore("underway: a drain, one filler", Preemptions::Any, || run(&[fill_first, drain]));
}

#[test]
fn a_drain_and_two_fillers() {
    explore("underway: a drain, two fillers", Preemptions::AtMost(3), || {
        run(&[fill_first, fill_second, drain]);
    });
}

#[test]
fn two_drains_and_a_filler() {
    explore("underway: two drains, one filler", Preemptions::AtMost(4), || {
        run(&[fill_first, drain, drain]);
    });
}

/// Two drains of one thread: the second waits on the other side.
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
