//! Requests to another thread, and its answers in buffers that are never freed: which thread may touch
//! which buffer when.
//!
//! An exchange consists of a word with generation and phase, and a buffer that belongs to its user.
//! The phases and their races are in `crates/linux/src/stack/README.md`, which collects
//! threads' stacks with it.

use crate::words::futex::Futex;
use crate::words::sync::{AtomicU32, AtomicU64, Ordering, const_unless_modelled};

const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const IDLE: u64 = 0;
const ASKED: u64 = 1;
const COPYING: u64 = 2;
const DONE: u64 = 3;
const ABANDONED: u64 = 4;

/// One request and its answer.
pub struct Exchange {
    /// Generation << `PHASE_BITS` | phase. Any thread changes it by compare-and-swap; a forked
    /// child stores it.
    state: AtomicU64,
    /// The thread that is asked. Written by the caller that has claimed the exchange, before it
    /// sends.
    thread: AtomicU32,
    /// The number of answers so far. The caller sleeps on it.
    answers: AtomicU32,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The request could not be sent.
    Unsent,
    /// No answer came in time.
    Late,
}

/// All exchanges of one kind.
#[derive(Clone, Copy)]
pub struct Exchanges<'a> {
    /// Requests that can be in progress at once, including those whose caller gave up during the
    /// copy.
    pub all: &'a [Exchange],
    /// The count of their releases.
    pub freed: &'a Freed,
}

/// Counts released exchanges. Callers that find none free sleep on it.
pub struct Freed(AtomicU32);

impl Default for Freed {
    fn default() -> Freed {
        Freed::new()
    }
}

impl Freed {
    const_unless_modelled! {
        /// None was released.
        pub fn new() -> Freed {
            Freed(AtomicU32::new(0))
        }
    }
}

impl<'a> Exchanges<'a> {
    /// Asks `thread` by `send`, which gets the number to be passed to [`Exchanges::answer`]. Once
    /// the answer has come, `read` gets the index of the exchange; the caller owns its buffer
    /// meanwhile.
    ///
    /// # Errors
    /// `send` returns false, or `futex` times out first.
    pub fn ask<R>(
        self,
        thread: u32,
        futex: &impl Futex,
        send: impl FnOnce(usize) -> bool,
        read: impl FnOnce(usize) -> R,
    ) -> Result<R, Unanswered> {
        let (index, asked) = self.claim(thread, futex).ok_or(Unanswered::Late)?;
        let exchange = &self.all[index];
        if !send(self.number(index, asked)) {
            let outcome = exchange.step(asked, IDLE);
            assert!(outcome, "a request that was not sent has no handler");
            self.give_back(futex);
            return Err(Unanswered::Unsent);
        }
        if !self.wait(exchange, asked, futex) {
            return Err(Unanswered::Late);
        }
        let _claimed = Claimed { exchanges: self, exchange, asked, futex };
        Ok(read(index))
    }

    /// The handler: answers request `number` with the data that `copy` stores in the buffer of the
    /// index that it gets, if the caller still waits for it and the request is for `thread`, the
    /// calling thread. Async-signal-safe if `copy` and `futex` are.
    pub fn answer(self, number: usize, thread: u32, futex: &impl Futex, copy: impl FnOnce(usize)) {
        let (index, generation) = (number % self.all.len(), (number / self.all.len()) as u64);
        let exchange = &self.all[index];
        let asked = generation << PHASE_BITS | ASKED;
        if exchange.thread.load(Ordering::Relaxed) != thread || !exchange.step(asked, COPYING) {
            return;
        }
        copy(index);
        if exchange.step(with_phase(asked, COPYING), DONE) {
            // Release: a caller that sees this number sees DONE.
            exchange.answers.fetch_add(1, Ordering::Release);
            futex.wake(&raw const exchange.answers);
        } else {
            let outcome = exchange.step(with_phase(asked, ABANDONED), IDLE);
            debug_assert!(outcome, "only the handler leaves ABANDONED");
            self.give_back(futex);
        }
    }

