//! The mayday handshake: a pool that gets no worker, and the rescuer of a queue.
//!
//! **Proves.** An item that waits in a pool whose only worker is blocked, and for which no thread
//! can be spawned, is run by the rescuer, without the watcher: a mayday mark that is set after the
//! rescuer's check ends its park. The destruction of the queue ends the rescuer, also while a
//! mayday is being sent.

use std::sync::Arc;

use uwork_policy::flags::Flags;

use super::host::Event;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;

#[test]
fn an_item_that_the_only_worker_waits_for_is_rescued() {
    explore("mayday: an item that is waited for", Preemptions::AtMost(2), || {
        // One thread for the worker and one for the rescuer: no other thread can be spawned.
        let world = World::new(1, 2);
        let queue = world.flagged(Flags::MEM_RECLAIM, 2);
        let gate = Arc::new(Event::default());
        let (engine, closed) = (Arc::downgrade(&world.engine), gate.clone());
        let waits = Item::with(move |_| {
            let engine = engine.upgrade().expect("it runs this");
            engine.blocking(|| closed.wait());
        });
        let opens = Item::with(move |_| gate.wake());
        world.settle();
        world.explored(|| {
            assert_eq!(waits.queue(&queue), Queued::Yes);
            assert_eq!(opens.queue(&queue), Queued::Yes);
            waits.done.wait();
            opens.done.wait();
        });
        drop(queue);
        // The engine reports that no thread could be spawned.
        let _ = world.end();
        assert_eq!((waits.runs(), opens.runs()), (1, 1));
    });
}

#[test]
fn a_rescuer_ends_with_its_queue() {
    explore("mayday: the end of the queue", Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.flagged(Flags::MEM_RECLAIM, 1);
        let item = Item::new();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            drop(queue);
        });
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 1);
    });
}
