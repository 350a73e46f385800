//! The deque of a thread that forks: its owner against a thief.
//!
//! **Proves.** Every entry is taken once, by the owner or by the thief, and its taker sees what the
//! owner stored before the push. An entry whose push was told that a visit is on its way is seen by
//! that visit. A thread that waits for a half takes only entries that the half has pushed: none of
//! what its thread pushes after the end of the half.
//!
//! **Bounds.** One owner with up to two entries, one thief with up to two thefts; any number of
//! preemptions for one entry, up to three for two, up to four for a waiter. The light fence is
//! modelled as a full one.
//!
//! **Seen to fail** with each of these:
//!
//! - any of the four fences does nothing;
//! - a thief keeps an entry although it sees the owner;
//! - a waiter asks before the theft, and not inside, whether its half has ended;
//! - a thief that is told not to take an entry does not restore the head;
//! - an owner that finds the head past its entry decides without the lock.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::host::{LoomHost, WordSleep};
use super::{Preemptions, explore};
use crate::handle::Outcome;
use crate::words::deque::{Deque, Popped, Pushed};
use crate::words::sync::Cell;

struct World {
    host: LoomHost,
    deque: Deque<Cell<u32>>,
    /// Each counts how often it was taken. Touched by its taker only: the model checks that.
    entries: [Cell<u32>; 2],
    /// Of a half that the deque's owner has taken from a waiter.
    half: Outcome,
}

impl World {
    fn new() -> Arc<World> {
        let entries = [Cell::new(0), Cell::new(0)];
        let (deque, half) = (Deque::new(), Outcome::new());
        Arc::new(World { host: LoomHost::new(0), deque, entries, half })
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
        self.steal_if(|| true).map_or(0, |_| 1)
    }

    /// The index of the entry that was taken.
    fn steal_if(&self, wanted: impl FnOnce() -> bool) -> Option<usize> {
        let entry = self.deque.steal(&self.host, |_| wanted())?;
        // SAFETY: the model keeps the entries.
        take(unsafe { entry.as_ref() });
        (0..2).find(|&index| std::ptr::eq(&raw const self.entries[index], entry.as_ptr()))
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

#[test]
fn a_waiter_takes_only_what_its_half_has_pushed() {
    explore("deque: a waiter", Preemptions::AtMost(4), || {
        let world = World::new();
        let theirs = world.clone();
        let waiter = thread::spawn(move || {
            let half = &theirs.half;
            if half.is_done() {
                return None;
            }
            theirs.steal_if(|| !half.is_done())
        });
        // The half forks, and ends.
        assert_ne!(world.push(0), Pushed::Full);
        let mut own = world.pop(0);
        // SAFETY: the model keeps the outcome; no handle abandons it.
        let _ = unsafe { Outcome::complete(&raw const world.half, &WordSleep::default()) };
        // Its thread goes on with something else.
        assert_ne!(world.push(1), Pushed::Full);
        own += world.pop(1);
        let stolen = waiter.join().unwrap();
        assert_ne!(stolen, Some(1), "the waiter has taken a part of something else");
        assert_eq!((own + stolen.map_or(0, |_| 1), world.counts()), (2, [11, 11]));
    });
}
