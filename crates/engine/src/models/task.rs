//! Task work: adders, a target that waits, cancels, exit.
//!
//! **Proves.** No notification is lost: every item added with `Signal` runs, although the target
//! sleeps whenever it may. Between two detaches at most one notification is sent. Each item runs
//! once, is cancelled once, or is returned once. Items of one adder run in its order. A refused add
//! makes its earlier stores visible to the coming run. When `exit` or `settle` has returned, no
//! notification uses the target's resources any more. After a notification that failed the next
//! adder notifies. An outer wait can still be ended after a wait inside of it is over.
//!
//! **Bounds.** One target, up to two adders or an adder and a canceller, up to three items; any
//! number of preemptions, or, with cancels, exits and three items, up to three: 90, 356, 78, 5,429,
//! 43,137, 4,268, 176,810 and 83,784 executions.
//!
//! **Seen to fail** with each of these:
//!
//! - `declare` does not check SIGNAL; a cancel clears SIGNAL; an adder that finds SIGNAL set
//!   notifies again;
//! - `detach` takes the state before the lock or does not reverse it;
//! - `senders` is raised after the exchange; `close` or `touch` does not acquire; `settle` omits
//!   the exchange;
//! - `sent` is relaxed; `push` only acquires or only releases; an item's `acquire` only acquires;
//!   its `let_go` only releases;
//! - a target that returns to its outer wait does not set WAITS again, publishes what it waits in
//!   only after that, or does not end that wait itself where it was notified.

use std::any::TypeId;
use std::ptr::NonNull;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::Event;
use super::{Preemptions, explore};
use crate::words::sync::{AtomicU32, Cell, Ordering};
use crate::words::task::{Added, Notify, TaskCalls, TaskList, TaskWork};

/// An item that records its number when it runs.
#[repr(C)]
struct Item {
    work: TaskWork,
    number: u32,
    world: *const World,
}

// SAFETY: the world outlives its items, which run on one thread.
unsafe impl Send for Item {}
// SAFETY: as above.
unsafe impl Sync for Item {}

static CALLS: TaskCalls = TaskCalls { run, of: TypeId::of::<Item> };

unsafe fn run(work: NonNull<TaskWork>) {
    // SAFETY: the work is the first field of an item, which is live.
    let item = unsafe { work.cast::<Item>().as_ref() };
    // SAFETY: the world is live.
    let world = unsafe { &*item.world };
    world.ran.lock().unwrap().push(item.number);
    // SAFETY: only the target touches the cell.
    unsafe { world.runs.set(world.runs.get() + 1) };
    world.saw.lock().unwrap().push(world.stored.load(Ordering::Relaxed));
}

struct World {
    list: TaskList,
    /// The event that the target sleeps on. It stores a wake that comes early, as every real wait
    /// does.
    event: Event,
    /// Stands for a resource that a notification uses: a descriptor, a ring.
    used: Cell<u32>,
    /// Touched by runs only.
    runs: Cell<u32>,
    ran: Mutex<Vec<u32>>,
    came_back: Mutex<Vec<u32>>,
    notifications: Mutex<usize>,
    /// Detaches that found items.
    detaches: Mutex<usize>,
    stored: AtomicU32,
    saw: Mutex<Vec<u32>>,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            list: TaskList::new(),
            event: Event::default(),
            used: Cell::new(0),
            runs: Cell::new(0),
            ran: Mutex::default(),
            came_back: Mutex::default(),
            notifications: Mutex::default(),
            detaches: Mutex::default(),
            stored: AtomicU32::new(0),
            saw: Mutex::default(),
        })
    }

    fn item(&self, number: u32) -> Arc<Item> {
        Arc::new(Item { work: TaskWork::new(&CALLS), number, world: self })
    }

    /// Adds the item, and notifies if the list asks for it. False if the item was pending or was
    /// returned.
    fn add(&self, item: &Item, notify: Notify) -> bool {
        // SAFETY: the models keep their items to the end.
        match unsafe { self.list.add(NonNull::from(&item.work), notify) } {
            Added::Yes(None) => true,
            Added::Yes(Some(notification)) => {
                *self.notifications.lock().unwrap() += 1;
                // SAFETY: a thread that destroys it waits for this notification to end. The model
                // checks exactly that.
                unsafe { self.used.get() };
                // Otherwise the target is awake, and must not go to sleep.
                if notification.waits() {
                    self.event.wake();
                }
                notification.sent();
                true
            }
            Added::Pending => false,
            Added::Exited => {
                self.came_back.lock().unwrap().push(item.number);
                false
            }
        }
    }

    /// Adds the item; the notification fails.
    fn add_in_vain(&self, item: &Item) {
        // SAFETY: the models keep their items to the end.
        match unsafe { self.list.add(NonNull::from(&item.work), Notify::Signal) } {
            Added::Yes(Some(notification)) => notification.failed(),
            Added::Yes(None) => {}
            Added::Pending | Added::Exited => panic!("a new item, of a target that lives"),
        }
    }

    /// The target's part: it sleeps whenever it may, until `items` items have run.
    fn wait_for(&self, items: usize) {
        while self.ran.lock().unwrap().len() < items {
            // SAFETY: only one thread of a model is the target.
            unsafe {
                if self.list.declare() {
                    self.event.wait();
                }
                let _ = self.list.leave();
            }
            self.run_once();
        }
    }

    fn run_once(&self) {
        // SAFETY: as above.
        if unsafe { self.list.run_once() } > 0 {
            *self.detaches.lock().unwrap() += 1;
        }
    }

    fn ran(&self) -> Vec<u32> {
        self.ran.lock().unwrap().clone()
    }

    fn assert_one_notification_per_detach(&self) {
        let (notifications, detaches) =
            (*self.notifications.lock().unwrap(), *self.detaches.lock().unwrap());
        assert!(notifications <= detaches, "{notifications} notifications for {detaches} detaches");
    }
}

