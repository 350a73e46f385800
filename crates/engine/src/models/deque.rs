//! The deque of a thread that forks: its owner against a thief.
//!
//! **Proves.** Every entry is taken once, by the owner or by the thief, and its taker sees what the
//! owner stored before the push. An entry whose push was told that a visit is on its way is seen by
//! that visit.
//!
//! **Bounds.** One owner with up to two entries, one thief with up to two thefts; any number of
//! preemptions for one entry, up to three for two. The light fence is modelled as a full one.
//!
//! **Seen to fail** with each of these:
//!
//! - any of the four fences does nothing;
//! - a thief keeps an entry although it sees the owner;
//! - an owner that finds the head past its entry decides without the lock.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::deque::{Deque, Popped, Pushed};
use crate::sync::Cell;

struct World {
    host: LoomHost,
    deque: Deque<Cell<u32>>,
    /// Each counts how often it was taken. Touched by its taker only: the model checks that.
    entries: [Cell<u32>; 2],
}

impl World {
    fn new() -> Arc<World> {
        let entries = [Cell::new(0), Cell::new(0)];
        Arc::new(World { host: LoomHost::new(0), deque: Deque::new(), entries })
    }

    fn push(&self, index: usize) -> Pushed {
        let entry = &self.entries[index];
        // The taker must see this.
        // SAFETY: the entry is not pushed yet.
        unsafe { entry.set(10) };
        // SAFETY: called by the owner; the model keeps the entry.
        unsafe { self.deque.push(&self.host, NonNull::from(entry)) }
    }

    fn pop(&self, index: usize) -> u32 {
        // SAFETY: called by the owner, once for each push.
        match unsafe { self.deque.pop(&self.host) } {
            Popped::Own => {
                take(&self.entries[index]);
                1
            }
            Popped::Stolen => 0,
        }
    }

    fn steal(&self) -> u32 {
        let Some(entry) = self.deque.steal(&self.host, |_| {}) else { return 0 };
        // SAFETY: the model keeps the entries.
        take(unsafe { entry.as_ref() });
        1
    }

    fn counts(&self) -> [u32; 2] {
        // SAFETY: all other threads have ended.
        [0, 1].map(|index| unsafe { self.entries[index].get() })
    }
}

fn take(entry: &Cell<u32>) {
    // SAFETY: only the taker touches a pushed entry. The model checks exactly that.
    unsafe { entry.set(entry.get() + 1) };
}

#[test]
fn an_entry_is_taken_once() {
    explore("deque: one entry", Preemptions::Any, || {
        let world = World::new();
        let theirs = world.clone();
        let thief = thread::spawn(move || theirs.steal());
        assert_ne!(world.push(0), Pushed::Full);
        let own = world.pop(0);
        let stolen = thief.join().unwrap();
        assert_eq!((own + stolen, world.counts()), (1, [11, 0]));
    });
}

#[test]
fn entries_are_taken_once_while_the_owner_pushes_again() {
    explore("deque: two entries, two thefts", Preemptions::AtMost(3), || {
        let world = World::new();
        let theirs = world.clone();
        let thief = thread::spawn(move || theirs.steal() + theirs.steal());
        assert_ne!(world.push(0), Pushed::Full);
        assert_ne!(world.push(1), Pushed::Full);
        let own = world.pop(1) + world.pop(0);
        let stolen = thief.join().unwrap();
        assert_eq!((own + stolen, world.counts()), (2, [11, 11]));
    });
}

#[test]
fn a_visit_sees_each_push_that_counts_on_it() {
    explore("deque: a visit", Preemptions::Any, || {
        let world = World::new();
        // A visit is on its way.
        world.deque.ask();
        let theirs = world.clone();
        let thief = thread::spawn(move || {
            theirs.deque.begin_visit(&theirs.host);
            theirs.steal()
        });
        let pushed = world.push(0);
        let stolen = thief.join().unwrap();
        assert!(stolen == 1 || pushed == Pushed::Uncovered, "no thief will come");
        assert_eq!(world.pop(0) + stolen, 1);
    });
}
