//! Which thread owns a future: the worker that polls it, or the thread that drops it; and whether
//! its item is to be queued.
//!
//! A future is polled as a work item, so polls never overlap. Any thread may wake it, and any
//! thread may abandon it, at any time: its handle cancels it, or its queue refuses it. The thread
//! that owns the future at the end drops it and completes the task, once.
//!
//! | bit | set by | meaning |
//! |---|---|---|
//! | POLLING | the worker | the worker owns the future |
//! | CANCELLED, REFUSED | the first thread that abandons it | the future is to be dropped, and why |
//! | GONE | the thread that drops it, once | that thread owns the future permanently |
//! | WOKEN | a waker | another poll is due |
//! | CALLERS, a count | a waker that queues the item | it may still be inside the queue |
//!
//! | GONE | POLLING | why | WOKEN | state |
//! |---|---|---|---|---|
//! | 0 | 0 | 0 | 0 | between polls: no thread owns the future |
//! | 0 | 0 | 0 | 1 | its item is queued, or the thread that set WOKEN is about to queue it |
//! | 0 | 1 | 0 | 0 | it is polled |
//! | 0 | 1 | 0 | 1 | it is polled, and the worker queues its item at the end of the poll |
//! | 0 | 1 | 1 | any | it is polled, and the worker drops it at the end of the poll |
//! | 0 | 0 | 1 | any | impossible: the thread that sets a reason between polls sets GONE with it |
//! | 1 | 0 | any | any | it is dropped, or about to be |
//! | 1 | 1 | any | any | impossible |
//!
//! **The item has one submitter.** Only the thread that changes "not WOKEN, not POLLING" to WOKEN
//! queues the item, or the worker whose poll ends with WOKEN. So the item needs no exchange for its
//! own ownership. A worker queues it as the last act of its run; from then on it does not touch the
//! task, so the next run may begin before the engine has recorded the end of this one.
//!
//! **The queue outlives the calls.** An item that a waker has queued may run, and finish the future,
//! while the waker is still inside the queue, for example to wake a worker. The future's last owner
//! releases the handle of the queue nevertheless, before it completes the task: a thread that sees the
//! result finds the queue free. It keeps the queue's memory for wakers that are inside:
//!
//! ```text
//! waker                                last owner
//! WOKEN, CALLERS + 1
//! queues the item
//!                                      GONE; CALLERS > 0: + 1, for itself
//!                                      keeps the memory, releases the handle, completes the task
//! is about to leave the queue          CALLERS - 1
//! CALLERS - 1, to 0, with GONE:
//! releases the memory
//! ```
//!
//! The one of them that leaves last releases the memory. After GONE no waker queues the item, so
//! CALLERS only falls. A worker that queues its own item is not counted: the queue waits for the end
//! of its run.
//!
//! **No wake is lost.** A waker that finds the future being polled leaves WOKEN, and the end of the
//! poll is a change of the same word. A waker that finds WOKEN has released its stores to the poll
//! that comes, which begins by a change of the same word.
//!
//! **No request is lost.** A thread that abandons the future and the worker that ends its poll
//! change the same word by one instruction each. If the reason comes first, the worker finds it;
//! otherwise the other thread finds POLLING clear, and drops the future itself. Every transition
//! acquires and releases, so that the new owner of the future sees the previous owner's effects on
//! it.

use crate::words::sync::{AtomicU32, Ordering};

const POLLING: u32 = 1;
const CANCELLED: u32 = 2;
const REFUSED: u32 = 4;
const GONE: u32 = 8;
const WOKEN: u32 = 16;
/// One caller. The count has 24 bits: Linux has fewer threads.
const CALLER: u32 = 1 << 8;
const CALLERS: u32 = !(CALLER - 1);

/// Why a future is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its handle cancelled it.
    Cancelled,
    /// Its queue refused to poll it again.
    Refused,
}

impl Why {
    fn bit(self) -> u32 {
        match self {
            Why::Cancelled => CANCELLED,
            Why::Refused => REFUSED,
        }
    }

    fn of(word: u32) -> Option<Why> {
        match word & (CANCELLED | REFUSED) {
            0 => None,
            CANCELLED => Some(Why::Cancelled),
            _ => Some(Why::Refused),
        }
    }
}

