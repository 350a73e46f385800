//! A result on its way from an item to its handle: the states of the word that they share.
//!
//! | bit | set by | meaning |
//! |---|---|---|
//! | DONE | the item, once | the result is there |
//! | ABANDONED | the handle, once | nobody will take the result |
//! | SLEEPING | the handle | a thread sleeps on the word until DONE |
//! | WAKER | the handle | a waker was left in the cell |
//! | POLLED | the handle | a waker was left at least once |
//!
//! Who clears WAKER owns the waker's cell until it sets WAKER again; the item does so only before
//! DONE. So once DONE is set, nobody but the handle touches the task, and the second of DONE and
//! ABANDONED to be set says who gives it back.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use uwork_engine::sync::assert_nothing_held;

use crate::linux::futex;

const DONE: u32 = 1;
const ABANDONED: u32 = 2;
const SLEEPING: u32 = 4;
const WAKER: u32 = 8;
/// A waker was left at least once.
const POLLED: u32 = 16;

/// See the module.
pub(crate) struct Outcome {
    state: AtomicU32,
    /// Guard: whoever cleared WAKER, or the handle while WAKER was never set. Boxed, as most
    /// handles are never polled.
    #[allow(clippy::box_collection, reason = "eight bytes instead of sixteen in every task")]
    waker: UnsafeCell<Option<Box<Waker>>>,
}

// SAFETY: the waker's cell is guarded as said there, and wakers may change threads.
unsafe impl Sync for Outcome {}

impl Outcome {
    pub(crate) fn new() -> Outcome {
        Outcome { state: AtomicU32::new(0), waker: UnsafeCell::new(None) }
    }

    pub(crate) fn is_done(&self) -> bool {
        // Acquire pairs with `complete`: the result is visible.
        self.state.load(Ordering::Acquire) & DONE != 0
    }

    /// The item's side, once, after it has left the result. True if the handle is gone: then the
    /// task is the caller's to give back. Otherwise the task may be gone when this returns.
    ///
    /// # Safety
    /// `this` is live until DONE is set.
    #[must_use]
    pub(crate) unsafe fn complete(this: *const Outcome) -> bool {
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
                    left = unsafe { (*(*waker).get()).take() };
                    now = next;
                }
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        if now & SLEEPING != 0 {
            futex::wake(state);
        }
        if let Some(waker) = left {
            assert_nothing_held("a waker");
            waker.wake();
        }
        now & ABANDONED != 0
    }

    /// The handle's side: nobody will take the result. True if the item is done: then the task is
    /// the caller's to give back. Otherwise the item's side does so.
    #[must_use]
    pub(crate) fn abandon(&self) -> bool {
        // Acquire: everything that the item did to the task. Release: what the handle did.
        self.state.fetch_or(ABANDONED, Ordering::AcqRel) & DONE != 0
    }

    /// The handle's side: sleeps until the result is there.
    pub(crate) fn wait(&self) {
        let mut now = self.state.load(Ordering::Acquire);
        while now & DONE == 0 {
            if now & SLEEPING == 0 {
                now = self.state.fetch_or(SLEEPING, Ordering::Acquire) | SLEEPING;
                continue;
            }
            futex::wait(&self.state, now, None);
            now = self.state.load(Ordering::Acquire);
        }
    }

    /// The handle's side: whether the result is there; if not, `context` is woken when it is.
    pub(crate) fn poll_done(&self, context: &Context<'_>) -> bool {
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
        // Where WAKER was set, clearing it made the cell ours. Where it was not, either it never
        // was, and the cell is the handle's, or the item has cleared it and is about to set DONE.
        if now & WAKER == 0 && !self.is_first_poll() {
            while !self.is_done() {
                std::thread::yield_now();
            }
            return true;
        }
        // SAFETY: ours, as said.
        let old = unsafe { (*self.waker.get()).replace(waker) };
        let is_done = self.state.fetch_or(WAKER | POLLED, Ordering::AcqRel) & DONE != 0;
        // Once the new one is in its place: dropping is user code and may unwind.
        drop(old);
        is_done
    }

    fn is_first_poll(&self) -> bool {
        self.state.load(Ordering::Relaxed) & POLLED == 0
    }
}
