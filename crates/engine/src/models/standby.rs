//! The standby of a CPU, at the moment at which it goes to sleep.
//!
//! **Proves.** An item that begins to wait behind a running worker of a pool in which blocks are
//! expected finds the standby awake, or wakes it, or has the pool examined.
//!
//! **Bounds.** The production worker, queue and standby; a round of the standby and its steps
//! before it sleeps, on a thread of the model; one worker, one item that waits; up to three
//! preemptions: 9 executions.
//!
//! **Seen to fail** when the standby does not look again after it has published its sleep, and when
//! the word that names the pool is not stored with `SeqCst`.

use loom::thread;

use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;

/// An item is queued behind one that does not end, while the standby goes to sleep.
#[test]
fn an_item_is_queued_while_the_standby_goes_to_sleep() {
    explore("standby: queued while the standby goes to sleep", Preemptions::AtMost(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        world.settle();
        world.engine.host().detect_by_standbys();
        let (held, gate) = world.hold_a_worker(&queue);
        let item = Item::new();
        world.engine.watch.wake(&world.engine);
        world.engine.expect_blocks(0);
        world.engine.standby_begins();
        world.explored(|| {
            let engine = world.engine.clone();
            let standby = thread::spawn(move || engine.standby_sleeps());
            assert_eq!(item.queue(&queue), Queued::Yes);
            standby.join().unwrap();
        });
        let examined = world.engine.take_examination(0);
        assert!(examined || world.engine.standby_is_called(), "the waiting item is known");
        gate.wake();
        held.done.wait();
        item.done.wait();
        drop(queue);
        assert!(world.end().is_empty());
    });
}
