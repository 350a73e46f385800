//! Requests and answers: who may touch which buffer when. The states and their races are in the README.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uwork_engine::host::NoStack;

use super::snapshot::Snapshot;
use crate::linux::Event;
use crate::linux::futex;

/// Requests that can be on their way at once, including those whose caller has given up during the copy.
const EXCHANGES: usize = 4;

const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const IDLE: u64 = 0;
const ASKED: u64 = 1;
const COPYING: u64 = 2;
const DONE: u64 = 3;
const ABANDONED: u64 = 4;

/// One request and its answer.
struct Exchange {
    /// Generation << `PHASE_BITS` | phase. Any thread, by compare-and-swap; the child of a fork sets it.
    state: AtomicU64,
    /// The thread that is asked. Written by the caller that has claimed the exchange, before it sends.
    thread: AtomicI32,
    /// The caller sleeps here.
    answered: Event,
    /// The handler's from COPYING on, the caller's when DONE.
    snapshot: UnsafeCell<Snapshot>,
}

// SAFETY: the snapshot belongs to one thread at a time, by the phase.
unsafe impl Sync for Exchange {}

static ALL: [Exchange; EXCHANGES] = [const { Exchange::new() }; EXCHANGES];
/// Counts exchanges that were given back; callers that found none sleep here.
static FREED: AtomicU32 = AtomicU32::new(0);

/// Asks a thread by `send`, which gets what the handler is to get, and reads the answer by `read`. Nothing
/// if `send` fails, or nothing has come by the deadline.
pub(super) fn ask<R>(
    thread: libc::pid_t,
    send: impl FnOnce(usize) -> bool,
    deadline: Instant,
    read: impl FnOnce(&Snapshot) -> R,
) -> Result<R, NoStack> {
    let (number, asked) = claim(thread, deadline).ok_or(NoStack::NoAnswer)?;
    let exchange = &ALL[number];
    if !send(value(number, asked)) {
        let outcome = exchange.step(asked, IDLE);
        assert!(outcome, "nobody else knows of a request that was not sent");
        freed();
        return Err(NoStack::Unavailable);
    }
    if !exchange.wait(asked, deadline) {
        return Err(NoStack::NoAnswer);
    }
    let mut claimed = Claimed { exchange, generation: asked };
    Ok(read(claimed.snapshot()))
}

/// What the signal handler does: answers request `value` with what `copy` writes, if somebody still waits
/// for it and `thread`, the calling one, is meant. Async-signal-safe if `copy` is.
pub(super) fn answer(value: usize, thread: libc::pid_t, copy: impl FnOnce(&mut Snapshot)) {
    let (number, generation) = (value % EXCHANGES, (value / EXCHANGES) as u64);
    let exchange = &ALL[number];
    let asked = generation << PHASE_BITS | ASKED;
    if exchange.thread.load(Ordering::Relaxed) != thread || !exchange.step(asked, COPYING) {
        return;
    }
    // SAFETY: in COPYING the snapshot is ours.
    copy(unsafe { &mut *exchange.snapshot.get() });
    if exchange.step(with_phase(asked, COPYING), DONE) {
        // SAFETY: a static.
        unsafe { Event::set(&raw const exchange.answered) };
    } else {
        let outcome = exchange.step(with_phase(asked, ABANDONED), IDLE);
        debug_assert!(outcome, "only the handler leaves ABANDONED");
        freed();
    }
}

/// In the child of a fork: nobody asks and nobody answers any more.
pub(in crate::linux) fn forget() {
    for exchange in &ALL {
        let state = exchange.state.load(Ordering::Relaxed);
        exchange.state.store(with_phase(state, IDLE), Ordering::Relaxed);
        exchange.answered.renew();
    }
}

/// An exchange for a request to a thread: its number and its state.
fn claim(thread: libc::pid_t, deadline: Instant) -> Option<(usize, u64)> {
    loop {
        // Before the look: one that is given back after it ends the sleep below.
        let seen = FREED.load(Ordering::Acquire);
        if let Some(claimed) = (0..EXCHANGES).find_map(|number| ALL[number].claim(number)) {
            ALL[claimed.0].thread.store(thread, Ordering::Relaxed);
            return Some(claimed);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return None;
        }
        futex::wait(&FREED, seen, Some(left));
    }
}

/// An exchange was given back.
fn freed() {
    FREED.fetch_add(1, Ordering::Release);
    futex::wake(&raw const FREED);
}

/// What the handler gets.
fn value(number: usize, state: u64) -> usize {
    (state >> PHASE_BITS) as usize * EXCHANGES + number
}

fn with_phase(state: u64, phase: u64) -> u64 {
    state & !PHASE_MASK | phase
}

impl Exchange {
    const fn new() -> Exchange {
        Exchange {
            state: AtomicU64::new(IDLE),
            thread: AtomicI32::new(0),
            answered: Event::new(),
            snapshot: UnsafeCell::new(Snapshot::new()),
        }
    }

    /// From `state` to the same generation in `phase`, if it is still in `state`.
    #[must_use]
    fn step(&self, state: u64, phase: u64) -> bool {
        // Release: what was done to the snapshot before. Acquire: what others did to it.
        let next = with_phase(state, phase);
        self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn claim(&self, number: usize) -> Option<(usize, u64)> {
        let state = self.state.load(Ordering::Relaxed);
        if state & PHASE_MASK != IDLE {
            return None;
        }
        let asked = with_phase(state + (1 << PHASE_BITS), ASKED);
        let claimed =
            self.state.compare_exchange(state, asked, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then_some((number, asked))
    }

    /// Waits for the answer to the request `asked`. If there is none by the deadline, the exchange is given
    /// up.
    #[must_use]
    fn wait(&self, asked: u64, deadline: Instant) -> bool {
        let done = with_phase(asked, DONE);
        while self.state.load(Ordering::Acquire) != done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return !self.give_up(asked);
            }
            // It may have been set by the answer to an earlier request: the state tells.
            let _ = self.answered.wait(Some(left));
        }
        true
    }

    /// False if the answer has come after all.
    #[must_use]
    fn give_up(&self, asked: u64) -> bool {
        if self.step(asked, IDLE) {
            freed();
            return true;
        }
        // Then it is being answered, or was.
        self.step(with_phase(asked, COPYING), ABANDONED)
    }
}

/// An exchange with an answer in it. Given back when dropped.
struct Claimed {
    exchange: &'static Exchange,
    generation: u64,
}

impl Claimed {
    fn snapshot(&mut self) -> &Snapshot {
        // SAFETY: in DONE the snapshot is the caller's, which we are until the drop.
        unsafe { &*self.exchange.snapshot.get() }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let outcome = self.exchange.step(with_phase(self.generation, DONE), IDLE);
        debug_assert!(outcome, "only the caller leaves DONE");
        freed();
    }
}
