//! Requests for another thread's stack, and answers that come in time, late, or never.
//!
//! **Proves.** A caller that gets an answer reads the whole answer to its own request. A handler
//! whose caller has given up touches no buffer that belongs to another request. An exchange is
//! released once. A caller that waits for an answer, or for an exchange, is woken.
//!
//! **Bounds.** One production exchange; one or two callers, handlers that run when a request has
//! been sent, and time as a thread that may end any wait. Up to two preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - `step` only acquires, or only releases;
//! - a new request keeps the generation of the last one;
//! - `give_up` makes an exchange IDLE that is in COPYING;
//! - `answer` wakes before it stores DONE, or does not wake; an exchange is released without a
//!   wake;
//! - `wait` and `claim` check before they read the number that they sleep on.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::WordSleep;
use super::{Preemptions, explore};
use crate::words::exchange::{Exchange, Exchanges, Freed};
use crate::words::sync::Cell;

/// The thread whose stack is requested.
const THREAD: u32 = 7;

struct World {
    states: Vec<Exchange>,
    freed: Freed,
    /// For each exchange, the two words of one answer.
    buffers: Vec<[Cell<usize>; 2]>,
    futex: WordSleep,
    /// Requests so far.
    requests: Mutex<usize>,
    /// Handlers that were started.
    handlers: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl World {
    fn new(exchanges: usize) -> Arc<World> {
        Arc::new(World {
            states: (0..exchanges).map(|_| Exchange::new()).collect(),
            freed: Freed::new(),
            buffers: (0..exchanges).map(|_| [Cell::new(0), Cell::new(0)]).collect(),
            futex: WordSleep::default(),
            requests: Mutex::new(0),
            handlers: Mutex::default(),
        })
    }

    fn all(&self) -> Exchanges<'_> {
        Exchanges { all: &self.states, freed: &self.freed }
    }

    /// A handler on the thread whose stack is requested. The answer contains the number of its
    /// request, as counted by the model.
    fn answer(&self, number: usize, request: usize) {
        self.all().answer(number, THREAD, &self.futex, |index| {
            // SAFETY: the handler owns the buffer. The model checks exactly that.
            self.buffers[index].iter().for_each(|word| unsafe { word.set(request) });
        });
    }

    /// Sends a request and checks the answer. Returns whether an answer came.
    fn ask(world: &Arc<World>) -> bool {
        let mut asked = 0;
        let send = |number| {
            let mut requests = world.requests.lock().unwrap();
            *requests += 1;
            asked = *requests;
            drop(requests);
            let theirs = world.clone();
            let handler = thread::spawn(move || theirs.answer(number, asked));
            world.handlers.lock().unwrap().push(handler);
            true
        };
        // SAFETY: the caller owns the buffer. The model checks exactly that.
        let read = |index: usize| world.buffers[index].each_ref().map(|word| unsafe { word.get() });
        let answer = world.all().ask(THREAD, &world.futex, send, read);
        answer.is_ok_and(|answer| {
            assert_eq!(answer, [asked; 2], "torn, or of another request");
            true
        })
    }

    /// Waits until every handler has ended and every exchange is free.
    fn end(&self) {
        while let Some(handler) = { self.handlers.lock().unwrap().pop() } {
            handler.join().unwrap();
        }
        self.futex.expire();
        let unsent = |_| false;
        for _ in &self.states {
            let outcome = self.all().ask(THREAD, &self.futex, unsent, |_| ());
            assert_eq!(outcome, Err(crate::words::exchange::Unanswered::Unsent), "given back");
        }
    }
}

#[test]
fn an_answer_is_whole_or_late() {
    explore("exchange: whole or late", Preemptions::AtMost(2), || {
        let world = World::new(1);
        let time = {
            let world = world.clone();
            thread::spawn(move || world.futex.expire())
        };
        let _ = World::ask(&world);
        time.join().unwrap();
        world.end();
    });
}

/// The second request reuses the exchange of the first, whose handler may still run.
#[test]
fn a_late_handler_leaves_the_next_request_alone() {
    explore("exchange: a late handler", Preemptions::AtMost(2), || {
        let world = World::new(1);
        world.futex.expire();
        let _ = World::ask(&world);
        world.futex.renew();
        assert!(World::ask(&world), "without a limit it is answered");
        world.end();
    });
}

#[test]
fn callers_that_share_an_exchange_are_both_answered() {
    explore("exchange: a shared exchange", Preemptions::AtMost(2), || {
        let world = World::new(1);
        let other = {
            let world = world.clone();
            thread::spawn(move || assert!(World::ask(&world)))
        };
        assert!(World::ask(&world));
        other.join().unwrap();
        world.end();
    });
}
