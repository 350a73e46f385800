//! Waits for a queue: until everything that was queued has run, or until the queue is empty.
//!
//! **Flush of a queue.** Items get the queue's present flush colour when they are spliced out of an
//! inbox, and each pwq counts its items by colour. A flush splices every inbox, advances the queue
//! to the next colour, and waits until the items of the old colour, and of all before it, are done.
//! This costs nothing per item. Colours end in the order in which they began. When all are in use,
//! further flushers wait until a colour has ended.
//!
//! **Timeouts.** A flusher that times out removes its waiter from its chain, under the flush
//! lock. Waiters leave a chain under that lock only, so there are exactly two cases:
//!
//! ```text
//! flusher, timed out                    worker, the last item of the colour
//!                                       flush.lock
//! flush.lock                              takes the chain of the colour
//!   is the waiter in a chain ?          flush.unlock
//!     yes: removes it. No thread        wakes each waiter of the chain
//!          refers to it any more
//!     no:  the worker has taken it
//! flush.unlock
//!   no:  waits for that wake
//! ```
//!
//! In the second case the wake is a few instructions away and waits for nothing, so the flusher may
//! wait for it without a bound. It must, because the worker is about to access the waiter. The
//! flush has then ended, and the flusher reports success. In the first case its colour continues
//! without a waiter: it ends when its items do, and then wakes the flushers that found no free
//! colour.

use crate::engine::Engine;
use crate::queue::pwq::{COLOURS, Pwq};
use crate::queue::{QueueError, Wq};
use crate::slot::WaitsFor;
use crate::words::host::{Host, Report};
use crate::words::wake::{Waiter, Waiters};

/// The number of rounds after which a drain is reported.
const DRAIN_REPORTS: u32 = 10;
/// It is reported again after each multiple of this many rounds, up to `DRAIN_REPORTS_LAST`.
const DRAIN_REPORTS_AGAIN: u32 = 100;
const DRAIN_REPORTS_LAST: u32 = 1_000;

/// Guard: the queue's flush lock. Rank: before the pwq locks.
pub(crate) struct FlushState<H: Host> {
    /// The colour that items get now.
    colour: usize,
    /// The oldest colour that a flush waits for; equal to `colour` if there is none.
    oldest: usize,
    /// By colour: how many pwqs still have items of it, if a flush waits for it.
    pending: [u32; COLOURS],
    /// The flushers that wait for each colour.
    waiters: [Waiters<H>; COLOURS],
    /// The flushers that found no free colour.
    overflow: Waiters<H>,
}

impl<H: Host> FlushState<H> {
    pub(crate) fn new() -> Self {
        FlushState {
            colour: 0,
            oldest: 0,
            pending: [0; COLOURS],
            waiters: std::array::from_fn(|_| Waiters::new()),
            overflow: Waiters::new(),
        }
    }

    /// The colour that items get now.
    pub(crate) fn colour(&self) -> usize {
        self.colour
    }

    /// Ends the oldest colours whose items are done. Returns the flushers that waited for them, and
    /// those that waited for a free colour.
    fn end_oldest(&mut self) -> Waiters<H> {
        let (mut done, before) = (Waiters::new(), self.oldest);
        while self.oldest != self.colour && self.pending[self.oldest] == 0 {
            done.append(self.waiters[self.oldest].take());
            self.oldest = (self.oldest + 1) % COLOURS;
        }
        // Even if no flusher waits for the ended colour: all of its flushers may have timed out.
        if self.oldest != before {
            done.append(self.overflow.take());
        }
        done
    }

    /// Removes a waiter that timed out. False if it is in no chain any more.
    fn give_up(&mut self, waiter: &Waiter<H>) -> bool {
        self.overflow.remove(waiter) || self.waiters.iter_mut().any(|chain| chain.remove(waiter))
    }

    /// How many threads wait here.
    pub(crate) fn flushers(&self) -> usize {
        self.overflow.len() + self.waiters.iter().map(Waiters::len).sum::<usize>()
    }
}

/// The first step of a flush.
enum Began {
    /// Nothing is in flight.
    Nothing,
    /// The flusher is in the chain of its colour.
    Waiting,
    /// No colour is free.
    Full,
}

