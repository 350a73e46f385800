//! Calls of a batch's sink that are under way: to wait for those that have begun, and to know of one's own.
//!
//! Who takes items out of a CPU's batch is counted before the others can see that the items are gone, and until the
//! sink has returned. There are two counts, of which newcomers use the current one. Who waits makes the other one
//! current and waits until this one is 0: for those that came before, and for no newcomer, so that it ends however
//! many come.
//!
//! Why that misses nobody: count, current one and newcomers are in one word, so a newcomer is either in the count
//! that is waited for, or came after the change. One that came before took its items before. Waits follow each other
//! (their callers hold a lock), so the count that a change makes current is 0: the wait before was for it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Which of the counts is the current one.
const CURRENT: u64 = 1 << 63;
/// Somebody waits.
const WAITING: u64 = 1 << 62;
/// Of each count. More threads than that cannot be.
const COUNT_BITS: u32 = 31;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// See the module.
#[derive(Default)]
pub(super) struct Underway {
    /// Two counts, [`CURRENT`] and [`WAITING`].
    word: AtomicU64,
    /// For the condition, which is in `word`.
    waiter: Mutex<()>,
    ended: Condvar,
    /// How many forks this has been through: who has begun before one is counted no more.
    forks: AtomicU32,
}

fn shift(word: u64) -> u32 {
    if word & CURRENT == 0 { 0 } else { COUNT_BITS }
}

fn count(word: u64, shift: u32) -> u64 {
    word >> shift & COUNT
}

impl Underway {
    /// Counts the caller in, until what it gets is dropped. To be called with the lock of a CPU, before its batch is
    /// marked as empty.
    pub(super) fn begin(&self) -> Begun<'_> {
        let mut word = self.word.load(Ordering::Relaxed);
        // Relaxed: ordered by the fence.
        while let Err(now) = self.word.compare_exchange_weak(
            word,
            word + (1 << shift(word)),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = now;
        }
        // Pairs with that of `wait`: who sees the mark, sees the count.
        fence(Ordering::Release);
        let forks = self.forks.load(Ordering::Relaxed);
        Begun { underway: self, shift: shift(word), forks }
    }

    /// Waits for all that have begun. Only one thread at a time may.
    pub(super) fn wait(&self) {
        // Pairs with that of `begin`.
        fence(Ordering::Acquire);
        // Acquire: what an ended sink has done is seen, here and below.
        let shift = shift(self.word.fetch_xor(CURRENT, Ordering::AcqRel));
        if count(self.word.load(Ordering::Acquire), shift) == 0 {
            return;
        }
        let mut waiter = self.waiter();
        self.word.fetch_or(WAITING, Ordering::Relaxed);
        while count(self.word.load(Ordering::Acquire), shift) != 0 {
            waiter = self.ended.wait(waiter).unwrap_or_else(PoisonError::into_inner);
        }
        self.word.fetch_and(!WAITING, Ordering::Relaxed);
    }

    fn waiter(&self) -> MutexGuard<'_, ()> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left of it in a child of a fork: the sinks of other threads are the parent's, and the forking
    /// thread's own, which it may be in, is counted no more. It is in no wait, as no code of a user's runs there.
    pub(super) fn child(&self) -> Underway {
        // Relaxed: there is one thread.
        let forks = self.forks.load(Ordering::Relaxed).wrapping_add(1);
        Underway { forks: AtomicU32::new(forks), ..Underway::default() }
    }

    /// Calls `f`, of which [`Underway::is_inside`] tells meanwhile.
    pub(super) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Also where `f` unwinds.
        struct Leave(*const Inside);
        impl Drop for Leave {
            fn drop(&mut self) {
                INNERMOST.set(self.0);
            }
        }
        let outer = INNERMOST.get();
        let inside = Inside { of: self, outer };
        INNERMOST.set(&raw const inside);
        let _leave = Leave(outer);
        f()
    }

    /// Whether the calling thread is inside of a call by [`Underway::inside`].
    pub(super) fn is_inside(&self) -> bool {
        let mut next = INNERMOST.get();
        // SAFETY: null, or on the stack of a caller of ours, which takes it out before it returns.
        while let Some(inside) = unsafe { next.as_ref() } {
            if ptr::eq(inside.of, self) {
                return true;
            }
            next = inside.outer;
        }
        false
    }
}

/// A sink that a thread is in, and the one around it.
struct Inside {
    of: *const Underway,
    outer: *const Inside,
}

thread_local! {
    static INNERMOST: Cell<*const Inside> = const { Cell::new(ptr::null()) };
}

/// See [`Underway::begin`].
pub(super) struct Begun<'a> {
    underway: &'a Underway,
    shift: u32,
    forks: u32,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Begun { underway, shift, forks } = *self;
        if forks != underway.forks.load(Ordering::Relaxed) {
            return;
        }
        let before = underway.word.fetch_sub(1 << shift, Ordering::AcqRel);
        // The waiter looks at the count under the lock, after it has said that it waits: either it sees that we
        // have gone, or we see that it waits.
        if before & WAITING != 0 && count(before, shift) == 1 {
            drop(underway.waiter());
            underway.ended.notify_all();
        }
    }
}
