//! The whole engine, from the first submission to the last worker's end.
//!
//! **Proves.** The paths that every other model leaves out of its exploration: a queue that is
//! dropped while a worker still uses it, two queues that share a pool, an item that is queued on
//! one queue while it runs on another, an item that is run by the thread that waits for it. Counts
//! are exact, runs of one item never overlap, every thread ends.
//!
//! **Bounds.** The production worker and queue; up to two workers, three items; up to three
//! preemptions for the first two and the last, two for the others: 4,642, 20,351, 2,968, 5,432,
//! 23,104, 10,396 and 300 executions.
//!
//! **Seen to fail** when a queue does not settle before it is destroyed, or does not wait for the
//! last user of a pwq, when a collided item is not deferred, when a helper takes no permit, when a
//! full `take` or a full `give_back` does not saturate, when a worker that waits keeps its
//! scheduled items, when scheduled items are taken back without the pwq's lock, and when a worker
//! that ends a raise does not look again at the number of CPUs.

use std::sync::Arc;

use loom::thread;
use uwork_policy::batch::RunTimes;

use super::host::Event;
use super::world::{Item, World};
use super::{Preemptions, explore};
use crate::queue::submit::Queued;
use crate::wait::Helped;
use crate::words::host::Cpus;

/// Run times that let a worker take several items at once.
fn short_runs() -> RunTimes {
    let mut times = RunTimes::UNKNOWN;
    (0..100).for_each(|_| times.add(1, 1));
    times
}

#[test]
fn queue_flush_drop_retire() {
    explore("whole: queue, flush, drop, retire", Preemptions::AtMost(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(1);
        let items = [Item::new(), Item::new()];
        world.explored(|| {
            items.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
            queue.flush().unwrap();
            assert!(items.iter().all(|item| item.runs() == 1));
            drop(queue);
            world.engine.retire();
            world.engine.host().join_all();
        });
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_queue_dropped_while_items_are_queued() {
    explore("whole: dropped while items are queued", Preemptions::Deep(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        let items = [Item::new(), Item::new()];
        world.settle();
        world.explored(|| {
            let (item, handle) = (items[1].clone(), queue.clone());
            // The thread that drops the last handle waits for the items.
            let other = thread::spawn(move || assert_eq!(item.queue(&handle), Queued::Yes));
            assert_eq!(items[0].queue(&queue), Queued::Yes);
            drop(queue);
            other.join().unwrap();
            assert!(items.iter().all(|item| item.runs() == 1));
        });
        assert!(world.end().is_empty());
    });
}

#[test]
fn an_item_queued_on_another_queue_while_it_runs() {
    explore("whole: queued elsewhere while it runs", Preemptions::AtMost(2), || {
        let world = World::new(2, 2);
        let queues = [world.unbound("a", 4), world.unbound("b", 4)];
        let item = Item::new();
        world.settle();
        let again = world.explored(|| {
            assert_eq!(item.queue(&queues[0]), Queued::Yes);
            let again = item.queue(&queues[1]);
            queues.iter().for_each(|queue| queue.flush().unwrap());
            again
        });
        drop(queues);
        assert!(world.end().is_empty());
        assert_eq!(item.runs(), 1 + u32::from(again.is_queued()));
    });
}

#[test]
fn an_item_is_run_by_a_helper_or_a_worker() {
    explore("whole: helped or run by a worker", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.unbound("u", 1);
        let items = [Item::new(), Item::new()];
        world.settle();
        world.explored(|| {
            for item in &items {
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            // SAFETY: the item is live, and only this engine knows it.
            if unsafe { world.engine.help(items[0].work()) } == Helped::Ran {
                assert_eq!(items[0].runs(), 1);
            }
            items.iter().for_each(|item| item.done.wait());
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert!(items.iter().all(|item| item.runs() == 1));
    });
}

#[test]
fn items_given_back_while_a_helper_holds_the_last_permit() {
    let name = "whole: given back while a helper holds the last permit";
    explore(name, Preemptions::Deep(2), || {
        let world = World::new(2, 3);
        let queue = world.with_pod_limits(1);
        // Items are short: a worker takes two at once.
        queue.pwqs().for_each(|pwq| pwq.lock().run_times = short_runs());
        let gate = Arc::new(Event::default());
        let [second, third] = [Item::new(), Item::new()];
        let (engine, closed, awaited) = (world.engine.clone(), gate.clone(), second.clone());
        // The worker gives back the item scheduled behind this one, and waits for that item.
        let first = Item::with(move |_| {
            closed.wait();
            engine.blocking(|| awaited.done.wait());
        });
        assert_eq!(first.queue(&queue), Queued::Yes);
        assert_eq!(second.queue(&queue), Queued::Yes);
        world.settle();
        queue.set_max_active(2).unwrap();
        world.explored(|| {
            assert_eq!(third.queue(&queue), Queued::Yes);
            gate.wake();
            // SAFETY: the item is live, and only this engine knows it.
            let _ = unsafe { world.engine.help(third.work()) };
            [&first, &third].iter().for_each(|item| item.done.wait());
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert!([first, second, third].iter().all(|item| item.runs() == 1));
    });
}

#[test]
fn items_taken_back_keep_their_order() {
    let name = "whole: taken back in order";
    explore(name, Preemptions::AtMost(2), || {
        let world = World::new(2, 3);
        let queue = world.ordered("o");
        // Items are short: a worker takes two at once.
        queue.pwqs().for_each(|pwq| pwq.lock().run_times = short_runs());
        let gate = Arc::new(Event::default());
        let closed = gate.clone();
        let first = Item::with(move |_| closed.wait());
        let second = Item::new();
        let before = second.clone();
        let last = Item::with(move |_| assert_eq!(before.runs(), 1, "out of order"));
        assert_eq!(first.queue(&queue), Queued::Yes);
        assert_eq!(second.queue(&queue), Queued::Yes);
        world.settle();
        assert_eq!(last.queue(&queue), Queued::Yes);
        world.explored(|| {
            let engine = world.engine.clone();
            let watch = thread::spawn(move || {
                engine.slots.for_each(|(_, slot)| {
                    let _ = slot.take_back(&engine, |_| Some(()));
                });
            });
            gate.wake();
            watch.join().unwrap();
            last.done.wait();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert!([first, second, last].iter().all(|item| item.runs() == 1));
    });
}

#[test]
fn a_raise_that_ends_while_the_cpus_change_leaves_the_new_number() {
    explore("whole: a raise ends beside a change", Preemptions::AtMost(3), || {
        let world = World::new(2, 1);
        let queue = world.unbound("whole", 1);
        world.settle();
        let pool = world.engine.pool(0);
        assert_eq!(pool.base_target(), 2);
        pool.set_target(4);
        let one = Cpus { cpu_limit: Some(1), ..world.engine.cpus().clone() };
        world.explored(|| {
            let engine = world.engine.clone();
            let drops = thread::spawn(move || engine.pool(0).expire_raise(u64::MAX));
            pool.place(pool.spec(), &one);
            drops.join().unwrap();
        });
        assert_eq!((pool.base_target(), pool.target()), (1, 1));
        drop(queue);
        assert!(world.end().is_empty());
    });
}