/// What follows a poll after which the future is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the caller is responsible for what follows"]
pub enum Pending {
    /// The next wake queues the item.
    Idle,
    /// The caller queues the item.
    Queue,
    /// The future was abandoned. The caller owns it permanently, and drops it.
    Drop(Why),
}

/// The word. See the module.
pub struct Polled(AtomicU32);

impl Default for Polled {
    fn default() -> Polled {
        Polled::new()
    }
}

impl Polled {
    /// The word of a future that its maker is about to queue for the first poll.
    pub fn new() -> Polled {
        Polled(AtomicU32::new(WOKEN))
    }

    /// A waker asks for a poll. True: the caller queues the item, and then calls
    /// [`Polled::leave`]. False: it is queued, or the worker queues it, or the future is dropped.
    #[must_use]
    pub fn wake(&self) -> bool {
        let queues = |now: u32| now & (WOKEN | POLLING | GONE) == 0;
        let next = |now: u32| now.wrapping_add(if queues(now) { CALLER } else { 0 }) | WOKEN;
        // The update always succeeds, and returns the word that it replaced.
        let before = self.change(|now| Some(next(now))).unwrap_or(GONE);
        queues(before)
    }

    /// A waker has left the queue, or the last owner has kept the queue's memory for wakers. True:
    /// the caller releases that memory; no other thread is inside the queue.
    #[must_use]
    pub fn leave(&self) -> bool {
        // Acquire: the memory that the last owner has kept. Release: the caller's use of the queue.
        let before = self.0.fetch_sub(CALLER, Ordering::AcqRel);
        before & GONE != 0 && before & CALLERS == CALLER
    }

    /// For the last owner: whether wakers may be inside the queue. If so, it keeps the queue's
    /// memory and then calls [`Polled::leave`].
    pub fn has_callers(&self) -> bool {
        // Acquire: of the wakers that have left, their use of the queue. The count does not rise after
        // GONE, and does not fall to 0 before the last owner leaves.
        self.0.load(Ordering::Acquire) & CALLERS != 0
    }

    /// The worker begins a poll. True: it owns the future until it calls [`Polled::pending`] or
    /// [`Polled::finished`]. False: the future is dropped.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.change(|now| (now & GONE == 0).then_some(now & !WOKEN | POLLING)).is_ok()
    }

    /// The worker ends a poll, and the future needs another: at once, if `woken` or a waker asks
    /// for it.
    pub fn pending(&self, woken: bool) -> Pending {
        let end = |now: u32| match Why::of(now) {
            None if woken || now & WOKEN != 0 => now & !POLLING | WOKEN,
            None => now & !POLLING,
            Some(_) => gone(now) & !POLLING,
        };
        // The update always succeeds, and returns the word that it replaced.
        let before = self.change(|now| Some(end(now))).unwrap_or(0);
        match Why::of(before) {
            Some(why) => Pending::Drop(why),
            None if woken || before & WOKEN != 0 => Pending::Queue,
            None => Pending::Idle,
        }
    }

    /// The worker ends a poll that has finished the future. The caller owns it permanently.
    pub fn finished(&self) {
        // The update always succeeds.
        let _ = self.change(|now| Some(gone(now) & (GONE | CALLERS)));
    }

    /// Any thread abandons the future. True: the caller owns it permanently, and drops it. False:
    /// it is dropped already, or the worker drops it after its poll.
    #[must_use]
    pub fn give_up(&self, why: Why) -> bool {
        let next = |now: u32| match now {
            _ if now & GONE != 0 || Why::of(now).is_some() => None,
            _ if now & POLLING != 0 => Some(now | why.bit()),
            _ => Some(gone(now) & (GONE | CALLERS) | why.bit()),
        };
        self.change(next).is_ok_and(|before| before & POLLING == 0)
    }

    /// Replaces the word by `next` of it. Returns the word before; as an error if `next` returns
    /// `None`.
    fn change(&self, mut next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, &mut next)
    }
}

/// The word of a future that gets its last owner. While wakers are inside the queue, the last owner
/// counts as one more.
fn gone(now: u32) -> u32 {
    let own = if now & CALLERS == 0 { 0 } else { CALLER };
    now.wrapping_add(own) | GONE
}
