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
//! **No wake is lost.** A waker that finds the future being polled leaves WOKEN, and the end of the
//! poll is a change of the same word. A waker that finds WOKEN has released its stores to the poll
//! that comes, which begins by a change of the same word.
//!
//! **No request is lost.** A thread that abandons the future and the worker that ends its poll
//! change the same word by one instruction each. If the reason comes first, the worker finds it;
//! otherwise the other thread finds POLLING clear, and drops the future itself. Every transition
//! acquires and releases, so that the new owner of the future sees the previous owner's effects on
//! it.

use crate::sync::{AtomicU32, Ordering};

const POLLING: u32 = 1;
const CANCELLED: u32 = 2;
const REFUSED: u32 = 4;
const GONE: u32 = 8;
const WOKEN: u32 = 16;

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

    /// A waker asks for a poll. True: the caller queues the item. False: it is queued, or the worker
    /// queues it, or the future is dropped.
    #[must_use]
    pub fn wake(&self) -> bool {
        let before = self.0.fetch_or(WOKEN, Ordering::AcqRel);
        before & (WOKEN | POLLING | GONE) == 0
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
            Some(_) => now & !POLLING | GONE,
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
        self.0.swap(GONE, Ordering::AcqRel);
    }

    /// Any thread abandons the future. True: the caller owns it permanently, and drops it. False:
    /// it is dropped already, or the worker drops it after its poll.
    #[must_use]
    pub fn give_up(&self, why: Why) -> bool {
        let next = |now: u32| match now {
            _ if now & GONE != 0 || Why::of(now).is_some() => None,
            _ if now & POLLING != 0 => Some(now | why.bit()),
            _ => Some(GONE | why.bit()),
        };
        self.change(next).is_ok_and(|before| before & POLLING == 0)
    }

    /// Replaces the word by `next` of it. Returns the word before; as an error if `next` returns
    /// `None`.
    fn change(&self, mut next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, &mut next)
    }
}
