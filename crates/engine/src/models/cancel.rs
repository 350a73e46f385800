//! Cancel, disable and enable against start, queue and requeue.
//!
//! **Proves.** A pending item is cancelled or run, exactly one of the two; of two concurrent
//! cancels exactly one succeeds. After `cancel_sync` no run is in progress and none will start,
//! also when the item queues itself. A disabled item is refused or dequeued; `enable` counts.
//!
//! **Bounds.** The production worker and queue; one item, one other thread; up to three preemptions
//! (four for two cancels, two for `cancel_sync`, any for the depth): 7,039, 1,096, 9,186, 19,577
//! and 61 executions.
//!
//! **Seen to fail** when `locate` does not check again under the slot's lock, when an unlinked item
//! keeps its place, when `disable_sync` does not wait for the run, when `queue` ignores the depth,
//! and when `enable` does not lower it.

use loom::thread;

use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;

#[test]
fn a_pending_item_is_cancelled_or_run() {
    explore("cancel: cancelled or run", Preemptions::AtMost(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        let cancelled = world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            // SAFETY: the item is live, and only this engine knows it.
            unsafe { world.engine.cancel(item.work()) }
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), u32::from(!cancelled));
    });
}

#[test]
fn one_of_two_cancels_succeeds() {
    explore("cancel: one of two cancels succeeds", Preemptions::AtMost(4), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        // The only worker is inside another item, so the items wait.
        let (held, gate) = world.hold_a_worker(&queue);
        let items = [Item::new(), Item::new()];
        for item in &items {
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        let cancelled = world.explored(|| {
            let (target, engine) = (items[0].clone(), world.engine.clone());
            // SAFETY: the item is live, and only this engine knows it.
            let other = thread::spawn(move || unsafe { engine.cancel(target.work()) });
            // SAFETY: as above.
            let mine = unsafe { world.engine.cancel(items[0].work()) };
            [mine, other.join().unwrap()]
        });
        gate.wake();
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(cancelled.iter().filter(|&&cancelled| cancelled).count(), 1);
        assert_eq!((held.runs(), items[0].runs(), items[1].runs()), (1, 0, 1));
    });
}

#[test]
fn nothing_runs_after_cancel_sync() {
    explore("cancel: nothing runs after cancel_sync", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        // The item queues itself, once.
        let item = Item::with(|item| {
            if item.runs() == 1 {
                let _ = item.requeue();
            }
        });
        item.set_home(Some(&queue));
        world.settle();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            // SAFETY: the item is live, and only this engine knows it.
            let pending = unsafe { world.engine.cancel_sync(item.work()) }.unwrap();
            let runs = item.runs();
            assert!(pending || runs > 0);
            // SAFETY: as above.
            assert!(!unsafe { world.engine.cancel(item.work()) }, "nothing is left");
            queue.flush().unwrap();
            assert_eq!(item.runs(), runs, "nothing more has run");
        });
        item.set_home(None);
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn disabled_items_are_refused() {
    explore("cancel: disabled items are refused", Preemptions::Deep(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        let (taken_off, queued) = world.explored(|| {
            let (target, handle) = (item.clone(), queue.clone());
            let other = thread::spawn(move || target.queue(&handle));
            // SAFETY: the item is live, and only this engine knows it.
            let taken_off = unsafe { world.engine.disable_sync(item.work()) }.unwrap();
            let runs = item.runs();
            let queued = other.join().unwrap();
            assert_eq!(item.runs(), runs, "nothing runs while it is disabled");
            // SAFETY: as above.
            assert_eq!(unsafe { world.engine.enable(item.work()) }, Ok(true));
            (taken_off, queued)
        });
        drop(queue);
        assert!(world.end().is_empty());
        match queued {
            Queued::Yes => assert_eq!(item.runs(), u32::from(!taken_off)),
            // Refused. This includes the instant in which the disabling thread owned the item.
            Queued::Disabled | Queued::AlreadyPending => {
                assert_eq!((item.runs(), taken_off), (0, false));
            }
            Queued::Refused => unreachable!("the queue is open"),
        }
    });
}

#[test]
fn disables_and_enables_are_counted() {
    explore("cancel: disables and enables are counted", Preemptions::Any, || {
        let world = World::new(1, 1);
        let item = Item::new();
        // SAFETY: the item is live, and only this engine knows it.
        assert_eq!(unsafe { world.engine.disable(item.work()) }, Ok(false));
        let last = world.explored(|| {
            let (target, engine) = (item.clone(), world.engine.clone());
            let other = thread::spawn(move || {
                // SAFETY: the item is live, and only this engine knows it.
                unsafe { engine.enable(target.work()) }.unwrap()
            });
            // SAFETY: as above.
            unsafe {
                assert_eq!(world.engine.disable(item.work()), Ok(false));
                let mine = world.engine.enable(item.work()).unwrap();
                (mine, other.join().unwrap())
            }
        });
        // SAFETY: as above.
        assert_eq!(unsafe { item.work().as_ref() }.disable_depth(), 0);
        assert!(last.0 || last.1, "one of them was the last");
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 0);
    });
}
