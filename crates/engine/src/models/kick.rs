//! Kick and park: submitters, the pool's counters, its ready list and its idle stack.
//!
//! **Proves.** No wake-up is lost: every queued item runs without a rescan, while the worker is
//! being woken, runs, looks for items, is about to park, or is parked; with a submitter that relies
//! on the wake of another (WAKING); and when a worker blocks in an item.
//!
//! **Bounds.** The production worker and queue; one or two workers, two submitters, one item each;
//! up to three preemptions (two where no thread can be spawned): 86,030, 9,219, 12,377 and 25,077
//! executions.
//!
//! **Seen to fail**, each time with every thread asleep: when a worker checks the lists before it
//! announces that it parks, when a submitter checks the counters before it pushes, when the push
//! into an inbox, the check of the inbox or the check of the counters is not `SeqCst`, when a
//! worker that blocks does not kick, and when the pool is not checked again after a failed spawn.

use std::sync::Arc;

use loom::thread;

use super::host::Event;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;

#[test]
fn two_submitters_and_a_worker() {
    explore("kick: two submitters and a worker", Preemptions::Deep(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        // The worker has been spawned and may be anywhere on its way to its first park.
        let items = [Item::new(), Item::new()];
        world.explored(|| {
            let (item, handle) = (items[1].clone(), queue.clone());
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            assert_eq!(items[0].queue(&queue), Queued::Yes);
            items.iter().for_each(|item| item.done.wait());
            other.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert!(items.iter().all(|item| item.runs() == 1));
    });
}

#[test]
fn two_submitters_and_a_parked_worker() {
    explore("kick: a parked worker", Preemptions::Deep(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let items = [Item::new(), Item::new()];
        world.settle();
        world.explored(|| {
            let (item, handle) = (items[1].clone(), queue.clone());
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            assert_eq!(items[0].queue(&queue), Queued::Yes);
            items.iter().for_each(|item| item.done.wait());
            other.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert!(items.iter().all(|item| item.runs() == 1));
    });
}

#[test]
fn a_worker_that_blocks() {
    explore("kick: a worker that blocks", Preemptions::Deep(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        // The first item declares a wait for the second.
        let second = Item::new();
        let (engine, awaited) = (world.engine.clone(), second.clone());
        let first = Item::with(move |_| engine.blocking(|| awaited.done.wait()));
        world.settle();
        world.explored(|| {
            let (item, handle) = (second.clone(), queue.clone());
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            assert_eq!(first.queue(&queue), Queued::Yes);
            first.done.wait();
            other.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((first.runs(), second.runs()), (1, 1));
    });
}

#[test]
fn a_thread_that_cannot_be_spawned() {
    explore("kick: a thread that cannot be spawned", Preemptions::Deep(2), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(4);
        let gate = Arc::new(Event::default());
        let (engine, closed) = (world.engine.clone(), gate.clone());
        let blocked = Item::with(move |_| engine.blocking(|| closed.wait()));
        let items = [Item::new(), Item::new()];
        assert_eq!(blocked.queue(&queue), Queued::Yes);
        world.settle();
        world.explored(|| {
            // A submitter that queues now asks for a second worker. If none can be spawned, it
            // relies on the first.
            let (item, handle) = (items[1].clone(), queue.clone());
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            gate.wake();
            blocked.done.wait();
            assert_eq!(items[0].queue(&queue), Queued::Yes);
            items.iter().for_each(|item| item.done.wait());
            other.join().unwrap();
        });
        drop(queue);
        world.end();
        assert!(items.iter().all(|item| item.runs() == 1));
    });
}