impl<H: Host> Wq<H> {
    /// Waits until everything that was queued before this call has run. Later items do not delay
    /// it.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn flush(&self) -> Result<(), QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        self.flush_outside(None);
        Ok(())
    }

    /// As [`Wq::flush`], but times out when the host's clock reaches `deadline`. False if it did:
    /// some of the items queued before have not run. A flush that times out leaves nothing behind.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn flush_until(&self, deadline: u64) -> Result<bool, QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        Ok(self.flush_outside(Some(deadline)))
    }

    /// False if it timed out.
    fn flush_outside(&self, deadline: Option<u64>) -> bool {
        self.engine().caller().check_flush_dependency(self);
        self.engine().caller().before_wait();
        loop {
            let waiter = Waiter::new(0);
            let began = self.begin_flush(&waiter);
            if let Began::Nothing = began {
                return true;
            }
            let _noted = self.engine().caller().note_wait(WaitsFor::Queue(self.identity().addr()));
            let _blocked = self.engine().caller().block();
            if !self.wait_or_time_out(&waiter, deadline) {
                return false;
            }
            if let Began::Waiting = began {
                return true;
            }
        }
    }

    /// Waits until the waiter was taken from its chain and woken. False if this call removed it
    /// because it timed out.
    fn wait_or_time_out(&self, waiter: &Waiter<H>, deadline: Option<u64>) -> bool {
        let host = self.engine().host();
        if let Some(deadline) = deadline {
            if waiter.wait_until(host, deadline) {
                return true;
            }
            let given_up = self.flush.lock().give_up(waiter);
            if given_up {
                return false;
            }
        }
        waiter.wait(host);
        true
    }

    fn begin_flush(&self, waiter: &Waiter<H>) -> Began {
        let mut flush = self.flush.lock();
        let colour = flush.colour;
        let next = (colour + 1) % COLOURS;
        if next == flush.oldest {
            // SAFETY: the waiter is in no chain, and the caller waits for it.
            unsafe { flush.overflow.push(waiter) };
            return Began::Full;
        }
        let mut pending = 0;
        self.pwqs().for_each(|pwq| {
            let mut inner = pwq.lock();
            pwq.splice(&mut inner);
            inner.colour = next;
            pending += u32::from(pwq.await_colour(colour));
        });
        flush.pending[colour] = pending;
        flush.colour = next;
        if pending == 0 && flush.oldest == colour {
            flush.oldest = next;
            return Began::Nothing;
        }
        // SAFETY: the waiter is in no chain, and the caller waits for it.
        unsafe { flush.waiters[colour].push(waiter) };
        Began::Waiting
    }

    /// Called when the last item of an awaited colour of `pwq` is done.
    #[cold]
    pub(crate) fn end_colour(&self, engine: &Engine<H>, pwq: &Pwq<H>, colour: usize) {
        let mut flush = self.flush.lock();
        pwq.clear_awaited(colour);
        flush.pending[colour] -= 1;
        let done = flush.end_oldest();
        drop(flush);
        done.complete(engine.host());
    }

    /// Waits until the queue is empty. Meanwhile only the queue's own items may queue more.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn drain(&self) -> Result<(), QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        self.gate.begin_drain();
        self.settle();
        self.gate.end_drain();
        Ok(())
    }

    /// Flushes until the queue is empty.
    pub(crate) fn settle(&self) {
        self.settle_until(None);
    }

    /// Flushes until the queue is empty. False if it timed out.
    pub(crate) fn settle_until(&self, deadline: Option<u64>) -> bool {
        let mut rounds = 0;
        loop {
            let flushed = self.flush_outside(deadline);
            // One survey is no snapshot: an item of a pwq that is surveyed later may queue another
            // on a pwq surveyed earlier. If two surveys return the same count, nothing ran in
            // between.
            let first = self.survey();
            if first.0 && self.survey() == first {
                return true;
            }
            if !flushed || deadline.is_some_and(|at| at <= self.engine().host().now()) {
                return false;
            }
            rounds += 1;
            let again = rounds % DRAIN_REPORTS_AGAIN == 0 && rounds <= DRAIN_REPORTS_LAST;
            if rounds == DRAIN_REPORTS || again {
                let queue = self.name().to_owned();
                self.engine().caller().report(Report::DrainIsLong { queue, rounds });
            }
        }
    }

    /// Whether nothing is queued and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.survey().0
    }

    /// Whether each pwq was empty and without running items when it was examined, and the number of
    /// items spliced so far.
    pub(crate) fn survey(&self) -> (bool, u64) {
        let (mut idle, mut items) = (true, 0);
        self.pwqs().for_each(|pwq| {
            let (quiet, spliced) = pwq.survey();
            idle &= quiet;
            items += spliced;
        });
        (idle, items)
    }
}
