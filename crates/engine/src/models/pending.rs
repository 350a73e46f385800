//! Pending, submit, start: the word of an item and an inbox.
//!
//! **Proves.** A `queue` call that finds the item pending makes its earlier stores visible to the
//! coming run. An item has one owner at a time, and each ownership ends in exactly one run, also
//! when the item is queued while it runs, by others and by itself.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::{Preemptions, explore};
use crate::words::inbox::{Inbox, Node};
use crate::words::item::word::{Acquire, RunId};
use crate::words::item::{Action, Work};
use crate::words::sync::{AtomicU32, Cell, Ordering};

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

struct World {
    item: Work,
    inbox: Inbox<Work>,
    /// Each submitter's store before it queued the item.
    stores: [AtomicU32; 2],
    /// Touched by owners only.
    owners: Cell<u32>,
    /// The values of `stores` that each run read.
    runs: Mutex<Vec<[u32; 2]>>,
    /// Acquisitions that gained the ownership.
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
                // SAFETY: only owners touch the cell. The model checks exactly that.
                unsafe { self.owners.set(self.owners.get() + 1) };
                // SAFETY: the item is live and ours.
                unsafe { self.inbox.push(std::ptr::from_ref(&self.item).cast_mut()) };
            }
        }
    }

    fn store_and_queue(&self, submitter: usize) {
        // Relaxed: the item's word must order this store before the run.
        self.stores[submitter].store(1, Ordering::Relaxed);
        self.queue();
    }

    /// Runs the item if it is queued. True if it was.
    fn work(&self, body: impl FnOnce()) -> bool {
        let item = self.inbox.take_all();
        if item.is_null() {
            return false;
        }
        // SAFETY: an item taken from the inbox is ours.
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
        // The worker is created last: it starts where the submitters have stored, and loom then
        // finds the interleavings with earlier steps (see `models`).
        let worker = {
            let world = world.clone();
            thread::spawn(move || [world.work(|| {}), world.work(|| {})])
        };
        for submitter in submitters {
            submitter.join().unwrap();
        }
        worker.join().unwrap();
        // A run after the joins would see every store because of the joins, and would prove
        // nothing.
        world.work(|| {});
        let runs = world.runs.lock().unwrap();
        assert_eq!(runs.last(), Some(&[1, 1]), "each store is seen by the run after its queue");
        assert_eq!(runs.len() as u32, *world.owned.lock().unwrap(), "a run for each owner");
    });
}

#[test]
fn an_item_queued_while_it_runs_runs_again() {
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
