//! Run numbers that repeat: an idle item names a run whose number its slot has reached once more.
//!
//! **Proves.** Such an item is not mistaken for the one that runs there. A flush from inside that
//! other run waits for the item, the run lends its permit of the queue to the item, the item is not
//! deferred behind that run, and a `cancel_sync` does not wait for that run.
//!
//! **Bounds.** The production worker and queue; the slot's number is reset between two runs, as if
//! it had wrapped; one worker and one more for each wait; up to two preemptions.
//!
//! **Seen to fail** when `Caller::runs`, `defer`, `wait_for` or `take_over` compares the number
//! alone.

use std::sync::{Arc, Mutex, Weak};

use super::host::{Event, LoomHost};
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;

/// Runs a new item once on the first worker, and then resets that worker's number: the next run has
/// the number that the item names.
fn item_of_an_old_run(world: &World, queue: &Queue<LoomHost>) -> Arc<Item> {
    let old = Item::new();
    assert_eq!(old.queue(queue), Queued::Yes);
    old.done.wait();
    world.settle();
    // SAFETY: the item is live.
    let run = unsafe { old.work().as_ref() }.word.snapshot().1.expect("it has run");
    world.engine.slot(run.slot).leave(run.run - 1);
    old
}

/// Queues the item of an old run and flushes it, from inside the run that has the same number
/// again.
fn flushed_from_inside(world: World, queue: Queue<LoomHost>) {
    let old = item_of_an_old_run(&world, &queue);
    let (item, home, engine): (_, _, Weak<_>) =
        (old.clone(), Mutex::new(Some(queue.clone())), Arc::downgrade(&world.engine));
    let outer = Item::with(move |_| {
        let (queue, engine) = (home.lock().unwrap().take().unwrap(), engine.upgrade().unwrap());
        assert_eq!(item.queue(&queue), Queued::Yes);
        // SAFETY: the item is live, and only this engine knows it.
        let flushed = unsafe { engine.flush_work(item.work()) };
        assert!(flushed || item.runs() == 2, "the flush did not wait");
        assert_eq!(item.runs(), 2);
    });
    world.explored(|| {
        assert_eq!(outer.queue(&queue), Queued::Yes);
        outer.done.wait();
    });
    drop(queue);
    assert!(world.end().is_empty());
    assert_eq!((outer.runs(), old.runs()), (1, 2));
}

#[test]
fn a_flush_from_inside_a_run_of_the_same_number_waits() {
    explore("wrap: a flush from inside", Preemptions::AtMost(2), || {
        let world = World::new(1, 3);
        let queue = world.per_cpu(2);
        flushed_from_inside(world, queue);
    });
}

#[test]
fn a_flush_from_inside_a_run_of_the_same_number_lends_its_permit() {
    explore("wrap: a permit is lent", Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.unbound("u", 1);
        flushed_from_inside(world, queue);
    });
}

/// The item is queued from inside that run, which waits for it: deferred, it would never run.
#[test]
fn an_item_is_not_deferred_behind_another_run_of_the_same_number() {
    explore("wrap: not deferred", Preemptions::AtMost(2), || {
        let world = World::new(1, 3);
        let queue = world.per_cpu(2);
        let old = item_of_an_old_run(&world, &queue);
        let (item, home) = (old.clone(), Mutex::new(Some(queue.clone())));
        let engine = Arc::downgrade(&world.engine);
        let outer = Item::with(move |_| {
            let (queue, engine) = (home.lock().unwrap().take().unwrap(), engine.upgrade().unwrap());
            assert_eq!(item.queue(&queue), Queued::Yes);
            engine.blocking(|| item.done.wait());
        });
        world.explored(|| {
            assert_eq!(outer.queue(&queue), Queued::Yes);
            outer.done.wait();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((outer.runs(), old.runs()), (1, 2));
    });
}

#[test]
fn a_cancel_does_not_wait_for_another_run_of_the_same_number() {
    explore("wrap: a cancel", Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(1);
        let old = item_of_an_old_run(&world, &queue);
        let gate = Arc::new(Event::default());
        let (closed, begun) = (gate.clone(), Arc::new(Event::default()));
        let begins = begun.clone();
        let outer = Item::with(move |_| {
            begins.wake();
            closed.wait();
        });
        world.explored(|| {
            assert_eq!(outer.queue(&queue), Queued::Yes);
            begun.wait();
            // SAFETY: the item is live, and only this engine knows it.
            assert_eq!(unsafe { world.engine.cancel_sync(old.work()) }, Ok(false));
            gate.wake();
            outer.done.wait();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((outer.runs(), old.runs()), (1, 1));
    });
}
