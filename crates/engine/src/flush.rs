//! Waiting: for an item, for everything that was queued, until a queue is empty.
//!
//! **Flush of a queue.** Items get the queue's present colour when they are spliced out of an
//! inbox, and each pwq counts its items by colour. A flush splices every inbox, moves the queue on
//! to the next colour, and waits until the old one, and all before it, have run out. Nothing is
//! paid per item. Colours end in the order in which they began. When all are in use, further
//! flushers wait until one has ended.
//!
//! **Giving up.** A flusher whose time is over takes its waiter out of its chain, under the flush
//! lock. Waiters leave a chain under that lock only, so there are two cases and no third:
//!
//! ```text
//! flusher, its time over                worker, the last item of the colour
//!                                       flush.lock
//! flush.lock                              takes the chain of the colour
//!   is the waiter in a chain ?          flush.unlock
//!     yes: takes it out. Nobody knows   wakes each waiter of the chain
//!          it any more: it may go away
//!     no:  the worker has taken it
//! flush.unlock
//!   no:  waits for that wake
//! ```
//!
//! In the second case the wake is a few instructions away and waits for nothing, so the flusher may
//! wait for it without a bound; it must, as the worker is about to touch the waiter. The flush has then
//! ended, and that is what the flusher says. Its colour goes on without a waiter in the first case: it
//! ends when its items do, and lets those in that found no colour free.

use std::ptr::NonNull;

use crate::engine::Engine;
use crate::help::Helped;
use crate::host::{Host, Report};
use crate::pwq::{COLOURS, Pwq};
use crate::queue::{QueueError, Wq};
use crate::slot::WaitsFor;
use crate::wake::{LOOK_AGAIN, Waiter, Waiters};
use crate::word::RunId;
use crate::work::{Place, Work};

/// Rounds of a drain before it is reported.
const DRAIN_REPORTS: u32 = 10;
/// And after which further rounds again.
const DRAIN_REPORTS_AGAIN: u32 = 100;
const DRAIN_REPORTS_LAST: u32 = 1_000;

/// Guard: the queue's flush lock. Rank: before the pwq locks.
pub(crate) struct FlushState<H: Host> {
    /// The colour that items get now.
    colour: usize,
    /// The oldest colour that a flush waits for; equal to `colour` when there is none.
    oldest: usize,
    /// Pwqs that still have items of a colour that is waited for.
    pending: [u32; COLOURS],
    /// Who waits for a colour.
    waiters: [Waiters<H>; COLOURS],
    /// Who found no colour free.
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

    /// Ends the oldest colours that have run out. Who waited for them, and who waited for one to
    /// become free.
    fn end_oldest(&mut self) -> Waiters<H> {
        let (mut done, before) = (Waiters::new(), self.oldest);
        while self.oldest != self.colour && self.pending[self.oldest] == 0 {
            done.append(self.waiters[self.oldest].take());
            self.oldest = (self.oldest + 1) % COLOURS;
        }
        // Not only if somebody waited for it: all its flushers may have given up.
        if self.oldest != before {
            done.append(self.overflow.take());
        }
        done
    }

    /// Takes out a waiter that gives up. False if it is in no chain any more.
    fn give_up(&mut self, waiter: &Waiter<H>) -> bool {
        self.overflow.remove(waiter) || self.waiters.iter_mut().any(|chain| chain.remove(waiter))
    }

    /// How many threads wait here.
    pub(crate) fn flushers(&self) -> usize {
        self.overflow.len() + self.waiters.iter().map(Waiters::len).sum::<usize>()
    }
}

/// How a flusher got on.
enum Began {
    /// Nothing is in flight.
    Nothing,
    /// It waits for its colour.
    Waiting,
    /// No colour is free.
    Full,
}

impl<H: Host> Wq<H> {
    /// Waits until everything that was queued before this call has run. Later items do not hold it
    /// up.
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

