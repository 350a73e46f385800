//! The mayday handshake: a pool that gets no worker, and the rescuer of a queue.
//!
//! **Proves.** An item that waits in a pool whose only worker is blocked, and for which no thread
//! can be made, is run by the rescuer, without the watch: the mark that is made after the rescuer's
//! look ends its park. The end of the queue ends the rescuer, also where a mayday is on its way.
//!
//! **Bounds.** The production worker, queue and rescuer; one worker that waits for the item that
//! the rescuer has to run; up to two preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - `send_maydays` wakes before it marks, or does not wake;
//! - `stop_rescuer` wakes before it stores `stop`.

use std::sync::Arc;

use uwork_policy::flags::Flags;

use super::host::Event;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::submit::Queued;

#[test]
fn an_item_that_the_only_worker_waits_for_is_rescued() {
    explore("mayday: an item that is waited for", Preemptions::AtMost(2), || {
        // The worker and the rescuer: no other can be made.
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
        // It reports that no thread could be made.
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
