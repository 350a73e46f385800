//! Pending, submit, start: the word of an item and an inbox.
//!
//! **Proves.** A `queue` that finds the item pending has told its stores to the coming run. An item
//! has one owner at a time, and each ownership ends in exactly one run, also when the item is
//! queued while it runs, by others and by itself.
//!
//! **Bounds.** Two submitters, one worker, up to three runs; any number of preemptions: 25,361
//! and 142 executions.
//!
//! **Seen to fail** when `start` only releases (the run misses the stores of a refused queue), when
//! `acquire` only acquires (the same) or only releases (two owners race), or is relaxed.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::{Preemptions, explore};
use crate::inbox::{Inbox, Node};
use crate::sync::{AtomicU32, Cell, Ordering};
use crate::word::{Acquire, RunId};
use crate::work::{Action, Work};

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

struct World {
    item: Work,
    inbox: Inbox<Work>,
    /// What each submitter wrote before it queued the item.
    stores: [AtomicU32; 2],
    /// Touched by owners only.
    owners: Cell<u32>,
    /// What each run saw of `stores`.
    runs: Mutex<Vec<[u32; 2]>>,
    /// Acquisitions that made an owner.
    owned: Mutex<u32>,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            item: Work::new(nothing),
            inbox: Inbox::new(),
            stores: [AtomicU32::new(0), AtomicU32::new(0)],
            owners: Cell::new(0),
            runs: Mutex::new(Vec::new()),
            owned: Mutex::new(0),
        })
    }

    fn queue(&self) {
        match self.item.word.acquire() {
            Acquire::Pending => {}
            Acquire::Owned(_) => {
                *self.owned.lock().unwrap() += 1;
                // SAFETY: owners alone touch the cell. That is what is being checked.
                unsafe { self.owners.set(self.owners.get() + 1) };
                // SAFETY: the item is live and ours.
                unsafe { self.inbox.push(std::ptr::from_ref(&self.item).cast_mut()) };
            }
        }
    }

    fn store_and_queue(&self, submitter: usize) {
        // Relaxed: the word is what must order this before the run.
        self.stores[submitter].store(1, Ordering::Relaxed);
        self.queue();
    }

    /// Runs the item if it is queued. True if it was.
    fn work(&self, body: impl FnOnce()) -> bool {
        let item = self.inbox.take_all();
        if item.is_null() {
            return false;
        }
        // SAFETY: what the inbox gave up is ours.
        assert!(unsafe { Work::next(item) }.is_null(), "one item has one place");
        // SAFETY: as in `queue`.
        unsafe { self.owners.set(self.owners.get() + 1) };
        let run = self.runs.lock().unwrap().len() as u64 + 1;
        self.item.word.start(RunId { slot: 0, run });
        let saw = [0, 1].map(|submitter: usize| self.stores[submitter].load(Ordering::Relaxed));
        self.runs.lock().unwrap().push(saw);
        body();
        true
    }
}

#[test]
fn a_refused_queue_is_seen_by_the_coming_run() {
    explore("pending: a refused queue is seen by the coming run", Preemptions::Any, || {
        let world = World::new();
        let submitters = [0, 1].map(|submitter| {
            let world = world.clone();
            thread::spawn(move || world.store_and_queue(submitter))
        });
        // The last one to be created: it starts where the others have stored, and loom finds what
        // comes before from there (see `models`).
        let worker = {
            let world = world.clone();
            thread::spawn(move || [world.work(|| {}), world.work(|| {})])
        };
        for submitter in submitters {
            submitter.join().unwrap();
        }
        worker.join().unwrap();
        // A run below this line would see everything by way of the joins: nothing proven, and
        // nothing to prove.
        world.work(|| {});
        let runs = world.runs.lock().unwrap();
        assert_eq!(runs.last(), Some(&[1, 1]), "each store is seen by the run after its queue");
        assert_eq!(runs.len() as u32, *world.owned.lock().unwrap(), "a run for each owner");
    });
}

#[test]
fn queued_while_running() {
    explore("pending: queued while running", Preemptions::Any, || {
        let world = World::new();
        world.queue();
        let submitter = {
            let world = world.clone();
            thread::spawn(move || world.store_and_queue(0))
        };
        // The function queues its own item.
        world.work(|| world.store_and_queue(1));
        world.work(|| {});
        submitter.join().unwrap();
        world.work(|| {});
        assert!(!world.work(|| {}), "nothing is left");
        let runs = world.runs.lock().unwrap();
        assert_eq!(runs.last(), Some(&[1, 1]));
        assert_eq!(runs.len() as u32, *world.owned.lock().unwrap(), "a run for each owner");
        assert!((2..=3).contains(&runs.len()));
        assert!(!world.item.word.is_pending());
    });
}