#[test]
fn a_target_that_sleeps_whenever_it_may() {
    explore("task: a target that sleeps whenever it may", Preemptions::Deep(3), || {
        let world = World::new();
        let items = [0, 1, 2].map(|number| world.item(number));
        let adders = [vec![items[0].clone(), items[1].clone()], vec![items[2].clone()]];
        let adders = adders.map(|items| {
            let world = world.clone();
            thread::spawn(move || {
                for item in items {
                    assert!(world.add(&item, Notify::Signal));
                }
            })
        });
        world.wait_for(3);
        for adder in adders {
            adder.join().unwrap();
        }
        let ran = world.ran();
        let at = |number| ran.iter().position(|&ran| ran == number).unwrap();
        assert!(at(0) < at(1), "items of one adder run in its order");
        world.assert_one_notification_per_detach();
    });
}

#[test]
fn a_failed_notification_is_replaced_by_the_next() {
    let name = "task: a failed notification is replaced by the next";
    explore(name, Preemptions::AtMost(3), || {
        let world = World::new();
        let items = [0, 1, 2].map(|number| world.item(number));
        let (other, item) = (world.clone(), items[2].clone());
        let adder = thread::spawn(move || assert!(other.add(&item, Notify::Signal)));
        let (other, first, second) = (world.clone(), items[0].clone(), items[1].clone());
        let unlucky = thread::spawn(move || {
            other.add_in_vain(&first);
            assert!(other.add(&second, Notify::Signal));
        });
        world.wait_for(3);
        adder.join().unwrap();
        unlucky.join().unwrap();
    });
}

#[test]
fn a_wait_inside_a_wait() {
    const OUTER: u32 = 0;
    const INNER: u32 = 1;
    explore("task: a wait inside a wait", Preemptions::Any, || {
        let world = World::new();
        // The wait that the target is in.
        let how = Arc::new(AtomicU32::new(OUTER));
        let events: Arc<[Event; 2]> = Arc::new(Default::default());
        let item = world.item(0);
        let (other, said, ends) = (world.clone(), how.clone(), events.clone());
        let adder = thread::spawn(move || {
            // SAFETY: the item is kept to the end.
            let added = unsafe { other.list.add(NonNull::from(&item.work), Notify::Signal) };
            let Added::Yes(Some(notification)) = added else {
                panic!("no other thread adds or exits")
            };
            if notification.waits() {
                // Relaxed: the list's word must order this load.
                ends[said.load(Ordering::Relaxed) as usize].wake();
            }
            notification.sent();
            item
        });
        // SAFETY: this thread is the target.
        unsafe {
            if world.list.declare() {
                // The inner wait does not sleep: its deadline has passed, so it is over at once.
                how.store(INNER, Ordering::Relaxed);
                let _ = world.list.declare();
                how.store(OUTER, Ordering::Relaxed);
                if !world.list.declare() {
                    events[OUTER as usize].wake();
                }
                events[OUTER as usize].wait();
            }
            let _ = world.list.leave();
        }
        world.run_once();
        adder.join().unwrap();
        assert_eq!(world.ran(), [0]);
    });
}

