//! Flat combining: pushers, a holder, a resume.
//!
//! **Proves.** Every node comes out once, in the order of its pusher. At any time at most one
//! holder exists, and each holder sees the writes of the previous one. A resume is not lost between
//! the holder's failure and its stall, nor where the holder panics. An offer is taken by another
//! thread, or taken back, exactly once.
//!
//! **Bounds.** Two pushers with two nodes and one; one pusher and one resume; any number of
//! preemptions: 70,407, 162 and 162 executions. Three pushers, each of which offers its role as
//! holder after each round, up to two preemptions: 28,819.
//!
//! **Seen to fail** when `release` does not check for nodes, when the exchanges only acquire or
//! only release, and when `resume` gives up where it finds a holder.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::Event;
use super::{Preemptions, explore};
use crate::words::combine::{Combine, CombineChain, CombineNode};
use crate::words::sync::{AtomicU32, Cell, Ordering};

#[repr(C)]
struct Node {
    node: CombineNode,
    number: u32,
}

struct World {
    combine: Combine,
    /// Written by the holder only.
    holders: Cell<u32>,
    chain: Mutex<CombineChain>,
    done: Mutex<Vec<u32>>,
    /// 1: room exists, and the holder can continue.
    room: AtomicU32,
    /// The holder has asked for a notification of room.
    asked: Event,
}

impl World {
    fn new(room: u32) -> Arc<World> {
        Arc::new(World {
            combine: Combine::new(),
            holders: Cell::new(0),
            chain: Mutex::default(),
            done: Mutex::default(),
            room: AtomicU32::new(room),
            asked: Event::default(),
        })
    }

    fn push(&self, number: u32) {
        if self.leave(number) {
            self.hold();
        }
    }

    fn leave(&self, number: u32) -> bool {
        let node = Box::into_raw(Box::new(Node { node: CombineNode::default(), number }));
        // SAFETY: a box of ours, whose first field is the node.
        unsafe { self.combine.push(node.cast()) }
    }

    /// Offers its role as holder after each round.
    fn hold_and_offer(&self) {
        loop {
            self.round();
            // SAFETY: this thread is the holder, and its chain is empty.
            if unsafe { self.combine.release() } {
                return;
            }
            // SAFETY: this thread is the holder.
            unsafe { self.combine.offer() };
            if !self.combine.retake() {
                return;
            }
        }
    }

    fn round(&self) {
        // SAFETY: only the holder touches the cell. The model checks exactly that.
        unsafe { self.holders.set(self.holders.get() + 1) };
        let mut chain = self.chain.lock().unwrap();
        // SAFETY: this thread is the holder.
        unsafe { self.combine.take(&mut chain) };
        self.empty(&mut chain);
    }

    fn empty(&self, chain: &mut CombineChain) {
        while !chain.first().is_null() {
            // SAFETY: a node of `push`, taken once.
            let node = unsafe { Box::from_raw(chain.pop().cast::<Node>()) };
            self.done.lock().unwrap().push(node.number);
        }
    }

    fn resume(&self) {
        if self.combine.resume() {
            self.hold();
        }
    }

    fn hold(&self) {
        loop {
            // SAFETY: only the holder touches the cell. The model checks exactly that.
            unsafe { self.holders.set(self.holders.get() + 1) };
            let mut chain = self.chain.lock().unwrap();
            // SAFETY: this thread is the holder.
            unsafe { self.combine.take(&mut chain) };
            // Relaxed: the combine word provides the ordering.
            let room = self.room.load(Ordering::Relaxed) == 1;
            if room {
                self.empty(&mut chain);
            }
            drop(chain);
            if !room {
                self.asked.wake();
            }
            // SAFETY: this thread is the holder.
            let gone = unsafe { if room { self.combine.release() } else { self.combine.stall() } };
            if gone {
                return;
            }
        }
    }
}

#[test]
fn remaining_nodes_are_processed_by_the_holder() {
    explore("combine: remaining nodes are processed by the holder", Preemptions::Any, || {
        let world = World::new(1);
        let pushers = [vec![0, 1], vec![2]].map(|numbers| {
            let world = world.clone();
            thread::spawn(move || numbers.into_iter().for_each(|number| world.push(number)))
        });
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let done = world.done.lock().unwrap().clone();
        let mut sorted = done.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        let at = |number| done.iter().position(|&done| done == number);
        assert!(at(0) < at(1), "nodes of one pusher come out in its order");
    });
}

#[test]
fn a_holder_that_offers_its_role() {
    explore("combine: a holder that offers its role", Preemptions::AtMost(2), || {
        let world = World::new(1);
        let pushers = [vec![0, 1], vec![2], vec![3]].map(|numbers| {
            let world = world.clone();
            thread::spawn(move || {
                for number in numbers {
                    if world.leave(number) {
                        world.hold_and_offer();
                    }
                }
            })
        });
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let done = world.done.lock().unwrap().clone();
        let mut sorted = done.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
        let at = |number| done.iter().position(|&done| done == number);
        assert!(at(0) < at(1), "nodes of one pusher come out in its order");
    });
}

#[test]
fn a_resume_that_meets_a_panic() {
    explore("combine: a resume that meets a panic", Preemptions::Any, || {
        let world = World::new(1);
        let pusher = {
            let world = world.clone();
            thread::spawn(move || {
                assert!(world.leave(0), "no other thread holds it");
                world.asked.wake();
                // SAFETY: this thread is the holder.
                unsafe { world.combine.abandon() };
            })
        };
        let other = world.clone();
        let resumer = thread::spawn(move || {
            other.asked.wait();
            other.resume();
        });
        pusher.join().unwrap();
        resumer.join().unwrap();
        // The resume processed node 0, or the next holder did.
        assert!(!world.combine.is_stalled());
        world.push(1);
        assert_eq!(*world.done.lock().unwrap(), [0, 1]);
    });
}

#[test]
fn a_resume_that_meets_a_stall() {
    explore("combine: a resume that meets a stall", Preemptions::Any, || {
        let world = World::new(0);
        let pusher = {
            let world = world.clone();
            thread::spawn(move || world.push(0))
        };
        let other = world.clone();
        let resumer = thread::spawn(move || {
            other.asked.wait();
            other.room.store(1, Ordering::Relaxed);
            other.resume();
        });
        pusher.join().unwrap();
        resumer.join().unwrap();
        assert_eq!(*world.done.lock().unwrap(), [0]);
        assert!(!world.combine.is_stalled());
    });
}
