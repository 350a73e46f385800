//! Flush: the colours of a pwq, the flush of a queue, the flush of an item.
//!
//! **Proves.** Of the worker that finishes the last item of a colour and the flusher that starts to
//! wait for it, exactly one ends the wait. The flusher sees the items' writes. No item that was
//! queued before a flush is still running when it returns. Two concurrent flushes both end. A
//! flusher that gives up gets its waiter back. A flush of an item ends with the item's run or with
//! its cancellation.
//!
//! **Bounds.** The colours alone: two finishers, any number of preemptions: 3,980 executions. The
//! rest with the production worker and queue: two flushes, 10,155; two items, 10,909; a flush of an
//! item, 15,682; a flush that gives up, 392, each up to three preemptions; against a cancel, up to
//! four, 544.
//!
//! **Seen to fail** when `finish` does not release, when `await_colour` does not acquire or marks
//! without comparing, when a flush does not splice or changes the colour first, and when a cancel
//! forgets the waiters.

use loom::thread;

use super::host::LoomHost;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::pool::Pool;
use crate::queue::pwq::{Limits, Pwq};
use crate::queue::submit::Queued;
use crate::words::item::{Action, Work};
use crate::words::sync::Cell;

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

#[test]
fn one_side_ends_the_wait_for_a_colour() {
    explore("flush: one side ends the wait for a colour", Preemptions::Any, || {
        let pool = Pool::<LoomHost>::new(0);
        let pwq = loom::sync::Arc::new(Pwq::<LoomHost>::new(0));
        let limits = Limits {
            max_active: 4,
            cpu_intensive: false,
            ordered: false,
            rescuer: None,
            name: crate::queue::Name::EMPTY,
        };
        pwq.attach(std::ptr::null(), &pool, limits, 3);
        let items = [Work::new(nothing), Work::new(nothing)];
        for item in &items {
            // SAFETY: live, ours, and pushed once.
            unsafe { pwq.inbox.push(std::ptr::from_ref(item).cast_mut()) };
        }
        pwq.splice(&mut pwq.lock());
        assert_eq!(items[0].ticket().colour(), 3);
        let done = loom::sync::Arc::new([Cell::new(0), Cell::new(0)]);
        let finishers = [0, 1].map(|finisher: usize| {
            let (pwq, done) = (pwq.clone(), done.clone());
            thread::spawn(move || {
                // SAFETY: no thread reads the cell before the colour is over. The model checks
                // exactly that.
                unsafe { done[finisher].set(1) };
                pwq.finish(3, 1)
            })
        });
        let waits = pwq.await_colour(3);
        // SAFETY: the colour is over, or the last finisher has reported its end.
        let look = || assert_eq!(done.iter().map(|cell| unsafe { cell.get() }).sum::<u32>(), 2);
        if !waits {
            look();
        }
        let told = finishers.map(|finisher| finisher.join().unwrap());
        assert_eq!(told.iter().filter(|&&told| told).count(), usize::from(waits));
        if waits {
            pwq.clear_awaited(3);
        }
        assert!(pwq.survey().0);
    });
}

#[test]
fn two_flushes_at_once() {
    explore("flush: two flushes at once", Preemptions::Deep(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            let handle = queue.clone();
            let other = thread::spawn(move || handle.flush().unwrap());
            queue.flush().unwrap();
            assert_eq!(item.runs(), 1);
            other.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// Under loom a bounded wait times out at once: the flusher gives up while the worker ends the
/// wait, at every point of it. The waiter is destroyed when the flush returns, so loom reports a
/// late access as a race.
#[test]
fn a_flush_that_gives_up_while_its_wait_ends() {
    explore("flush: giving up beside the end", Preemptions::AtMost(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            if queue.flush_until(super::host::NOW).unwrap() {
                assert_eq!(item.runs(), 1);
            }
            queue.flush().unwrap();
            assert_eq!(item.runs(), 1);
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_flush_sees_what_was_queued_before_it() {
    explore("flush: what was queued before it", Preemptions::Deep(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let (before, meanwhile) = (Item::new(), Item::new());
        world.settle();
        world.explored(|| {
            let (item, handle) = (meanwhile.clone(), queue.clone());
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            assert_eq!(before.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
            assert_eq!(before.runs(), 1);
            other.join().unwrap();
            queue.flush().unwrap();
            assert_eq!(meanwhile.runs(), 1);
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_flush_of_an_item_ends_with_its_run() {
    explore("flush: an item, its run", Preemptions::Deep(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(2);
        let item = Item::new();
        world.settle();
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            // SAFETY: the item is live, and only this engine knows it.
            unsafe { world.engine.flush_work(item.work()) };
            assert_eq!(item.runs(), 1);
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_flush_of_an_item_ends_with_its_cancellation() {
    explore("flush: an item, its cancellation", Preemptions::AtMost(4), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        // The only worker is inside another item: only the cancel can end the wait.
        let (held, gate) = world.hold_a_worker(&queue);
        let item = Item::new();
        assert_eq!(item.queue(&queue), Queued::Yes);
        world.explored(|| {
            let (target, engine) = (item.clone(), world.engine.clone());
            // SAFETY: the item is live, and only this engine knows it.
            let other = thread::spawn(move || unsafe { engine.cancel(target.work()) });
            // SAFETY: as above.
            unsafe { world.engine.flush_work(item.work()) };
            assert!(other.join().unwrap());
        });
        gate.wake();
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((held.runs(), item.runs()), (1, 0));
    });
}
