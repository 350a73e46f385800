//! An idle worker that moves from one pod to another with which it shares work.
//!
//! **Proves.** The worker that moves arrives and runs the item that it was woken for. The worker
//! that stays serves its own pod. A worker whose new pool is retired during the move ends.
//!
//! **Bounds.** The production worker and queue; two pods, three or four workers, two or three
//! items; up to two, one and one preemptions: 7,688, 463 and 1,380 executions.
//!
//! **Seen to fail** when the worker is not woken at the end of the move, and when it stays in its
//! old pool; the last one when a second look in a round takes the locks of the pools again.

use std::sync::Arc;

use loom::thread;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use super::host::{Event, LoomHost};
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::queue::{Attrs, Kind};

/// A queue whose pods, one for each CPU, share their work.
fn sharing(world: &World) -> Queue<LoomHost> {
    let cpumask = world.engine.config().allowed.clone();
    let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
    let attrs = Attrs { nice: 0, cpumask, scope, strict: false };
    world.queue("shares", Kind::Unbound(attrs), 4)
}

fn queue_on(queue: &Queue<LoomHost>, cpu: u32, item: &Item) {
    // SAFETY: every model keeps its items until the engine has ended.
    assert_eq!(unsafe { queue.queue_on(cpu, item.work()) }.unwrap(), Queued::Yes);
}

/// Two pods, the first with two idle workers, the second with one. `more` further workers can be
/// spawned.
fn world(more: u32) -> (World, Queue<LoomHost>) {
    let world = World::new(2, 3 + more);
    let queue = sharing(&world);
    let gates: [Arc<Event>; 2] = Default::default();
    let items = gates.clone().map(|gate| {
        let engine = world.engine.clone();
        Item::with(move |_| engine.blocking(|| gate.wait()))
    });
    for item in &items {
        // While the first item waits, another worker is spawned for the second.
        queue_on(&queue, 0, item);
        world.settle();
    }
    for (gate, item) in gates.iter().zip(&items) {
        gate.wake();
        item.done.wait();
        world.settle();
    }
    assert_eq!(world.engine.workers(), 3);
    (world, queue)
}

/// An item that waits until the other one has run, for which only the other pod has an idle worker.
fn waiting_for(world: &World, behind: &Arc<Item>) -> Arc<Item> {
    let (engine, behind) = (world.engine.clone(), behind.clone());
    Item::with(move |_| engine.blocking(|| behind.done.wait()))
}

#[test]
fn a_worker_that_moves_arrives() {
    explore("transfer: a worker that moves arrives", Preemptions::Deep(2), || {
        let (world, queue) = world(1);
        let behind = Item::new();
        let waits = waiting_for(&world, &behind);
        world.explored(|| {
            queue_on(&queue, 1, &waits);
            queue_on(&queue, 1, &behind);
            waits.done.wait();
        });
        drop(queue);
        // The engine may have reported that no more workers can be spawned.
        let _ = world.end();
        assert_eq!((waits.runs(), behind.runs()), (1, 1));
    });
}

#[test]
fn a_worker_that_stays_serves_the_old_pod() {
    explore("transfer: a worker that stays serves", Preemptions::AtMost(1), || {
        let (world, queue) = world(1);
        let (behind, here) = (Item::new(), Item::new());
        let waits = waiting_for(&world, &behind);
        world.explored(|| {
            queue_on(&queue, 1, &waits);
            queue_on(&queue, 1, &behind);
            queue_on(&queue, 0, &here);
            waits.done.wait();
            here.done.wait();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((waits.runs(), behind.runs(), here.runs()), (1, 1, 1));
    });
}

#[test]
fn a_worker_that_moves_to_a_retired_pool_ends() {
    explore("transfer: the end of the new pool", Preemptions::AtMost(1), || {
        let (world, queue) = world(0);
        let behind = Item::new();
        let waits = waiting_for(&world, &behind);
        world.explored(|| {
            queue_on(&queue, 1, &waits);
            queue_on(&queue, 1, &behind);
            drop(queue);
            let engine = world.engine.clone();
            let other = thread::spawn(move || engine.retire());
            waits.done.wait();
            other.join().unwrap();
        });
        let _ = world.end();
        assert_eq!((waits.runs(), behind.runs()), (1, 1));
    });
}

/// Not explored: a second look at the pool's workers would wait for its lock for ever.
#[test]
fn a_round_of_refits_looks_at_the_workers_of_a_set_once() {
    explore("transfer: a set in a round of refits", Preemptions::AtMost(0), || {
        let world = World::new(2, 3);
        let queue = sharing(&world);
        let set = world.engine.sets.lock()[0].clone();
        let mask = world.engine.config().allowed.clone();
        set.create_first_workers(&world.engine, &mask, Some(1)).unwrap();
        let held = world.engine.pool(set.pools[0]).lock();
        set.create_first_workers(&world.engine, &mask, Some(1)).unwrap();
        drop(held);
        drop(queue);
        let _ = world.end();
    });
}
