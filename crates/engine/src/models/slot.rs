//! The biased lock of a slot: its owner against remote threads.
//!
//! **Proves.** Owner and remote threads exclude each other from the lists. A scheduled item is run
//! or taken, exactly one of the two. A thread that sees that a run is over also sees that run's
//! writes. Work that was deferred to the end of a run (an item, a waiter) is found at that end,
//! before the owner's next run.
//!
//! **Bounds.** One owner with one or two items; one remote thread with one operation and any number
//! of preemptions: 1,565, 5, 26,195 and 24,715 executions; two remote threads, up to three
//! preemptions: 13,732.
//!
//! **Seen to fail** without the light or the heavy fence, without the wait for the end of a
//! SECTION, without DEFERRED, with a relaxed `is_running`, load of `attention`, end of a run or
//! unlock.

use loom::sync::Arc;
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::slot::{Next, Slot};
use crate::words::item::{Action, Location, Work, WorkList};
use crate::words::sync::Cell;
use crate::words::wake::Waiter;

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

const SLOT: u32 = 0;

struct World {
    host: LoomHost,
    slot: Slot<LoomHost>,
    items: [Work; 2],
    /// The write of each run. The protocol orders it, or loom reports a race.
    did: [Cell<bool>; 3],
}

fn pointer(item: &Work) -> *mut Work {
    std::ptr::from_ref(item).cast_mut()
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            host: LoomHost::new(0),
            slot: Slot::new(),
            items: [Work::new(nothing), Work::new(nothing)],
            did: [(); 3].map(|()| Cell::new(false)),
        })
    }

    /// The owner schedules the first `count` items.
    fn schedule(&self, count: usize) {
        for item in &self.items[..count] {
            item.set_location(Location::Scheduled(SLOT));
            self.slot.with_scheduled(&self.host, |scheduled| {
                // SAFETY: live, in no list, ours.
                unsafe { scheduled.push_back(pointer(item)) };
            });
        }
    }

    /// The owner runs items until none is scheduled. Returns the items that it ran, and the
    /// deferred items that it found.
    fn run_all(&self) -> (Vec<*mut Work>, Vec<*mut Work>) {
        let (mut ran, mut deferred_items) = (Vec::new(), Vec::new());
        let mut number = self.slot.number();
        loop {
            match self.slot.next(&self.host, number) {
                Next::Run(item, run, _) => {
                    number = run;
                    ran.push(item);
                    // SAFETY: other threads read the cell after the run is over. The model checks
                    // exactly that.
                    unsafe { self.did[run as usize].set(true) };
                }
                Next::AtRunEnd(mut aside) => {
                    aside.waiters.complete(&self.host);
                    deferred_items.extend(drain(&mut aside.items));
                }
                Next::WaitedFor(_) => unreachable!("no ticket says so"),
                Next::Empty => return (ran, deferred_items),
            }
        }
    }

    /// The steps of `cancel` on a scheduled item. True if it got the item.
    fn remove(&self, item: &Work) -> bool {
        let mut lists = self.slot.lock_remote(&self.host);
        if item.location() != Location::Scheduled(SLOT) {
            return false;
        }
        // SAFETY: the list that its location names, read under the lock.
        unsafe { lists.remove_scheduled(pointer(item)) };
        item.set_location(Location::Detached);
        true
    }
}

fn drain(list: &mut WorkList) -> Vec<*mut Work> {
    std::iter::from_fn(|| Some(list.pop_front()).filter(|item| !item.is_null())).collect()
}

#[test]
fn a_scheduled_item_is_run_or_removed() {
    explore("slot: run or removed", Preemptions::Any, || {
        let world = World::new();
        world.schedule(2);
        let remover = {
            let world = world.clone();
            thread::spawn(move || world.remove(&world.items[1]))
        };
        let (ran, deferred_items) = world.run_all();
        let removed = remover.join().unwrap();
        assert_eq!(ran.len(), 2 - usize::from(removed));
        assert!(deferred_items.is_empty());
    });
}

