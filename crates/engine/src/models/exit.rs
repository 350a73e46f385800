//! The end of a worker: culling and retiring.
//!
//! **Proves.** A worker that was picked for a wake is never culled, so no work is stranded
//! (SEMANTICS 2.37); a worker that is culled is not picked. Retiring ends every worker, whatever it
//! is doing.
//!
//! **Bounds.** The production worker and queue; three workers, of which one is too many, or one or
//! two workers of a pool whose queue is destroyed; up to two, three and three preemptions: 1,505,
//! 13,282 and 31,164 executions.
//!
//! **Seen to fail** when a worker that wakes up does not check `picked` under the lock, when it
//! checks RETIRED before it has the lock or not at all, when `leave_set` wakes before it marks,
//! and when a set that is used again stays marked.

use std::sync::Arc;

use loom::thread;

use super::host::Event;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::Kind;
use crate::queue::submit::Queued;

#[test]
fn a_picked_worker_is_not_culled() {
    explore("exit: a picked worker is not culled", Preemptions::AtMost(2), || {
        let world = World::new(3, 3);
        let queue = world.unbound("u", 8);
        // Three items that hold their workers: the pool has three workers.
        let gates: [Arc<Event>; 3] = Default::default();
        let held = gates.clone().map(|gate| Item::with(move |_| gate.wait()));
        for item in &held {
            assert_eq!(item.queue(&queue), Queued::Yes);
            world.settle();
        }
        assert_eq!(world.engine.workers(), 3);
        // Two workers park.
        for (gate, item) in gates.iter().zip(&held).take(2) {
            gate.wake();
            item.done.wait();
            world.settle();
        }
        // The third worker is one too many, and its idle timeout has passed as soon as it parks.
        let late = Item::new();
        world.explored(|| {
            gates[2].wake();
            held[2].done.wait();
            assert_eq!(late.queue(&queue), Queued::Yes);
            late.done.wait();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(late.runs(), 1);
    });
}

#[test]
fn retiring_ends_every_worker() {
    explore("exit: retiring ends every worker", Preemptions::Deep(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            item.done.wait();
            // The worker may be in the item, at the queue, scanning, about to park, or parked.
            drop(queue);
            let engine = world.engine.clone();
            let other = thread::spawn(move || engine.retire());
            world.engine.retire();
            other.join().unwrap();
        });
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 1);
    });
}

#[test]
fn a_pool_that_is_left_and_used_again() {
    explore("exit: a pool that is left and used again", Preemptions::Deep(3), || {
        let world = World::new(1, 3);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        let again = world.explored(|| {
            // The pool's only queue is destroyed: the worker may retire.
            let other = thread::spawn(move || drop(queue));
            let again = world.queue("again", Kind::PerCpu, 2);
            assert_eq!(item.queue(&again), Queued::Yes);
            item.done.wait();
            other.join().unwrap();
            again
        });
        drop(again);
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 1);
    });
}
