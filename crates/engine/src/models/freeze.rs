//! Freezing against a queue call.
//!
//! **Proves.** Once a freeze has begun and no worker holds items of a frozen queue, no item of it
//! runs until the thaw. Items that were queued before, while the freeze began, and during it run
//! once, after the thaw, without another kick. A flush that waits for a frozen item ends after the
//! thaw.
//!
//! **Bounds.** The production worker and queue; one item that is queued concurrently with a freeze
//! and a thaw; up to two preemptions (one for the flush).
//!
//! **Seen to fail** with each of these:
//!
//! - a frozen queue's limit is not 0;
//! - a thaw pushes the pwqs that became ready on no list;
//! - `is_held` does not check the workers on the pwq.

use loom::thread;
use uwork_policy::flags::Flags;

use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;

#[test]
fn nothing_runs_between_a_freeze_and_its_thaw() {
    explore("freeze: nothing runs", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.flagged(Flags::FREEZABLE, 1);
        let item = Item::new();
        world.settle();
        world.explored(|| {
            let (target, handle) = (item.clone(), queue.clone());
            let submitter = thread::spawn(move || assert_eq!(target.queue(&handle), Queued::Yes));
            world.engine.freeze_begin().unwrap();
            if world.engine.freeze_busy() == Ok(false) {
                // loom reports a run that is still in progress as a race.
                let runs = item.runs();
                assert_eq!(world.engine.freeze_busy(), Ok(false));
                assert_eq!(item.runs(), runs);
            }
            world.engine.thaw().unwrap();
            item.done.wait();
            submitter.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 1);
    });
}

#[test]
fn a_flush_that_begins_in_a_freeze_ends_after_the_thaw() {
    explore("freeze: a flush", Preemptions::AtMost(1), || {
        let world = World::new(1, 1);
        let queue = world.flagged(Flags::FREEZABLE, 1);
        let item = Item::new();
        world.settle();
        world.engine.freeze_begin().unwrap();
        assert_eq!(item.queue(&queue), Queued::Yes);
        world.explored(|| {
            let engine = world.engine.clone();
            let thaws = thread::spawn(move || engine.thaw().unwrap());
            // SAFETY: the item is live, and only this engine knows it.
            unsafe { world.engine.flush_work(item.work()) };
            assert_eq!(item.runs(), 1);
            thaws.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}