    /// As [`Wq::flush`], but gives up when the host's clock reaches `deadline`. False if it did: some
    /// of what was queued before has not run. A flush that gives up leaves nothing behind.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn flush_until(&self, deadline: u64) -> Result<bool, QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        Ok(self.flush_outside(Some(deadline)))
    }

    /// False if the time was over first.
    fn flush_outside(&self, deadline: Option<u64>) -> bool {
        self.engine().check_flush_dependency(self);
        self.engine().before_wait();
        loop {
            let waiter = Waiter::new(0);
            let began = self.begin_flush(&waiter);
            if let Began::Nothing = began {
                return true;
            }
            let _noted = self.engine().note_wait(WaitsFor::Queue(self.identity().addr()));
            let _blocked = self.engine().block();
            if !self.wait_or_give_up(&waiter, deadline) {
                return false;
            }
            if let Began::Waiting = began {
                return true;
            }
        }
    }

    /// Waits until the waiter was taken out of its chain and woken. False if it was taken out by
    /// this call, since the time is over.
    fn wait_or_give_up(&self, waiter: &Waiter<H>, deadline: Option<u64>) -> bool {
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
            // SAFETY: in no chain; the caller waits.
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
        // SAFETY: in no chain; the caller waits.
        unsafe { flush.waiters[colour].push(waiter) };
        Began::Waiting
    }

    /// The last item of an awaited colour of `pwq` is done.
    #[cold]
    pub(crate) fn colour_over(&self, engine: &Engine<H>, pwq: &Pwq<H>, colour: usize) {
        let mut flush = self.flush.lock();
        pwq.colour_is_over(colour);
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
        self.begin_drain();
        self.settle();
        self.end_drain();
        Ok(())
    }

    /// As [`Wq::drain`], but gives up when the host's clock reaches `deadline`. False if it did: the
    /// queue takes items from everybody again, and is not empty.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn drain_until(&self, deadline: u64) -> Result<bool, QueueError> {
        if self.runs_here() {
            return Err(QueueError::WouldDeadlock);
        }
        self.begin_drain();
        let empty = self.settle_until(Some(deadline));
        self.end_drain();
        Ok(empty)
    }

    /// Flushes until nothing is left.
    pub(crate) fn settle(&self) {
        self.settle_until(None);
    }

    /// Flushes until nothing is left. False if the time was over first.
    pub(crate) fn settle_until(&self, deadline: Option<u64>) -> bool {
        let mut rounds = 0;
        loop {
            let flushed = self.flush_outside(deadline);
            // One survey is no snapshot: an item of a pwq that comes later may queue another on one
            // that came before. Two with the same count, and nothing ran in between.
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
                self.engine().report(Report::DrainIsLong { queue, rounds });
            }
        }
    }

    /// Whether nothing is queued and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.survey().0
    }

    /// Whether nothing was queued or running in any pwq when it was looked at, and how many items
    /// there ever were.
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

impl<H: Host> Engine<H> {
    /// Waits until the last queueing of the item has run. False if it was idle; then, and when the
    /// caller is inside the very run that it would wait for, or in front of the item in its ordered
    /// queue, it returns at once. A cancel of the item ends the wait.
    ///
    /// # Safety
    /// `work` is live, and has only been queued on queues of this engine.
    pub unsafe fn flush_work(&self, work: NonNull<Work>) -> bool {
        // SAFETY: by this function's contract.
        let item = unsafe { work.as_ref() };
        let (mut round, mut waited) = (0, false);
        loop {
            let (pending, run) = item.word.snapshot();
            let running =
                |run: RunId| self.slots().get(run.slot).is_some_and(|s| s.is_running(run.run));
            if round == 0
                && (pending || run.is_some_and(running))
                && let Some(pwq) = self.pwqs().get(item.ticket().pwq())
            {
                self.check_item_dependency(pwq);
            }
            if !pending {
                return run.is_some_and(|run| self.wait_for_run(run, item)) || waited;
            }
            if run.is_some_and(|run| self.runs(run, item)) {
                // The coming run starts when this one has ended.
                return waited;
            }
            match item.place() {
                // Armed, not queued: there is nothing to wait for but what still runs.
                Place::Timer(_) | Place::Grace(_) => {
                    return run.is_some_and(|run| self.wait_for_run(run, item)) || waited;
                }
                Place::Disposal(_) => {
                    // SAFETY: by this function's contract.
                    if unsafe { self.dispose_of(work) } {
                        return true;
                    }
                }
                Place::Hands => {}
                _ => {
                    let epoch = self.freeze_epoch();
                    // SAFETY: by this function's contract.
                    if self.is_inside_an_item() && unsafe { self.help(work) } == Helped::Ran {
                        // Its queue may have no place left but the one that the caller is in.
                        return true;
                    }
                    self.before_wait();
                    let waiter = Waiter::new(work.as_ptr().addr());
                    // SAFETY: by this function's contract, and waited for if it was put in.
                    match unsafe { self.wait_behind(work, &waiter, epoch) } {
                        Some(true) => {
                            // SAFETY: by this function's contract.
                            let _noted = unsafe { self.note_wait_for_item(work) };
                            let _blocked = self.block();
                            waiter.wait(self.host());
                            // SAFETY: out of its chain, it is ours again.
                            if unsafe { waiter.key.get() } != LOOK_AGAIN {
                                return true;
                            }
                            // Its queue was thawed: now it may be helped.
                            waited = true;
                        }
                        Some(false) => return waited,
                        None => {}
                    }
                }
            }
            self.host().relax(round);
            round += 1;
        }
    }

    /// Puts a waiter behind a queued item. `None` if it is in no list at the moment, or if its queue
    /// may have been thawed since `epoch`, so that it may be helped now; false if it is
    /// behind the caller in an ordered queue, and would wait for itself.
    unsafe fn wait_behind(
        &self,
        work: NonNull<Work>,
        waiter: &Waiter<H>,
        epoch: u32,
    ) -> Option<bool> {
        // SAFETY: the caller's promise, handed on.
        let mut found = unsafe { self.locate(work) }?;
        if found.pwq.is_ordered() && self.runs_queue(found.pwq.wq().cast()) {
            return Some(false);
        }
        // Under the lock under which a thaw takes out who waits: one that did so before us is seen
        // here, one that comes after us finds the waiter.
        if self.freeze_epoch() != epoch {
            return None;
        }
        // SAFETY: located, hence live; its ticket is guarded by the guards that we hold.
        let item = unsafe { work.as_ref() };
        item.set_ticket(item.ticket().with_waited_for(true));
        // SAFETY: in no chain; the caller waits.
        unsafe { found.inner.waiters.push(waiter) };
        Some(true)
    }
}