#[test]
fn an_item_without_a_notification_runs_with_the_next() {
    explore("task: an item without a notification runs with the next", Preemptions::Any, || {
        let world = World::new();
        let items = [0, 1].map(|number| world.item(number));
        let (other, added) = (world.clone(), items.clone());
        let adder = thread::spawn(move || {
            assert!(other.add(&added[0], Notify::None));
            assert!(other.add(&added[1], Notify::Signal));
        });
        world.wait_for(2);
        adder.join().unwrap();
        assert_eq!(world.ran(), [0, 1]);
        assert_eq!(*world.notifications.lock().unwrap(), 1);
    });
}

#[test]
fn a_refused_add_is_seen_by_the_coming_run() {
    explore("task: a refused add is seen by the coming run", Preemptions::Any, || {
        let world = World::new();
        let item = world.item(0);
        assert!(world.add(&item, Notify::Signal));
        let (other, again) = (world.clone(), item.clone());
        let adder = thread::spawn(move || {
            // Relaxed: the item's word must order this store before the run.
            other.stored.store(1, Ordering::Relaxed);
            other.add(&again, Notify::Signal)
        });
        // The target is created last: it starts where the adder has stored.
        let target = world.clone();
        let target = thread::spawn(move || target.run_once());
        let added = adder.join().unwrap();
        target.join().unwrap();
        if !added {
            assert_eq!(*world.saw.lock().unwrap(), [1], "refused, so the run was still to come");
        }
    });
}

#[test]
fn cancel_while_items_are_added_and_run() {
    explore("task: cancel while items are added and run", Preemptions::Deep(3), || {
        let world = World::new();
        let items = [0, 1, 2].map(|number| world.item(number));
        assert!(world.add(&items[0], Notify::None));
        let (other, item) = (world.clone(), items[0].clone());
        let canceller = thread::spawn(move || {
            // SAFETY: the item is live.
            unsafe { other.list.cancel(NonNull::from(&item.work)) }
        });
        let (other, added) = (world.clone(), [items[1].clone(), items[2].clone()]);
        let adder = thread::spawn(move || {
            assert!(other.add(&added[0], Notify::Signal));
            assert!(other.add(&added[1], Notify::Signal));
        });
        while !world.ran().contains(&2) {
            world.wait_for(world.ran().len() + 1);
        }
        adder.join().unwrap();
        let cancelled = canceller.join().unwrap();
        let expected: &[u32] = if cancelled { &[1, 2] } else { &[0, 1, 2] };
        assert_eq!(world.ran(), expected);
        assert!(items.iter().all(|item| !item.work.is_pending()));
    });
}

#[test]
fn exit_while_items_are_added() {
    explore("task: exit while items are added", Preemptions::AtMost(3), || {
        let world = World::new();
        let items = [0, 1].map(|number| world.item(number));
        let adders = items.clone().map(|item| {
            let world = world.clone();
            thread::spawn(move || world.add(&item, Notify::Signal))
        });
        // SAFETY: this thread is the target; no other thread reads the cell any more.
        unsafe {
            world.list.exit(|_| thread::yield_now());
            world.used.set(1);
        }
        let added = adders.map(|adder| u32::from(adder.join().unwrap())).into_iter().sum::<u32>();
        let (mut all, back) = (world.ran(), world.came_back.lock().unwrap().clone());
        assert_eq!(all.len() as u32, added, "what was accepted has run");
        all.extend(back);
        all.sort_unstable();
        assert_eq!(all, [0, 1], "each item ran or came back");
    });
}

#[test]
fn a_ring_is_destroyed_while_notifications_use_it() {
    explore("task: a ring is destroyed", Preemptions::Any, || {
        let world = World::new();
        // 1: the ring exists.
        world.stored.store(1, Ordering::Relaxed);
        let item = world.item(0);
        let other = world.clone();
        let adder = thread::spawn(move || {
            // SAFETY: the item is kept to the end.
            let added = unsafe { other.list.add(NonNull::from(&item.work), Notify::Signal) };
            let Added::Yes(Some(notification)) = added else {
                panic!("no other thread adds or exits")
            };
            if other.stored.load(Ordering::Relaxed) == 1 {
                // SAFETY: the thread that destroys the ring waits for this notification to end.
                unsafe { other.used.get() };
            }
            notification.sent();
            item
        });
        world.stored.store(0, Ordering::Relaxed);
        world.list.settle(|_| thread::yield_now());
        // SAFETY: no thread uses the ring any more.
        unsafe { world.used.set(1) };
        let item = adder.join().unwrap();
        world.run_once();
        assert_eq!(world.ran(), [item.number]);
    });
}
