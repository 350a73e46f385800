//! Which thread has a future: the worker that polls it, or the thread that gives it up.
//!
//! A future is polled as a work item, so polls never overlap. Any thread may want to give it up at any
//! time: its handle cancels it, a wake-up is refused. The thread that has the future at the end drops it
//! and completes the task, once.
//!
//! | bit | set by | meaning |
//! |---|---|---|
//! | POLLING | the worker | the worker has the future |
//! | CANCELLED, REFUSED | the first thread that gives up | the future is to be dropped, and why |
//! | GONE | the thread that drops it, once | that thread has the future, for good |
//!
//! | GONE | POLLING | why | state |
//! |---|---|---|---|
//! | 0 | 0 | 0 | between polls: nothing has the future |
//! | 0 | 1 | 0 | it is polled |
//! | 0 | 1 | 1 | it is polled, and given up by the worker at the end of the poll |
//! | 0 | 0 | 1 | does not occur: the thread that sets a reason between polls sets GONE with it |
//! | 1 | 0 | any | it is dropped, or about to be |
//! | 1 | 1 | any | does not occur |
//!
//! **No request is lost.** A thread that gives up and the worker that ends its poll change the same word
//! by one instruction each. If the reason comes first, the worker finds it; otherwise the other thread
//! finds POLLING clear, and drops the future itself. Every transition acquires and releases, so that the
//! thread that gets the future sees what the last one did to it.

use crate::sync::{AtomicU32, Ordering};

const POLLING: u32 = 1;
const CANCELLED: u32 = 2;
const REFUSED: u32 = 4;
const GONE: u32 = 8;

/// Why a future is given up.
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

/// The word. See the module.
pub struct Polled(AtomicU32);

impl Default for Polled {
    fn default() -> Polled {
        Polled::new()
    }
}

impl Polled {
    /// Of a future that has not been polled.
    pub fn new() -> Polled {
        Polled(AtomicU32::new(0))
    }

    /// The worker, at the start of a poll. True: it has the future until it calls [`Polled::pending`] or
    /// [`Polled::finished`]. False: the future is gone.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.change(|now| (now & GONE == 0).then_some(now | POLLING)).is_ok()
    }

    /// The worker: the poll is over, and the future wants another. A reason: the future is to be given
    /// up, and the caller has it for good.
    #[must_use]
    pub fn pending(&self) -> Option<Why> {
        let end = |now: u32| match Why::of(now) {
            None => now & !POLLING,
            Some(_) => now & !POLLING | GONE,
        };
        // It always succeeds, with the word that the end replaced.
        Why::of(self.change(|now| Some(end(now))).unwrap_or(0))
    }

    /// The worker: the poll has finished the future, and the caller has it for good.
    pub fn finished(&self) {
        self.0.swap(GONE, Ordering::AcqRel);
    }

    /// Any thread: the future is to be given up. True: the caller has the future for good. False: it is
    /// gone, or the worker gives it up after its poll.
    #[must_use]
    pub fn give_up(&self, why: Why) -> bool {
        let next = |now: u32| match now {
            _ if now & GONE != 0 || Why::of(now).is_some() => None,
            _ if now & POLLING != 0 => Some(now | why.bit()),
            _ => Some(GONE | why.bit()),
        };
        self.change(next).is_ok_and(|before| before & POLLING == 0)
    }

    /// Replaces the word by what `next` makes of it. The word before, or an error if that is nothing.
    fn change(&self, mut next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, &mut next)
    }
}
