//! The delivery of a result from an item to its handle: the states of the word that they share.
//!
//! | bit | set by | meaning |
//! |---|---|---|
//! | DONE | the item, once | the result is delivered |
//! | ABANDONED | the handle, once, before it has seen DONE | the handle does not take the result |
//! | SLEEPING | the handle | a thread sleeps on the word until DONE |
//! | WAKER | the handle | the cell holds a waker |
//! | POLLED | the handle | the cell has held a waker |
//!
//! The side that clears WAKER owns the waker's cell until the handle sets WAKER again; the item
//! clears it only before it sets DONE. So from DONE on only the handle accesses the task, and frees
//! it. If ABANDONED is set before DONE, the item's side frees it.

use std::task::{Context, Waker};

use crate::words::futex::Futex;
use crate::words::sync::{AtomicU32, Ordering, UnsafeCell, assert_nothing_held};

const DONE: u32 = 1;
const ABANDONED: u32 = 2;
const SLEEPING: u32 = 4;
const WAKER: u32 = 8;
const POLLED: u32 = 16;

/// See the module.
pub struct Outcome {
    state: AtomicU32,
    /// Guard: the side that cleared WAKER, or the handle while WAKER was never set. Boxed, as most
    /// handles are never polled.
    #[allow(clippy::box_collection, reason = "eight bytes instead of sixteen in every task")]
    pub(crate) waker: UnsafeCell<Option<Box<Waker>>>,
}

// SAFETY: the cell's guard is documented at the field, and wakers may change threads.
unsafe impl Sync for Outcome {}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome::new()
    }
}

impl Outcome {
    /// The word of an item that has not ended.
    pub fn new() -> Outcome {
        Outcome { state: AtomicU32::new(0), waker: UnsafeCell::new(None) }
    }

    /// Whether the result is delivered. If true, it is visible to the caller.
    pub fn is_done(&self) -> bool {
        // Acquire pairs with `complete`: the result is visible.
        self.state.load(Ordering::Acquire) & DONE != 0
    }

    /// The item's side, once, after it has stored the result. True if the handle was abandoned:
    /// then the caller frees the task. Otherwise the task may be freed by the time this returns.
    ///
    /// # Safety
    /// `this` is live until DONE is set.
    #[must_use]
    pub unsafe fn complete(this: *const Outcome, futex: &impl Futex) -> bool {
        // SAFETY: live until DONE is set; only the address is used after that.
        let (state, waker) = unsafe { (&raw const (*this).state, &raw const (*this).waker) };
        let mut left = None;
        // SAFETY: as above.
        let mut now = unsafe { (*state).load(Ordering::Relaxed) };
        loop {
            let next = if now & WAKER != 0 { now & !WAKER } else { now | DONE };
            // SAFETY: as above. Release: the result. Acquire: the waker, and an abandoned task.
            let exchanged = unsafe {
                (*state).compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed)
            };
            match exchanged {
                Ok(_) if now & WAKER != 0 => {
                    // SAFETY: we cleared WAKER, so the cell is ours; DONE is not set yet.
                    left = unsafe { (*waker).with_mut(|cell| (*cell).take()) };
                    now = next;
                }
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        if now & SLEEPING != 0 {
            futex.wake(state);
        }
        if let Some(waker) = left {
            assert_nothing_held("a waker");
            waker.wake();
        }
        now & ABANDONED != 0
    }

    /// The handle's side: it will not take the result. True if the item is done: then the caller
    /// frees the task. Otherwise the item's side does so.
    #[must_use]
    pub fn abandon(&self) -> bool {
        // The handle of a done item, such as one that was joined, needs no locked instruction.
        // Acquire: everything that the item did to the task. Release: what the handle did.
        self.is_done() || self.state.fetch_or(ABANDONED, Ordering::AcqRel) & DONE != 0
    }

    /// The handle's side: sleeps until the result is delivered. `futex` sets no limit.
    pub fn wait(&self, futex: &impl Futex) {
        let mut now = self.state.load(Ordering::Acquire);
        while now & DONE == 0 {
            if now & SLEEPING == 0 {
                now = self.state.fetch_or(SLEEPING, Ordering::Acquire) | SLEEPING;
                continue;
            }
            // The futex compares the whole word. A DONE that is set after SLEEPING was set finds
            // SLEEPING and wakes; a DONE before the wait begins changes the word, and the wait returns.
            let _ = futex.wait(&self.state, now);
            now = self.state.load(Ordering::Acquire);
        }
    }

    /// The handle's side: whether the result is delivered; if not, the delivery wakes `context`.
    /// `relax` lets the item's side continue, which is a few instructions away from the delivery.
    pub fn poll_done(&self, context: &Context<'_>, relax: impl Fn(u32)) -> bool {
        if self.is_done() {
            return true;
        }
        // Before the cell is taken back: cloning is user code and may unwind.
        let waker = Box::new(context.waker().clone());
        // Take the cell back, if the item has not.
        let now = self.state.fetch_and(!WAKER, Ordering::Acquire);
        if now & DONE != 0 {
            return true;
        }
        // WAKER was set: clearing it made the cell ours. It was clear: either it was never set, and the
        // cell is the handle's, or the item has cleared it and is about to set DONE.
        if now & WAKER == 0 && now & POLLED != 0 {
            let mut round = 0;
            while !self.is_done() {
                relax(round);
                round += 1;
            }
            return true;
        }
        // SAFETY: the cell is the handle's, as explained above.
        let old = self.waker.with_mut(|cell| unsafe { (*cell).replace(waker) });
        // Release: the waker in the cell. Acquire: the result.
        let is_done = self.state.fetch_or(WAKER | POLLED, Ordering::AcqRel) & DONE != 0;
        // Once the new one is in its place: dropping is user code and may unwind.
        drop(old);
        is_done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// For an outcome that no thread waits for.
    struct Unused;

    impl Futex for Unused {
        fn wait(&self, _word: &AtomicU32, _expected: u32) -> bool {
            unreachable!("the result is delivered")
        }

        fn wake(&self, _word: *const AtomicU32) {
            unreachable!("no thread sleeps")
        }
    }

    // Catches: a locked instruction in the drop of each handle that was joined.
    #[test]
    fn the_handle_of_a_done_item_writes_nothing() {
        let outcome = Outcome::new();
        // SAFETY: the outcome is live.
        assert!(!unsafe { Outcome::complete(&raw const outcome, &Unused) });
        outcome.wait(&Unused);
        assert!(outcome.abandon());
        assert_eq!(outcome.state.load(Ordering::Relaxed), DONE);
    }
}
