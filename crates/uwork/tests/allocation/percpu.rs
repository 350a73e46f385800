//! Adding to a bundle allocates nothing on a CPU that has a buffer, whichever thread drains it from
//! whichever CPU. Allocating an object from a cache that has free objects allocates nothing from
//! the system. The allocator of this process counts per thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::vec::Drain;

use crate::support::child::alone_each;
use crate::support::counting::counted;
use crate::support::gate::Gate;
use crate::support::machine::{cpus, on_cpu, pin};
use crate::support::watchdog;
use uwork::percpu::{Bundle, Cache};

const CAPACITY: u64 = 8;
const ROUNDS: u64 = 100;

/// The allocations by the adds of a thread on `cpu`, while another thread drains between them. The
/// first add is not counted. At each drain the bundle has `items` items.
fn allocated_by_adds(bundle: &Bundle<u64>, cpu: u32, items: u64) -> u64 {
    let turns: Vec<(Gate, Gate)> = (0..ROUNDS).map(|_| Default::default()).collect();
    let turns = &turns;
    thread::scope(|scope| {
        scope.spawn(move || {
            for (added, drained) in turns {
                added.wait();
                bundle.drain_all().unwrap();
                drained.open();
            }
        });
        on_cpu(cpu, || {
            bundle.add(1);
            let mut allocated = 0;
            for (added, drained) in turns {
                let before = counted();
                (0..items).for_each(|_| bundle.add(1));
                allocated += counted() - before;
                added.open();
                drained.wait();
            }
            allocated
        })
    })
}

// Catches: a drain that takes a CPU's buffer together with its items; a full bundle whose buffer is
// not returned.
#[test]
fn an_add_after_a_drain_allocates_nothing() {
    let _watchdog = watchdog();
    let test = "an_add_after_a_drain_allocates_nothing";
    alone_each(test, "UWORK_PWLOCKS", &["0", "1", "2"], "UWORK_DEBUG", |mode| {
        let sunk = Arc::new(AtomicU64::new(0));
        let bundle = Bundle::new(CAPACITY as usize, {
            let sunk = sunk.clone();
            move |items: Drain<'_, u64>| _ = sunk.fetch_add(items.sum(), Ordering::Relaxed)
        });
        let mut added = 0;
        // Every other CPU's bundle has an item as well: buffers move from one CPU to the next.
        for cpu in cpus() {
            for items in [1, CAPACITY - 1, CAPACITY, 3 * CAPACITY + 1] {
                cpus().iter().for_each(|&other| on_cpu(other, || bundle.add(1)));
                assert_eq!(allocated_by_adds(&bundle, cpu, items), 0, "mode {mode}, CPU {cpu}");
                added += cpus().len() as u64 + 1 + ROUNDS * items;
            }
        }
        assert_eq!(bundle.drain_all(), Ok(0));
        assert_eq!(sunk.load(Ordering::Relaxed), added);
    });
}

// Catches: lists of free objects that grow, or change their owner, where a thread allocates or
// frees: other threads use the allocator's locks too.
#[test]
fn free_objects_are_allocated_and_freed_without_the_systems_allocator() {
    /// Enough objects for several magazines.
    const OBJECTS: usize = 2_000;
    let _watchdog = watchdog();
    let test = "free_objects_are_allocated_and_freed_without_the_systems_allocator";
    alone_each(test, "UWORK_PWLOCKS", &["0", "1", "2"], "UWORK_DEBUG", |mode| {
        let cache = Cache::<[u64; 8]>::new("counted");
        let turns: Vec<(Gate, Gate)> = (0..ROUNDS).map(|_| Default::default()).collect();
        let (cache, turns) = (&cache, &turns);
        let allocated = thread::scope(|scope| {
            scope.spawn(move || {
                for (freed, flushed) in turns {
                    freed.wait();
                    cache.flush_all().unwrap();
                    flushed.open();
                }
            });
            // On one CPU, because each CPU has magazines of its own, which its first objects
            // allocate.
            let user = scope.spawn(move || {
                pin(cpus()[0]);
                let mut out = Vec::with_capacity(OBJECTS);
                let mut allocated = 0;
                for (number, (freed, flushed)) in turns.iter().enumerate() {
                    let before = counted();
                    // All of them at first; then a few, or all.
                    let count = if number % 3 == 1 { 5 } else { OBJECTS };
                    out.extend((0..count).map(|_| cache.alloc_raw()));
                    for object in out.drain(..) {
                        // SAFETY: from this cache, and no other thread uses it.
                        unsafe { cache.free_raw(object) };
                    }
                    allocated += if number > 0 { counted() - before } else { 0 };
                    freed.open();
                    flushed.wait();
                }
                allocated
            });
            user.join().expect("no panic")
        });
        assert_eq!((allocated, cache.stats().out), (0, 0), "mode {mode}");
    });
}
