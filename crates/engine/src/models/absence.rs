//! Workers that do not count as running while they are at an item: declared waits against marks that
//! the watch makes.
//!
//! **Proves.** A worker is counted out once at most, by itself or by the watch, and counted in as
//! often, by itself, at the end of the run, or by the watch that finds it back; a mark ends with the run
//! that it was made for; what was lined up behind a marked run is
//! taken or run, not both and not neither. The run of a helper in the slot of a worker that has left is never marked.
//!
//! **Bounds.** One worker with two items, the first of which declares a wait in one model; the watch
//! marks the first run. Any number of preemptions.
//!
//! **Seen to fail** without the look at `absence` in `mark_absent`, without the look at the run there,
//! with an `end_absence` that does nothing, and where the owner forgets that the run was a hog.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::{LoomHost, NOW};
use super::{Preemptions, explore};
use crate::host::Cure;
use crate::pool::state::PoolState;
use crate::slot::{Absence, Counted, Next, Slot};
use crate::work::{Action, Place, Work};

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

const SLOT: u32 = 0;
/// The second run in the slot.
const HELPERS_RUN: u64 = 2;

struct World {
    host: LoomHost,
    slot: Slot<LoomHost>,
    state: PoolState,
    items: [Work; 2],
}

/// The slot of a worker.
fn worker_slot() -> Slot<LoomHost> {
    let slot = Slot::new();
    slot.set_worker(true);
    slot
}

impl World {
    /// A worker that counts as running.
    fn new() -> Arc<World> {
        let world = Arc::new(World {
            host: LoomHost::new(0),
            slot: worker_slot(),
            state: PoolState::new(),
            items: [Work::new(nothing), Work::new(nothing)],
        });
        world.state.unblock();
        world
    }

    /// The owner lines this item up.
    fn schedule(&self, item: &Work) {
        item.set_place(Place::Scheduled(SLOT));
        self.slot.with_scheduled(&self.host, |scheduled| {
            // SAFETY: live, in no list, ours.
            unsafe { scheduled.push_back(std::ptr::from_ref(item).cast_mut()) };
        });
    }

    fn schedule_both(&self) {
        self.items.iter().for_each(|item| self.schedule(item));
    }

    /// What the worker does; `waits`: in its first item. How many items it ran.
    fn work(&self, waits: bool) -> usize {
        let (mut ran, mut number) = (0, self.slot.number());
        loop {
            match self.slot.next(&self.host, number) {
                Next::Run(_, run, _) => {
                    number = run;
                    ran += 1;
                    if waits && ran == 1 {
                        ran += self.wait();
                    }
                }
                Next::SetAside(aside) => {
                    if aside.was != Absence::No {
                        self.state.unblock();
                    }
                }
                Next::WaitedFor(_) => unreachable!("no ticket says so"),
                Next::Empty => return ran,
            }
        }
    }

    /// What a helper does, which does not count. How many items it ran.
    fn work_as_helper(&self) -> usize {
        let (mut ran, mut number) = (0, self.slot.number());
        loop {
            match self.slot.next(&self.host, number) {
                Next::Run(_, run, _) => (ran, number) = (ran + 1, run),
                Next::SetAside(_) => {}
                Next::WaitedFor(_) => unreachable!("no ticket says so"),
                Next::Empty => return ran,
            }
        }
    }

    /// A declared wait. How many items it gave back: as good as run.
    fn wait(&self) -> usize {
        let (mut behind, counted) = self.slot.begin_absence();
        if counted == Counted::Yes {
            self.state.block();
        }
        if counted != Counted::No {
            self.state.unblock();
            self.slot.end_absence();
        }
        std::iter::from_fn(|| Some(behind.pop_front()).filter(|item| !item.is_null())).count()
    }

    /// What the worker does when there is nothing left. It counts until then: a count that were put back later would
    /// be missed by whoever looks now.
    fn lie_down(&self) {
        let counts = self.state.running_to_idle();
        assert!(counts.running < u32::from(u16::MAX), "it did not count");
    }

    /// One worker, which is idle.
    fn check_counts(&self) {
        let counts = self.state.counts();
        assert_eq!((counts.running, counts.idle), (0, 1));
    }

