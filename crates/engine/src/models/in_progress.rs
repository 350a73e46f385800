//! A drain of per-CPU bundles: the items in a bundle, and those that a filler is handing to the
//! sink.
//!
//! **Proves.** When a drain returns, the sink has every item that was added before the drain began,
//! whichever thread handed it over, and the sink's writes are visible. No wait is for ever, also
//! where other threads begin meanwhile, and where a second drain follows.
//!
//! **Bounds.** A bundle of one item for each of two CPUs. One thread that fills a bundle and one that
//! drains, any number of preemptions: 891 executions. Two fillers, two drainers, or one of each
//! twice, three or four preemptions: 2,200 to 34,277.
//!
//! **Seen to fail** with an end that releases nothing, a flip of the side or a wait that acquires
//! nothing, a wait for the other side, a wait that does not announce itself, or checks before it
//! announces itself, an end that wakes although it is not the last, a filler that begins after it
//! has marked its bundle empty, drains that are not serialised.
//!
//! **Not found**: missing fences in `begin` and `turn`. loom executes exchanges in the order in
//! which it runs threads, so the flip always sees a count that was made before the mark that the
//! drain has seen. Also not found: a wait that includes newcomers, because with two threads such a
//! wait ends as well.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::words::percpu::InProgress;
use crate::words::sync::{AtomicU32, Cell, Ordering};

/// A bundle that is full with its second item.
struct Bundle {
    /// How many items are in the bundle. The mutex stands for its CPU's lock.
    items: Mutex<u32>,
    /// The same number, for readers without the lock.
    used: AtomicU32,
    /// How many items the sink has received. Written by the threads that take items out, one after
    /// the other.
    sunk: Cell<u32>,
}

struct World {
    host: LoomHost,
    bundles: [Bundle; 2],
    underway: InProgress<LoomHost>,
    draining: Mutex<()>,
}

impl World {
    /// One item is in each bundle.
    fn new() -> Arc<World> {
        let bundle =
            || Bundle { items: Mutex::new(1), used: AtomicU32::new(1), sunk: Cell::new(0) };
        Arc::new(World {
            host: LoomHost::new(0),
            bundles: [bundle(), bundle()],
            underway: InProgress::default(),
            draining: Mutex::new(()),
        })
    }

    /// Adds an item, and hands the bundle that it fills to the sink.
    fn fill(&self, cpu: usize) {
        let bundle = &self.bundles[cpu];
        let mut items = bundle.items.lock().unwrap();
        if *items == 0 {
            // A drain has taken the first item, so this one does not fill the bundle; the model
            // ignores it.
            return;
        }
        let side = self.underway.begin();
        *items = 0;
        bundle.used.store(0, Ordering::Relaxed);
        drop(items);
        bundle.sink();
        self.underway.end(&self.host, side);
    }

    fn drain(&self) {
        let draining = self.draining.lock().unwrap();
        for bundle in &self.bundles {
            if bundle.used.load(Ordering::Relaxed) > 0 {
                let items = std::mem::take(&mut *bundle.items.lock().unwrap());
                if items > 0 {
                    bundle.used.store(0, Ordering::Relaxed);
                    bundle.sink();
                }
            }
        }
        if let Some(side) = self.underway.turn() {
            self.underway.wait(&self.host, side);
        }
        drop(draining);
    }

    fn check(&self) {
        for bundle in &self.bundles {
            // SAFETY: the bundle's items were handed to the sink once. The model checks that this is
            // done.
            assert_eq!(unsafe { bundle.sunk.get() }, 1);
        }
    }
}

impl Bundle {
    fn sink(&self) {
        // SAFETY: only the thread that took the items out of the bundle calls this for them.
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
