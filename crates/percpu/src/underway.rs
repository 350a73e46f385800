//! Calls of a bundle's sink in progress: to wait for those that have begun, and to detect that a
//! thread is in one.
//!
//! A thread that takes items out of a CPU's bundle is counted before other threads can see that the
//! items are gone from it, and until the sink has returned. The engine has the counts and the proof
//! that they miss no call; this module has each thread's own nesting, and the treatment at a fork.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::percpu::{InProgress as Counts, Side};
use uwork_linux::{Linux, engine};

/// See the module.
#[derive(Default)]
pub(super) struct InProgress {
    counts: Counts<Linux>,
    /// The number of forks since creation: calls begun before a fork are no longer counted.
    forks: AtomicU32,
}

impl InProgress {
    /// Counts the caller in, until the result is dropped. Call it with the lock of a CPU held,
    /// before its bundle is marked as empty.
    pub(super) fn begin(&self) -> Begun<'_> {
        Begun { side: self.counts.begin(), forks: self.forks.load(Ordering::Relaxed), of: self }
    }

    /// Waits for all calls that have begun. Only one thread at a time may call it.
    pub(super) fn wait(&self) {
        if let Some(side) = self.counts.turn() {
            let engine = engine();
            engine.blocking(|| self.counts.wait(engine.host(), side));
        }
    }

    /// The state for a child of a fork. The sinks of other threads belong to the parent, and a call
    /// that the forking thread is in is no longer counted. That thread is in no wait, as no user
    /// code runs during a wait.
    pub(super) fn child(&self) -> InProgress {
        // Relaxed: there is one thread.
        let forks = self.forks.load(Ordering::Relaxed).wrapping_add(1);
        InProgress { forks: AtomicU32::new(forks), ..InProgress::default() }
    }

    /// Calls `f`; meanwhile [`InProgress::is_inside`] returns true on this thread.
    pub(super) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Restores the outer call, also if `f` unwinds.
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

    /// Whether the calling thread is inside a call by [`InProgress::inside`].
    pub(super) fn is_inside(&self) -> bool {
        let mut next = INNERMOST.get();
        // SAFETY: null, or on the stack of an enclosing `inside` call, which removes it before it
        // returns.
        while let Some(inside) = unsafe { next.as_ref() } {
            if ptr::eq(inside.of, self) {
                return true;
            }
            next = inside.outer;
        }
        false
    }
}

/// A sink call that a thread is in, and the enclosing one.
struct Inside {
    of: *const InProgress,
    outer: *const Inside,
}

thread_local! {
    static INNERMOST: Cell<*const Inside> = const { Cell::new(ptr::null()) };
}

/// See [`InProgress::begin`].
pub(super) struct Begun<'a> {
    of: &'a InProgress,
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
