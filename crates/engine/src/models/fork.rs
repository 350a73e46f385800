//! The end of a fork in the child: the first worker, whatever the thread that creates it holds.
//!
//! **Proves.** The child's first call may change a queue, under that queue's lock, and so create a
//! worker: the rescuers of all queues start, each once, and the items that the queues inherit run
//! once. The same if the first call waits, and if two threads of the child begin at the same time. No
//! mark that a slot of the parent had for its worker is left.
//!
//! **Bounds.** The production fork, queue and worker; a queue with a rescuer and one pending item; up
//! to two preemptions. The parent's threads are created and never run: the child has none of
//! them.
//!
//! **Seen to fail** with each of these:
//!
//! - the thread that creates a worker finishes the fork (a deadlock: it holds the queue's lock);
//! - `before_wait` does not finish the fork (a flush waits for an item that no thread starts);
//! - `Slot::forget` or `RemoteSlot::forget` leaves a mark out.

use std::sync::Arc;

use loom::thread;

use super::world::{Item, World};
use super::{LoomHost, Preemptions, explore};
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::words::host::Pages;

/// A child with a queue that has a rescuer and an inherited item.
struct Child {
    world: World,
    queue: Queue<LoomHost>,
    inherited: Arc<Item>,
}

impl Child {
    /// `threads` is the number of threads that the child creates.
    fn new(threads: u32) -> Child {
        let world = World::new(1, threads);
        world.engine.host().as_parent(true);
        let queue = world.inheriting("q");
        let inherited = Item::new();
        assert_eq!(inherited.queue(&queue), Queued::Yes);
        world.engine.host().as_parent(false);
        let pages = Pages::new();
        world.engine.before_fork(&pages).child();
        Child { world, queue, inherited }
    }

    /// Ends the child. The inherited item has run once. All threads were created, the rescuer among
    /// them, and no more: a refusal would have been reported.
    fn end(self) {
        assert_eq!(self.world.engine.host().spawns_left(), 0);
        drop(self.queue);
        assert!(self.world.end().is_empty());
        assert_eq!(self.inherited.runs(), 1);
    }
}

/// The parent's worker has waited and was to be woken, on one CPU, and its run is presumed to block.
/// None of the child's is, and the end of the presumption changes no running count there.
#[test]
fn no_slot_of_the_child_is_marked_for_a_worker_of_the_parent() {
    explore("fork: marks of a worker", Preemptions::AtMost(1), || {
        let world = World::new(1, 1);
        world.engine.host().as_parent(true);
        let queue = world.per_cpu(1);
        world.engine.host().as_parent(false);
        assert!(!world.engine.slot(0).has_traces());
        world.engine.slot(0).leave_traces();
        assert!(world.engine.slot(0).has_traces());
        let pages = Pages::new();
        world.engine.before_fork(&pages).child();
        assert!(!world.engine.slot(0).has_traces());
        world.engine.slot(0).end_presumed_block(|| unreachable!("no worker of the child has left"));
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_change_of_a_queue_is_the_first_call() {
    explore("fork: a change first", Preemptions::AtMost(2), || {
        let child = Child::new(3);
        child.world.explored(|| {
            child.queue.change_attrs(|attrs| attrs.nice = 5).unwrap();
            child.inherited.done.wait();
        });
        child.end();
    });
}

#[test]
fn a_flush_is_the_first_call() {
    explore("fork: a flush first", Preemptions::AtMost(2), || {
        let child = Child::new(2);
        child.world.explored(|| {
            child.queue.flush().unwrap();
            assert_eq!(child.inherited.runs(), 1);
        });
        child.end();
    });
}

#[test]
fn a_flush_and_a_submission_begin_at_once() {
    explore("fork: two threads first", Preemptions::Deep(2), || {
        let child = Child::new(2);
        let item = Item::new();
        child.world.explored(|| {
            let (target, handle) = (item.clone(), child.queue.clone());
            let submitter = thread::spawn(move || assert_eq!(target.queue(&handle), Queued::Yes));
            child.queue.flush().unwrap();
            submitter.join().unwrap();
            item.done.wait();
        });
        assert_eq!(item.runs(), 1);
        child.end();
    });
}