    /// In a forked child, where all requests and handlers no longer exist.
    pub fn forget(self) {
        for exchange in self.all {
            let state = exchange.state.load(Ordering::Relaxed);
            exchange.state.store(with_phase(state, IDLE), Ordering::Relaxed);
        }
    }

    /// Claims an exchange for a request to a thread: its index and its state.
    fn claim(self, thread: u32, futex: &impl Futex) -> Option<(usize, u64)> {
        loop {
            // Read before the search: an exchange that is released after the search ends the sleep
            // below.
            let seen = self.freed.0.load(Ordering::Acquire);
            let claimed = |(index, exchange): (usize, &Exchange)| Some((index, exchange.claim()?));
            if let Some((index, asked)) = self.all.iter().enumerate().find_map(claimed) {
                self.all[index].thread.store(thread, Ordering::Relaxed);
                return Some((index, asked));
            }
            if !futex.wait(&self.freed.0, seen) {
                return None;
            }
        }
    }

    /// Announces that an exchange is IDLE again.
    fn give_back(self, futex: &impl Futex) {
        // Release: a caller that sees this number sees IDLE.
        self.freed.0.fetch_add(1, Ordering::Release);
        futex.wake(&raw const self.freed.0);
    }

    /// Waits for the answer to the request `asked`. If none comes in time, the caller gives up.
    #[must_use]
    fn wait(self, exchange: &Exchange, asked: u64, futex: &impl Futex) -> bool {
        let done = with_phase(asked, DONE);
        loop {
            // Read before the check: an answer that comes after the check ends the sleep below.
            let seen = exchange.answers.load(Ordering::Acquire);
            if exchange.state.load(Ordering::Acquire) == done {
                return true;
            }
            if !futex.wait(&exchange.answers, seen) {
                return !self.give_up(exchange, asked, futex);
            }
        }
    }

    /// Gives up the request. False if the answer has come after all.
    #[must_use]
    fn give_up(self, exchange: &Exchange, asked: u64, futex: &impl Futex) -> bool {
        if exchange.step(asked, IDLE) {
            self.give_back(futex);
            return true;
        }
        // The handler is answering, or has answered.
        exchange.step(with_phase(asked, COPYING), ABANDONED)
    }

    /// The number that the handler gets.
    fn number(self, index: usize, asked: u64) -> usize {
        (asked >> PHASE_BITS) as usize * self.all.len() + index
    }
}

fn with_phase(state: u64, phase: u64) -> u64 {
    state & !PHASE_MASK | phase
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::new()
    }
}

impl Exchange {
    const_unless_modelled! {
        /// A free exchange.
        pub fn new() -> Exchange {
            Exchange {
                state: AtomicU64::new(IDLE),
                thread: AtomicU32::new(0),
                answers: AtomicU32::new(0),
            }
        }
    }

    /// From `state` to the same generation in `phase`, if it is still in `state`.
    #[must_use]
    fn step(&self, state: u64, phase: u64) -> bool {
        // Release: this side's accesses to the buffer. Acquire: the other side's.
        let next = with_phase(state, phase);
        self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Claims it for a new request, if it is free. Returns its new state.
    fn claim(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        if state & PHASE_MASK != IDLE {
            return None;
        }
        let asked = with_phase(state + (1 << PHASE_BITS), ASKED);
        let claimed =
            self.state.compare_exchange(state, asked, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then_some(asked)
    }
}

/// An exchange with an answer in its buffer. Released when dropped.
struct Claimed<'a, 'f, F: Futex> {
    exchanges: Exchanges<'a>,
    exchange: &'a Exchange,
    asked: u64,
    futex: &'f F,
}

impl<F: Futex> Drop for Claimed<'_, '_, F> {
    fn drop(&mut self) {
        let outcome = self.exchange.step(with_phase(self.asked, DONE), IDLE);
        debug_assert!(outcome, "only the caller leaves DONE");
        self.exchanges.give_back(self.futex);
    }
}
