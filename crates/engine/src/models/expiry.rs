//! The expiry of timers against a cancel, a change of the time, another thread that fires, and the last
//! drop of their queue.
//!
//! **Proves.** A timer of a batch that expires is cancelled or put off, or its item runs: exactly
//! one of these, for each of them, also while the timers of one instant are sorted. Two threads
//! that fire the same timers queue each item once. An item whose timer expires while its queue is
//! destroyed runs, or is released, once. Three threads take part there: the one that drops the
//! queue's last handle, the expiry that holds the memory for an instant, and the worker inside an
//! item. They do not free the queue twice, nor while the item is in it.
//!
//! **Bounds.** The production worker and queue; the expiry on a thread of its own, or inside an
//! item of another queue, where a separate thread has to wait for the queue; up to two preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - a cancel does not check the item's place again under the wheel's lock;
//! - `expired` does not release an item that its queue refuses;
//! - the drop of the last owner does not wait for the items that the expiry has queued.

use std::sync::Arc;

use loom::thread;

use super::world::{Item, Timed, World};
use super::{LoomHost, Preemptions, explore};
use crate::queue::Kind;
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::timer::Advance;
use crate::words::host::Report;

/// Later than every timer of a model.
const LATER: u64 = 1_000_000;

/// The queue refuses an item whose timer expires after the queue was closed.
fn is_refusal(report: &Report) -> bool {
    matches!(report, Report::QueuedWhileDraining { .. })
}

#[test]
fn an_expiry_during_the_last_drop_ends_the_item_once() {
    explore("expiry: beside the last drop", Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(1);
        let item = Timed::new();
        assert_eq!(item.arm(&queue), Queued::Yes);
        world.settle();
        world.explored(|| {
            let (engine, pool) = (world.engine.clone(), queue.pool_of(0).id);
            let expiry = thread::spawn(move || engine.pool(pool).fire_timers(&engine, LATER));
            drop(queue);
            expiry.join().unwrap();
        });
        assert!(world.end().iter().all(is_refusal));
        let (runs, released) = item.ends();
        assert_eq!(runs + released, 1);
    });
}

#[test]
fn an_expiry_inside_an_item_during_the_last_drop_ends_the_item_once() {
    explore("expiry: inside an item", Preemptions::AtMost(2), || {
        // The threads are the pool's two workers, and one that waits for the queue.
        let world = World::new(1, 4);
        let (queue, other) = (world.per_cpu(1), world.queue("other", Kind::PerCpu, 1));
        let item = Timed::new();
        assert_eq!(item.arm(&queue), Queued::Yes);
        let (engine, pool) = (std::sync::Arc::downgrade(&world.engine), queue.pool_of(0).id);
        let fires = Item::with(move |_| {
            let engine = engine.upgrade().expect("it runs this");
            engine.pool(pool).fire_timers(&engine, LATER);
        });
        world.settle();
        world.explored(|| {
            assert_eq!(fires.queue(&other), Queued::Yes);
            drop(queue);
            fires.done.wait();
        });
        drop(other);
        world.settle();
        assert!(world.end().iter().all(is_refusal));
        let (runs, released) = item.ends();
        assert_eq!((fires.runs(), runs + released), (1, 1));
    });
}

/// One timer of a batch is put off or cancelled, while a thread fires the batch.
fn a_batch_expires(name: &'static str, cancels: bool) {
    explore(name, Preemptions::AtMost(2), move || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let items = [Timed::new(), Timed::new()];
        for item in &items {
            assert_eq!(item.arm(&queue), Queued::Yes);
        }
        world.settle();
        let was_pending = world.explored(|| {
            let (engine, pool) = (world.engine.clone(), queue.pool_of(0).id);
            let expiry = thread::spawn(move || _ = engine.pool(pool).fire_timers(&engine, LATER));
            let was_pending = match cancels {
                true => items[1].cancel(&world.engine),
                false => items[1].put_off(&queue),
            };
            expiry.join().unwrap();
            was_pending
        });
        world.settle();
        // It was put off to a time that never comes.
        assert!(cancels || items[1].cancel(&world.engine));
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(items[0].ends(), (1, 0));
        assert_eq!(items[1].ends(), (u32::from(!was_pending), 0));
    });
}

#[test]
fn a_batch_expires_beside_a_cancel() {
    a_batch_expires("expiry: a batch beside a cancel", true);
}

#[test]
fn a_batch_expires_beside_a_change_of_the_time() {
    a_batch_expires("expiry: a batch beside a change of the time", false);
}

/// Three timers of one instant, armed in another order than that in which they are in their bucket.
fn out_of_order(world: &World, queue: &Queue<LoomHost>) -> [Arc<Timed>; 3] {
    let items = [Timed::new(), Timed::new(), Timed::new()];
    for item in &items {
        assert_eq!(item.arm(queue), Queued::Yes);
    }
    // The first one stays in its place, and is the last of its instant.
    assert!(items[0].arm_again(queue));
    world.settle();
    items
}

/// A sort stops after each hold of the lock. Meanwhile one of its timers is cancelled.
#[test]
fn timers_that_are_sorted_expire_beside_a_cancel() {
    explore("expiry: a sort beside a cancel", Preemptions::AtMost(1), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let items = out_of_order(&world, &queue);
        let was_pending = world.explored(|| {
            let (engine, pool) = (world.engine.clone(), queue.pool_of(0).id);
            let fires = move || while engine.pool(pool).fire_timers(&engine, LATER) {};
            let expiry = thread::spawn(fires);
            let was_pending = items[1].cancel(&world.engine);
            expiry.join().unwrap();
            was_pending
        });
        drop(queue);
        assert!(world.end().is_empty());
        let [first, second, third] = items.map(|item| item.ends());
        assert_eq!((first, second, third), ((1, 0), (u32::from(!was_pending), 0), (1, 0)));
    });
}

/// However many timers are sorted, a hold of the lock moves as many as it has steps.
#[test]
fn a_sort_takes_no_more_steps_than_it_has() {
    explore("expiry: the steps of a sort", Preemptions::AtMost(0), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let items = out_of_order(&world, &queue);
        let pool = queue.pool_of(0);
        let (mut holds, mut steps) = (0, 1);
        let first = loop {
            holds += 1;
            match pool.timers.lock().advance(LATER, &mut steps) {
                Advance::Due(item) => break item,
                Advance::Later => assert_eq!(std::mem::replace(&mut steps, 1), 0),
                Advance::Nothing => panic!("three timers are due"),
            }
        };
        // A move of each out of the bucket that is split, and one in the sort.
        assert_eq!((holds, first), (2 * items.len(), items[1].armed()));
        while pool.fire_timers(&world.engine, LATER) {}
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(items.map(|item| item.ends()), [(1, 0); 3]);
    });
}

#[test]
fn two_threads_fire_the_same_timers() {
    explore("expiry: two threads fire", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let items = [Timed::new(), Timed::new()];
        for item in &items {
            assert_eq!(item.arm(&queue), Queued::Yes);
        }
        world.settle();
        world.explored(|| {
            let (engine, pool) = (world.engine.clone(), queue.pool_of(0).id);
            let fires = move || while engine.pool(pool).fire_timers(&engine, LATER) {};
            let other = thread::spawn(fires.clone());
            fires();
            other.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(items.map(|item| item.ends()), [(1, 0), (1, 0)]);
    });
}
