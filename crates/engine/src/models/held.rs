//! The end of a stack frame with an item on it, against every thread that may still touch the item.
//!
//! **Proves.** When `Held::end` returns, every run is over, every queueing has ended, and the
//! engine does not touch the item again. The frame's later accesses are ordered after all of these.
//!
//! **Bounds.** The production worker, queue and timers; an item that is queued, that queues itself,
//! that another thread queues or cancels, and one whose timer expires after its queue was
//! destroyed; up to two preemptions (three where no worker takes part).
//!
//! **Seen to fail** with each of these:
//!
//! - `end` does not wait for 0, or waits relaxed;
//! - `end` sleeps without WAITED, or `end_one` does not wake where it finds WAITED;
//! - `end` does not count the queueing that `disable_sync` cancelled, or disables without waiting;
//! - `end_one` is relaxed;
//! - `offer` does not end a queueing that was refused.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use loom::thread;

use super::host::{LoomHost, WordSleep};
use super::world::World;
use super::{Preemptions, explore};
use crate::handle::Held;
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::timer::delayed::Delayed;
use crate::words::item::{Action, Work};
use crate::words::sync::Cell;

/// The contents of the frame. The model keeps its memory alive, so that loom reports a late access.
#[repr(C)]
struct Frame {
    item: Delayed<LoomHost>,
    held: Held,
    futex: WordSleep,
    /// The data that the item's function borrows.
    borrowed: Cell<u32>,
    /// The queue on which the first run queues the item again.
    again: Mutex<Option<Queue<LoomHost>>>,
}

unsafe fn perform(work: NonNull<Work>, action: Action) {
    // SAFETY: the first field of a frame that the model keeps.
    let frame = unsafe { work.cast::<Frame>().as_ref() };
    if action != Action::Run {
        // SAFETY: the frame has not ended. The model checks exactly that.
        let _ = unsafe { frame.borrowed.get() };
        // SAFETY: as above.
        return unsafe { Held::end_one(&raw const frame.held, 0, &frame.futex) };
    }
    // SAFETY: as above.
    unsafe { Held::end_one(&raw const frame.held, 0, &frame.futex) };
    // SAFETY: as above.
    unsafe { frame.borrowed.set(frame.borrowed.get() + 1) };
    let again = frame.again.lock().unwrap().take();
    if let Some(queue) = again {
        let _ = frame.queue(&queue);
    }
}

impl Frame {
    fn new() -> Arc<Frame> {
        let item = Delayed::new(perform);
        let (held, futex) = (Held::new(), WordSleep::default());
        let (borrowed, again) = (Cell::new(0), Mutex::new(None));
        Arc::new(Frame { item, held, futex, borrowed, again })
    }

    fn work(&self) -> NonNull<Work> {
        NonNull::from(self).cast()
    }

    fn queue(&self, queue: &Queue<LoomHost>) -> Queued {
        // SAFETY: the model keeps the frame.
        self.held.offer(0, &self.futex, || unsafe { queue.queue(self.work()) })
    }

    /// Ends the frame. Returns how often the item ran.
    fn end(&self, world: &World) -> u32 {
        // SAFETY: live, only this engine knows the item, and the caller is outside of it.
        unsafe { self.held.end(&world.engine, self.work(), 0, &self.futex) }.unwrap();
        // SAFETY: no thread touches the frame any more. The model checks exactly that.
        unsafe {
            let runs = self.borrowed.get();
            self.borrowed.set(u32::MAX);
            runs
        }
    }
}

#[test]
fn a_frame_ends_after_a_run_that_queues_the_item_again() {
    explore("held: it queues itself", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        let frame = Frame::new();
        *frame.again.lock().unwrap() = Some(queue.clone());
        world.settle();
        world.explored(|| {
            assert_eq!(frame.queue(&queue), Queued::Yes);
            assert!(frame.end(&world) <= 2);
        });
        *frame.again.lock().unwrap() = None;
        drop(queue);
        assert!(world.end().is_empty());
    });
}

#[test]
fn a_frame_ends_after_a_cancel_by_another_thread() {
    explore("held: it is cancelled", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        let frame = Frame::new();
        world.settle();
        world.explored(|| {
            assert_eq!(frame.queue(&queue), Queued::Yes);
            let (theirs, engine) = (frame.clone(), world.engine.clone());
            // A reference to the item does not outlive the frame: the other thread is joined first.
            let other = thread::spawn(move || {
                // SAFETY: the model keeps the frame.
                let cancelled =
                    unsafe { theirs.held.cancel(&engine, theirs.work(), 0, &theirs.futex) };
                u32::from(cancelled)
            });
            let cancelled = other.join().unwrap();
            assert_eq!(frame.end(&world) + cancelled, 1, "it ran, or the cancel removed it");
        });
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// The engine makes the item idle and then notifies its holder. Between the two a disable finds
/// nothing to cancel.
#[test]
fn a_frame_ends_after_its_expired_timer_was_released() {
    explore("held: its queue is destroyed", Preemptions::AtMost(3), || {
        let world = World::new(1, 1);
        let queue = world.per_cpu(1);
        let frame = Frame::new();
        let pool = queue.pool_of(0).id;
        // SAFETY: the model keeps the frame.
        let arm = || unsafe { queue.queue_delayed(None, frame.work().cast(), 1_000) }.unwrap();
        assert_eq!(frame.held.offer(0, &frame.futex, arm), Queued::Yes);
        drop(queue);
        world.settle();
        world.explored(|| {
            let engine = world.engine.clone();
            let later = 1_000_000;
            let expiry = thread::spawn(move || engine.pool(pool).fire_timers(&engine, later));
            assert_eq!(frame.end(&world), 0);
            expiry.join().unwrap();
        });
        assert!(world.end().is_empty());
    });
}
