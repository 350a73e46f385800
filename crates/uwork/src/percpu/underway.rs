//! Calls of a batch's sink that are under way: to wait for those that have begun, and to know of one's own.
//!
//! Who takes items out of a CPU's batch is counted before the others can see that the items are gone, and until the
//! sink has returned. The counts and why they miss nobody are the engine's; here is what a thread knows of itself, and
//! what a fork makes of it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::percpu::{Side, Underway as Counts};

use crate::linux::{Linux, engine};

/// See the module.
#[derive(Default)]
pub(super) struct Underway {
    counts: Counts<Linux>,
    /// How many forks this has been through: who has begun before one is counted no more.
    forks: AtomicU32,
}

impl Underway {
    /// Counts the caller in, until what it gets is dropped. To be called with the lock of a CPU, before its batch is
    /// marked as empty.
    pub(super) fn begin(&self) -> Begun<'_> {
        Begun { side: self.counts.begin(), forks: self.forks.load(Ordering::Relaxed), of: self }
    }

    /// Waits for all that have begun. Only one thread at a time may.
    pub(super) fn wait(&self) {
        if let Some(side) = self.counts.turn() {
            let engine = engine();
            engine.blocking(|| self.counts.wait(engine.host(), side));
        }
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
    of: &'a Underway,
    side: Side,
    forks: u32,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Begun { of, side, forks } = *self;
        if forks == of.forks.load(Ordering::Relaxed) {
            of.counts.end(engine().host(), side);
        }
    }
}