/// The owner was found blocked before: neither side has another fence than those for such an owner.
#[test]
fn a_fenced_owner_needs_no_asymmetric_fence() {
    explore("slot: run or removed, full fences", Preemptions::Any, || {
        let world = World::new();
        world.slot.fence_owner();
        world.host.drop_asymmetric_fences();
        world.schedule(2);
        let remover = {
            let world = world.clone();
            thread::spawn(move || world.remove(&world.items[1]))
        };
        let (ran, deferred_items) = world.run_all();
        let removed = remover.join().unwrap();
        assert_eq!(ran.len(), 2 - usize::from(removed));
        assert!(deferred_items.is_empty());
    });
}

#[test]
fn a_scheduled_item_is_run_removed_or_stolen() {
    explore("slot: run, removed or stolen", Preemptions::AtMost(3), || {
        let world = World::new();
        world.schedule(2);
        let remover = {
            let world = world.clone();
            thread::spawn(move || world.remove(&world.items[0]))
        };
        let thief = {
            let world = world.clone();
            thread::spawn(move || {
                let mut stolen = world.slot.lock_remote(&world.host).take_scheduled();
                drain(&mut stolen).len()
            })
        };
        let (ran, _) = world.run_all();
        let taken = usize::from(remover.join().unwrap()) + thief.join().unwrap();
        assert_eq!(ran.len() + taken, 2);
    });
}

#[test]
fn a_scheduled_item_is_given_back_or_removed() {
    explore("slot: given back or removed", Preemptions::Any, || {
        let world = World::new();
        world.schedule(2);
        let Next::Run(..) = world.slot.next(&world.host, world.slot.number()) else {
            unreachable!("two items are scheduled");
        };
        let remover = {
            let world = world.clone();
            thread::spawn(move || world.remove(&world.items[1]))
        };
        // The owner is about to wait in its first item.
        let given_back = drain(&mut world.slot.begin_block().0).len();
        assert_eq!(given_back + usize::from(remover.join().unwrap()), 1);
    });
}

#[test]
fn an_item_is_deferred_to_the_end_of_the_run() {
    explore("slot: deferred to the end of the run", Preemptions::Any, || {
        let world = World::new();
        world.schedule(1);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                let item = pointer(&world.items[1]);
                let mut lists = world.slot.lock_remote(&world.host);
                // SAFETY: live, in no list, ours.
                let deferred = unsafe { lists.defer(1, SLOT, item, || {}) };
                drop(lists);
                if !deferred && world.slot.number() >= 1 && !world.slot.is_running(1) {
                    // SAFETY: run 1 is over. The model checks exactly that.
                    assert!(unsafe { world.did[1].get() }, "it has done what it did");
                }
                deferred
            })
        };
        let (ran, deferred_items) = world.run_all();
        let deferred = other.join().unwrap();
        assert_eq!((ran.len(), deferred_items.len()), (1, usize::from(deferred)));
        assert!(!deferred || world.items[1].location() == Location::Detached);
    });
}

#[test]
fn a_waiter_is_woken_at_the_end_of_the_run() {
    explore("slot: woken at the end of the run", Preemptions::Any, || {
        let world = World::new();
        world.schedule(2);
        let Next::Run(_, run, _) = world.slot.next(&world.host, world.slot.number()) else {
            unreachable!("two items are scheduled");
        };
        // SAFETY: this thread is the owner, in its first run.
        unsafe { world.did[1].set(true) };
        let waiter = {
            let world = world.clone();
            thread::spawn(move || {
                let waiter = Waiter::new(0);
                let mut lists = world.slot.lock_remote(&world.host);
                // SAFETY: the waiter is in no chain, and this thread waits for it if it was added.
                let waits = unsafe { lists.wait_for(run, &raw const world.items[0], &waiter) };
                drop(lists);
                if waits {
                    waiter.wait(&world.host);
                }
                assert!(!world.slot.is_running(run), "the run that was waited for is over");
                // SAFETY: the run is over.
                assert!(unsafe { world.did[run as usize].get() }, "it has done what it did");
            })
        };
        let (ran, deferred_items) = world.run_all();
        assert_eq!((ran.len(), deferred_items.len()), (1, 0));
        waiter.join().unwrap();
    });
}