    /// What the watch does. How many items were behind the run that it marked.
    fn mark(&self, why: Absence) -> usize {
        let Some(run) = self.slot.present_run() else { return 0 };
        let mut remote = self.slot.lock_remote(&self.host);
        if !remote.mark_absent(&self.host, run, why) {
            return 0;
        }
        let mut behind = remote.take_scheduled();
        drop(remote);
        self.state.block();
        std::iter::from_fn(|| Some(behind.pop_front()).filter(|item| !item.is_null())).count()
    }

    /// The watch finds a worker back that it had marked as asleep.
    fn mark_back(&self) {
        let Some(run) = self.slot.present_run() else { return };
        let mut remote = self.slot.lock_remote(&self.host);
        if remote.mark_back(run).is_some() {
            // With the mark: see `look_after_sleeper`.
            self.state.unblock();
        }
        drop(remote);
    }
}

/// A worker whose first item is presumed to sleep, does or does not declare a wait, and may be found
/// running.
fn presumed(waits: bool) {
    let world = World::new();
    world.schedule_both();
    world.slot.presume_absence();
    let _ = world.state.block();
    let watch = {
        let world = world.clone();
        thread::spawn(move || world.mark_back())
    };
    assert_eq!(world.work(waits), 2);
    if world.slot.end_presumed() {
        world.state.unblock();
    }
    world.lie_down();
    watch.join().unwrap();
    world.check_counts();
    let (_, counted) = world.slot.begin_absence();
    assert_eq!(counted, Counted::Yes, "nothing is left of an absence");
}

fn marked(waits: bool, why: Absence) {
    let world = World::new();
    world.schedule_both();
    let watch = {
        let world = world.clone();
        thread::spawn(move || {
            let behind = world.mark(why);
            if why != Absence::Hog {
                world.mark_back();
            }
            behind
        })
    };
    let ran = world.work(waits);
    world.lie_down();
    let behind = watch.join().unwrap();
    assert_eq!(ran + behind, 2);
    world.check_counts();
    let (_, counted) = world.slot.begin_absence();
    assert_eq!(counted, Counted::Yes, "nothing is left of an absence");
}

/// A worker runs an item and leaves its slot. A helper runs another item in the same slot. The watcher marks the run
/// that it finds there. In how many executions that run belonged to the helper, which does not count.
fn leaves(reverted: Option<Cure>) -> usize {
    let wrong = std::sync::Arc::new(Mutex::new(0));
    let seen = wrong.clone();
    explore("absence: the worker leaves its slot", Preemptions::Any, move || {
        let world = World::new();
        world.host.revert(reverted);
        world.schedule(&world.items[0]);
        let watcher = {
            let (world, seen) = (world.clone(), seen.clone());
            thread::spawn(move || {
                let Some(run) = world.slot.present_run() else { return };
                let marked =
                    world.slot.lock_remote(&world.host).mark_absent(&world.host, run, Absence::Hog);
                *seen.lock().unwrap() += usize::from(marked && run == HELPERS_RUN);
            })
        };
        assert_eq!(world.work(false), 1);
        world.lie_down();
        world.slot.set_worker(false);
        world.schedule(&world.items[1]);
        assert_eq!(world.work_as_helper(), 1);
        watcher.join().unwrap();
    });
    *wrong.lock().unwrap()
}

#[test]
fn the_run_of_a_helper_in_the_slot_of_a_worker_is_not_counted_out() {
    assert_eq!(leaves(None), 0);
    assert_ne!(leaves(Some(Cure::MarkedRun)), 0, "the cure is not needed");
}

#[test]
fn a_mark_ends_with_its_run() {
    explore("absence: a mark ends with its run", Preemptions::Any, || marked(false, Absence::Hog));
}

#[test]
fn a_worker_that_waits_is_counted_out_once() {
    explore("absence: counted out once", Preemptions::Any, || marked(true, Absence::Hog));
}

#[test]
fn a_sleeper_is_counted_in_once() {
    explore("absence: counted in once", Preemptions::AtMost(3), || {
        marked(false, Absence::Asleep(NOW))
    });
}

#[test]
fn a_sleeper_that_declares_a_wait_is_counted_in_once() {
    let sleeper = || marked(true, Absence::Asleep(NOW));
    explore("absence: declared while marked", Preemptions::AtMost(3), sleeper);
}

#[test]
fn a_presumed_sleeper_is_counted_in_once() {
    explore("absence: presumed, counted in once", Preemptions::Any, || presumed(false));
}

#[test]
fn a_presumed_sleeper_that_declares_a_wait_is_counted_in_once() {
    explore("absence: presumed and declared", Preemptions::AtMost(3), || presumed(true));
}
