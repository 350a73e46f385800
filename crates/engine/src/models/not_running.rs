//! Workers that do not count as running although they are inside an item: declared waits against
//! marks by the watcher.
//!
//! **Proves.** A worker leaves the running count at most once, by itself or by the watcher.
//! It is put back as often: by itself, at the end of the run, or by the watcher that finds it
//! running again. A mark ends with the run that it was made for. The items scheduled behind a
//! marked run are taken or run, exactly one of the two. The run of a helper in the slot of a worker
//! that has left is never marked.
//!
//! **Bounds.** One worker with two items, the first of which declares a wait in some models; the
//! watcher marks the first run. Any number of preemptions, or up to three where the test says so.
//!
//! **Seen to fail** without the check of `not_running` in `mark_not_running`, without the check of the run
//! there, with an `end_block` that does nothing, where the owner forgets that the run was a hog,
//! and where it counts itself only after the end of a presumption.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::{LoomHost, NOW};
use super::{Preemptions, explore};
use crate::pool::state::PoolState;
use crate::slot::{Next, NotRunning, Slot, WasRunning};
use crate::words::item::{Action, Location, Work, WorkList};

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

const SLOT: u32 = 0;
/// The second run in the slot.
const HELPERS_RUN: u64 = 2;

/// Takes all items. Returns how many.
fn drain(items: &mut WorkList) -> usize {
    std::iter::from_fn(|| Some(items.pop_front()).filter(|item| !item.is_null())).count()
}

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

    /// The owner schedules this item.
    fn schedule(&self, item: &Work) {
        item.set_location(Location::Scheduled(SLOT));
        self.slot.with_scheduled(&self.host, |scheduled| {
            // SAFETY: live, in no list, ours.
            unsafe { scheduled.push_back(std::ptr::from_ref(item).cast_mut()) };
        });
    }

    fn schedule_both(&self) {
        self.items.iter().for_each(|item| self.schedule(item));
    }

    /// The worker's part; if `waits`, its first item declares a wait. Returns how many items it
    /// ran.
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
                Next::AtRunEnd(aside) => {
                    if aside.was != NotRunning::No {
                        self.state.unblock();
                    }
                }
                Next::WaitedFor(_) => unreachable!("no ticket says so"),
                Next::Empty => return ran,
            }
        }
    }

    /// The helper's part, which does not count as running. Returns how many items it ran.
    fn work_as_helper(&self) -> usize {
        let (mut ran, mut number) = (0, self.slot.number());
        loop {
            match self.slot.next(&self.host, number) {
                Next::Run(_, run, _) => (ran, number) = (ran + 1, run),
                Next::AtRunEnd(_) => {}
                Next::WaitedFor(_) => unreachable!("no ticket says so"),
                Next::Empty => return ran,
            }
        }
    }

    /// A declared wait. Returns how many items the worker gave back; the test counts them as run.
    fn wait(&self) -> usize {
        let (mut behind, counted) = self.slot.begin_block();
        if counted == WasRunning::Yes {
            self.state.block();
        }
        if counted != WasRunning::No {
            self.state.unblock();
            self.slot.end_block();
        }
        drain(&mut behind)
    }

    /// The worker's part in a run that is presumed to block. Returns how many items it gave back.
    fn presumed_run(&self, waits: bool) -> usize {
        let mut given_back = 0;
        if let Some(mut behind) = self.slot.presume_block() {
            self.state.block();
            given_back += drain(&mut behind);
        }
        if waits {
            given_back += self.wait();
        }
        self.slot.end_presumed_block(|| self.state.unblock());
        given_back
    }

    /// The worker's part when no item is left: it parks. It counts as running until then. If it
    /// restored its count only later, a thread that reads the count now would miss it.
    fn park(&self) {
        let counts = self.state.running_to_idle();
        assert!(counts.running < u32::from(u16::MAX), "it did not count");
    }

    /// Checks that the pool has one worker, and that it is idle.
    fn check_counts(&self) {
        let counts = self.state.counts();
        assert_eq!((counts.running, counts.idle), (0, 1));
    }

    /// The watcher's part: it marks the run. Returns how many items were scheduled behind that run.
    fn mark(&self, why: NotRunning) -> usize {
        let Some(run) = self.slot.present_run() else { return 0 };
        let mut remote = self.slot.lock_remote(&self.host);
        if !remote.mark_not_running(run, why) {
            return 0;
        }
        let mut behind = remote.take_scheduled();
        drop(remote);
        self.state.block();
        drain(&mut behind)
    }

    /// The watcher finds a worker running again that it had marked as blocked.
    fn mark_running_again(&self) {
        let Some(run) = self.slot.present_run() else { return };
        let mut remote = self.slot.lock_remote(&self.host);
        if remote.mark_running_again(run).is_some() {
            // Under the lock, together with the mark: see `count_in_if_running`.
            self.state.unblock();
        }
        drop(remote);
    }
}

