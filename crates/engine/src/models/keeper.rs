//! Timers and ready items that no worker is coming for: the keeper, and the watcher before it
//! sleeps.
//!
//! **Proves.** When every thread sleeps, each armed timer is covered by the timed sleep of a thread
//! that will see it, and for each item that waits behind a running worker the watcher is awake.
//! This holds while a worker parks as the keeper, is picked, or arms a timer itself, while another
//! thread fires due timers, and while the watcher goes to sleep. A worker that begins a wait while
//! another thread moves the ready list wakes a replacement.
//!
//! **Bounds.** The production worker, queue and timers; the steps of the watcher before it sleeps,
//! on a thread of the model; one or two workers, one timer, one or two items; up to three
//! preemptions (two where lists move or a thread fires): 16,703, 44,656, 40, 8,496, 25 and 1,162
//! executions.
//!
//! **Seen to fail**, in two of the tests, when the watcher is not called for a timer that no keeper
//! covers, and when the list's mark is set after the inbox was emptied; beside a thread that fires, when
//! that thread does not settle; and when the firing of one wheel lets the keeper sleep past another's
//! timer.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use loom::thread;

use super::host::{Event, FAR, LoomHost};
use super::world::{Item, Timed, World};
use super::{Preemptions, explore};
use crate::pool::NEVER;
use crate::pool::progress::TIMER_SLACK_NS;
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::timer::delayed::Delayed;
use crate::words::item::{Action, Work};

/// Later than the timers of a [`Timed`], and earlier than [`FAR`].
const DUE: u64 = 10_000;

/// An item with a timer that never expires in a model.
#[repr(C)]
struct Timer(Delayed<LoomHost>);

// SAFETY: a model accesses the timer through the engine only.
unsafe impl Sync for Timer {}
// SAFETY: as above.
unsafe impl Send for Timer {}

unsafe fn never(_: NonNull<Work>, action: Action) {
    assert_ne!(action, Action::Run, "time stands still");
}

impl Timer {
    fn new() -> Arc<Timer> {
        Arc::new(Timer(Delayed::new(never)))
    }

    fn arm(&self, queue: &Queue<LoomHost>) {
        self.arm_for(queue, FAR);
    }

    fn arm_for(&self, queue: &Queue<LoomHost>, delay_ns: u64) {
        // SAFETY: every model keeps its timer until it has cancelled it.
        let armed = unsafe { queue.queue_delayed(None, NonNull::from(&self.0), delay_ns) };
        assert_eq!(armed.unwrap(), Queued::Yes);
    }

    fn cancel(&self, world: &World) {
        // SAFETY: as in `arm`.
        assert!(unsafe { world.engine.cancel(NonNull::from(&self.0).cast()) });
    }
}

