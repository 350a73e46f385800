//! The last drop of a queue against a timer's expiry.
//!
//! **Proves.** An item whose timer expires while its queue is destroyed runs, or is released, once.
//! Three threads take part: the one that drops the queue's last handle, the expiry that holds the
//! memory for an instant, and the worker inside an item. They do not free the queue twice, nor
//! while the item is in it.
//!
//! **Bounds.** The production worker and queue; the expiry on a thread of its own, or inside an
//! item of another queue, where a separate thread has to wait for the queue; up to two preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - `expired` does not release an item that its queue refuses;
//! - the drop of the last owner does not wait for the items that the expiry has queued.

use loom::thread;

use super::world::{Item, Timed, World};
use super::{Preemptions, explore};
use crate::host::Report;
use crate::queue::Kind;
use crate::queue::submit::Queued;

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