/// A worker whose first item is presumed to block. The item declares a wait or not. The watcher may
/// mark its run, and may find it running.
fn presumed(waits: bool) {
    let world = World::new();
    world.schedule_both();
    let watch = {
        let world = world.clone();
        thread::spawn(move || {
            let behind = world.mark(NotRunning::Hog);
            world.mark_running_again();
            behind
        })
    };
    let Next::Run(..) = world.slot.next(&world.host, world.slot.number()) else {
        unreachable!("two items are scheduled")
    };
    let given_back = world.presumed_run(waits);
    let ran = 1 + given_back + world.work(false);
    world.park();
    assert_eq!(ran + watch.join().unwrap(), 2, "an item is lost, or found twice");
    world.check_counts();
    let (_, counted) = world.slot.begin_block();
    assert_eq!(counted, WasRunning::Yes, "nothing is left of the wait");
}

fn marked(waits: bool, why: NotRunning) {
    let world = World::new();
    world.schedule_both();
    let watch = {
        let world = world.clone();
        thread::spawn(move || {
            let behind = world.mark(why);
            if why != NotRunning::Hog {
                world.mark_running_again();
            }
            behind
        })
    };
    let ran = world.work(waits);
    world.park();
    let behind = watch.join().unwrap();
    assert_eq!(ran + behind, 2);
    world.check_counts();
    let (_, counted) = world.slot.begin_block();
    assert_eq!(counted, WasRunning::Yes, "nothing is left of the wait");
}

/// A worker runs an item and leaves its slot. A helper runs another item in the same slot. The
/// watcher marks the run that it finds there. Returns in how many executions that was the helper's
/// run, which does not count as running.
fn leaves() -> usize {
    let wrong = std::sync::Arc::new(Mutex::new(0));
    let seen = wrong.clone();
    explore("not_running: the worker leaves its slot", Preemptions::Deep(5), move || {
        let world = World::new();
        world.schedule(&world.items[0]);
        let watcher = {
            let (world, seen) = (world.clone(), seen.clone());
            thread::spawn(move || {
                let Some(run) = world.slot.present_run() else { return };
                let marked =
                    world.slot.lock_remote(&world.host).mark_not_running(run, NotRunning::Hog);
                *seen.lock().unwrap() += usize::from(marked && run == HELPERS_RUN);
            })
        };
        assert_eq!(world.work(false), 1);
        world.park();
        world.slot.set_worker(false);
        world.schedule(&world.items[1]);
        assert_eq!(world.work_as_helper(), 1);
        watcher.join().unwrap();
    });
    *wrong.lock().unwrap()
}

#[test]
fn the_run_of_a_helper_in_the_slot_of_a_worker_is_not_counted_out() {
    assert_eq!(leaves(), 0);
}

#[test]
fn a_hog_mark_ends_with_its_run() {
    explore("not_running: a mark ends with its run", Preemptions::Any, || {
        marked(false, NotRunning::Hog)
    });
}

#[test]
fn a_worker_that_waits_leaves_the_running_count_once() {
    explore("not_running: counted out once", Preemptions::Any, || marked(true, NotRunning::Hog));
}

#[test]
fn a_blocked_worker_rejoins_the_running_count_once() {
    explore("not_running: counted in once", Preemptions::AtMost(3), || {
        marked(false, NotRunning::FoundBlocked(NOW))
    });
}

#[test]
fn a_blocked_worker_that_declares_a_wait_rejoins_once() {
    let sleeper = || marked(true, NotRunning::FoundBlocked(NOW));
    explore("not_running: declared while marked", Preemptions::AtMost(3), sleeper);
}

#[test]
fn a_worker_presumed_blocked_rejoins_once() {
    explore("not_running: presumed, counted in once", Preemptions::AtMost(3), || presumed(false));
}

#[test]
fn a_worker_presumed_blocked_that_declares_a_wait_rejoins_once() {
    explore("not_running: presumed and declared", Preemptions::AtMost(3), || presumed(true));
}