/// A worker parks, or is woken, while a timer is armed.
#[test]
fn a_timer_is_armed_while_a_worker_parks() {
    explore("keeper: a timer is armed while a worker parks", Preemptions::Deep(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let (item, timer) = (Item::new(), Timer::new());
        world.explored(|| {
            let (handle, theirs) = (queue.clone(), timer.clone());
            let other = thread::spawn(move || theirs.arm(&handle));
            assert_eq!(item.queue(&queue), Queued::Yes);
            item.done.wait();
            other.join().unwrap();
        });
        world.settle();
        world.engine.check_timers(0, NEVER).unwrap();
        timer.cancel(&world);
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// A worker parks as the keeper while another thread fires two due timers and leaves a third one.
#[test]
fn a_worker_parks_while_another_thread_fires_timers() {
    explore("keeper: parks beside a thread that fires", Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let (due, later) = ([Timed::new(), Timed::new()], Timer::new());
        for item in &due {
            assert_eq!(item.arm(&queue), Queued::Yes);
        }
        // The keeper of a wheel that is fired sleeps for longer.
        later.arm_for(&queue, TIMER_SLACK_NS / 2);
        // The worker has an item when the exploration begins, and parks.
        let (held, gate) = world.hold_a_worker(&queue);
        world.explored(|| {
            let (engine, pool) = (world.engine.clone(), queue.pool_of(0).id);
            let fires = thread::spawn(move || {
                let pool = engine.pool(pool);
                while pool.fire_timers(&engine, DUE) {}
                pool.settle(&engine);
            });
            gate.wake();
            held.done.wait();
            fires.join().unwrap();
        });
        world.settle();
        // Not the watcher: it was called for the timers of a pool without a keeper.
        let pool = queue.pool_of(0);
        let keeper = pool.lock().keeper.expect("a worker is parked");
        let is_woken = world.engine.slot(keeper).event.is_woken();
        let (until, next) = (pool.keeper_until(), pool.next_wake());
        assert!(until <= next || is_woken, "the keeper sleeps until {until}, past {next}");
        later.cancel(&world);
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!(due.map(|item| item.ends()), [(1, 0); 2]);
    });
}

/// The right to fire the deferrable timers is no reason to be late for the others.
#[test]
fn the_keeper_covers_a_wheel_beside_one_that_is_fired() {
    explore("keeper: another wheel is fired", Preemptions::AtMost(1), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let (item, timer) = (Item::new(), Timed::new());
        let firing = queue.pool_of(0).deferrable.begin_firing();
        assert!(firing.is_some());
        world.explored(|| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            assert_eq!(timer.arm(&queue), Queued::Yes);
            item.done.wait();
        });
        world.settle();
        world.engine.check_timers(0, NEVER).unwrap();
        assert!(timer.cancel(&world.engine));
        drop(firing);
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// The keeper is picked for an item that does not end, while the watcher goes to sleep. Returns the
/// executions after which no thread covers the timer. They are reported outside of the model
/// because a panic inside it would run the model's destructors, which would panic as well.
fn the_keeper_is_picked() -> Vec<String> {
    let left = Arc::new(Mutex::new(Vec::new()));
    let seen = left.clone();
    explore("keeper: picked while the watcher goes to sleep", Preemptions::AtMost(3), move || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        let (gate, timer) = (Arc::new(Event::default()), Timer::new());
        let closed = gate.clone();
        let held = Item::with(move |_| closed.wait());
        world.settle();
        timer.arm(&queue);
        world.settle();
        let sleeps_until = world.explored(|| {
            let engine = world.engine.clone();
            let watch = thread::spawn(move || engine.watch_sleeps());
            assert_eq!(held.queue(&queue), Queued::Yes);
            watch.join().unwrap()
        });
        world.settle();
        if let Err(timer) = world.engine.check_timers(0, sleeps_until) {
            seen.lock().unwrap().push(timer);
        }
        timer.cancel(&world);
        gate.wake();
        held.done.wait();
        drop(queue);
        assert!(world.end().is_empty());
    });
    std::mem::take(&mut left.lock().unwrap())
}

#[test]
fn the_keeper_is_picked_while_the_watcher_goes_to_sleep() {
    assert_eq!(the_keeper_is_picked(), [""; 0]);
}

/// An item is queued behind one that does not end, while the watcher goes to sleep.
#[test]
fn an_item_is_queued_while_the_watcher_goes_to_sleep() {
    explore("keeper: queued while the watcher goes to sleep", Preemptions::AtMost(3), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        world.settle();
        let (held, gate) = world.hold_a_worker(&queue);
        let item = Item::new();
        world.engine.watch.wake(&world.engine);
        world.explored(|| {
            let engine = world.engine.clone();
            let watch = thread::spawn(move || _ = engine.watch_sleeps());
            assert_eq!(item.queue(&queue), Queued::Yes);
            watch.join().unwrap();
        });
        world.settle();
        assert!(world.engine.watch_is_called(), "the watcher is called for the waiting item");
        gate.wake();
        held.done.wait();
        item.done.wait();
        drop(queue);
        assert!(world.end().is_empty());
    });
}

/// A worker begins a wait while another thread moves ready pwqs from the inbox to the list.
#[test]
fn a_replacement_comes_while_the_ready_list_moves() {
    let name = "keeper: a wait begins while the ready list moves";
    explore(name, Preemptions::AtMost(2), || {
        let world = World::new(1, 2);
        let queue = world.per_cpu(2);
        // The first item declares a wait for the second, which is ready when the wait begins.
        let (gate, second) = (Arc::new(Event::default()), Item::new());
        let (engine, awaited, closed) = (world.engine.clone(), second.clone(), gate.clone());
        let first = Item::with(move |_| {
            closed.wait();
            engine.blocking(|| awaited.done.wait());
        });
        assert_eq!(first.queue(&queue), Queued::Yes);
        world.settle();
        assert_eq!(second.queue(&queue), Queued::Yes);
        world.explored(|| {
            let engine = world.engine.clone();
            let mover = thread::spawn(move || engine.move_ready_lists());
            gate.wake();
            first.done.wait();
            mover.join().unwrap();
        });
        drop(queue);
        assert!(world.end().is_empty());
        assert_eq!((first.runs(), second.runs()), (1, 1));
    });
}
