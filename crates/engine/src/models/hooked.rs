//! The removal of thread hooks beside workers that begin and park.
//!
//! **Proves.** When a remover's wait returns, no worker is in a hook or calls one later: the program may
//! unload the hooks. The wait ends, also if workers have called the start hook and park. No queue
//! demands hooks after their removal, even if it is told to meanwhile.
//!
//! **Bounds.** The production words; the part of a worker's loop that calls hooks and parks; one or two
//! workers, one or two removers; up to three preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - `enter` reads the mark before it counts;
//! - `leave` does not wake, or wakes before it counts;
//! - `wait` does not pass its wake on;
//! - the worker reads the number of changes after it has called the start hook;
//! - the remover does not wake the workers, or wakes them before it has changed that number;
//! - the adder of a demand does not read the mark afterwards.

use std::sync::Arc;

use loom::thread;

use super::host::{Event, WordSleep};
use super::{Preemptions, explore};
use crate::handle::{Hooked, Owner};
use crate::words::host::Demands;
use crate::words::sync::{AtomicU32, Cell, Ordering};

struct World {
    hooked: Hooked,
    futex: WordSleep,
    /// How often hooks have changed.
    generation: AtomicU32,
    /// Where each worker parks.
    parked: [Event; 2],
    /// The code of the hooks: a worker that calls one reads it, and the program changes it once it is
    /// told that no thread will.
    code: Cell<u32>,
}

impl World {
    fn new() -> Arc<World> {
        let (hooked, futex, generation) = (Hooked::new(), WordSleep::default(), AtomicU32::new(1));
        // loom orders no initial value of a number: these are stored by the program.
        assert!(hooked.enter(Owner::Library, &futex));
        hooked.leave(Owner::Library, &futex);
        generation.store(1, Ordering::SeqCst);
        let parked = [Event::default(), Event::default()];
        Arc::new(World { hooked, futex, generation, parked, code: Cell::new(0) })
    }

    fn call_hook(&self) {
        // SAFETY: no thread changes the code. The model checks exactly that.
        let _ = unsafe { self.code.get() };
    }

    /// A worker begins, and parks until the hooks are removed.
    fn work(&self, number: usize) {
        let seen = self.generation.load(Ordering::SeqCst);
        if !self.hooked.enter(Owner::Library, &self.futex) {
            return;
        }
        self.call_hook();
        while self.generation.load(Ordering::SeqCst) == seen {
            self.parked[number].wait();
        }
        self.call_hook();
        self.hooked.leave(Owner::Library, &self.futex);
    }

    /// Removes the hooks, and waits.
    fn remove(&self) {
        if self.hooked.remove() {
            self.generation.fetch_add(1, Ordering::SeqCst);
            if self.hooked.inside(Owner::Library) > 0 {
                self.parked.iter().for_each(Event::wake);
            }
        }
        self.hooked.wait(&self.futex);
    }
}

/// A queue gets a demand of hooks while they are removed: it has none afterwards.
#[test]
fn no_queue_demands_hooks_that_are_removed() {
    explore("hooked: a demand", Preemptions::AtMost(3), || {
        const HOOKS: usize = 8;
        let world = Arc::new((Hooked::new(), Demands::new()));
        let theirs = world.clone();
        let adder = thread::spawn(move || {
            let (hooked, demands) = &*theirs;
            let _ = demands.add(HOOKS);
            if hooked.is_removed() {
                demands.remove(HOOKS);
            }
        });
        let (hooked, demands) = &*world;
        assert!(hooked.remove());
        demands.remove(HOOKS);
        adder.join().unwrap();
        demands.for_each(|number| panic!("{number} is demanded"));
    });
}

fn removal(name: &'static str, workers: usize, removers: usize) {
    explore(name, Preemptions::AtMost(3), move || {
        let world = World::new();
        let begin = |number: usize| {
            let world = world.clone();
            thread::spawn(move || world.work(number))
        };
        let workers: Vec<_> = (0..workers).map(begin).collect();
        let others: Vec<_> = (1..removers)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || world.remove())
            })
            .collect();
        world.remove();
        // SAFETY: no worker calls a hook any more. The model checks exactly that.
        unsafe { world.code.set(1) };
        workers.into_iter().chain(others).for_each(|thread| thread.join().unwrap());
        assert_eq!(world.hooked.inside(Owner::Library), 0);
    });
}

#[test]
fn a_worker_begins_while_the_hooks_are_removed() {
    removal("hooked: a worker begins", 1, 1);
}

#[test]
fn two_workers_begin_while_the_hooks_are_removed() {
    removal("hooked: two workers begin", 2, 1);
}

#[test]
fn both_of_two_removers_return() {
    removal("hooked: two removers", 1, 2);
}
