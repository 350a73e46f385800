//! The gate of a queue: whose submissions the queue accepts.
//!
//! | bits | name | the queue accepts |
//! |---|---|---|
//! | none | | all items |
//! | 0..=28 | drains in progress, a count | what its own items submit |
//! | 29 | SEALED: the engine is shut down | nothing |
//! | 30 | SHUT: the engine shuts down | what items of any queue submit |
//! | 31 | CLOSED: the queue was destroyed | what its own items submit |
//!
//! Of several bits the strictest rule holds: SEALED, then CLOSED and drains, then SHUT. The marks 29
//! to 31 are permanent. SEALED is never set without SHUT.

use crate::words::dump;
use crate::words::sync::{AtomicU32, Ordering};

const DRAINING: u32 = 1;
const CLOSED: u32 = 1 << 31;
/// The engine shuts down.
pub(crate) const SHUT: u32 = 1 << 30;
/// The engine is shut down.
pub(crate) const SEALED: u32 = 1 << 29;
const PERMANENT: u32 = CLOSED | SHUT | SEALED;

/// See the module.
pub(crate) struct Gate(AtomicU32);

/// Whose submissions a gate admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admits {
    All,
    ItemsOfAnyQueue,
    ItemsOfTheQueue,
    Nothing,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Whether the queue accepts all items. A hint, which is enough for a submission: a drain waits
    /// for the items that were enqueued before it, and a submitter that races with its start may
    /// fall on either side.
    #[inline(always)]
    pub(super) fn looks_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(super) fn admits(&self) -> Admits {
        match self.0.load(Ordering::SeqCst) {
            0 => Admits::All,
            marks if marks & SEALED != 0 => Admits::Nothing,
            SHUT => Admits::ItemsOfAnyQueue,
            _ => Admits::ItemsOfTheQueue,
        }
    }

    /// Whether the queue was destroyed, or its engine shuts down: it arms no timers then.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & PERMANENT != 0
    }

    /// Admits only the queue's own items, until [`Gate::end_drain`]. Calls are counted.
    pub(super) fn begin_drain(&self) {
        self.0.fetch_add(DRAINING, Ordering::SeqCst);
    }

    pub(super) fn end_drain(&self) {
        self.0.fetch_sub(DRAINING, Ordering::SeqCst);
    }

    /// Admits only the queue's own items from here on, permanently.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Sets marks of a shutdown, permanently: `SHUT`, `SEALED`.
    pub(crate) fn shut(&self, marks: u32) {
        debug_assert!(marks & SHUT != 0 && marks & !(SHUT | SEALED) == 0);
        self.0.fetch_or(marks, Ordering::SeqCst);
    }

    /// In a forked child: ends the drains that the parent began.
    pub(super) fn forget_drains(&self) {
        self.0.fetch_and(PERMANENT, Ordering::SeqCst);
    }

    pub(crate) fn snapshot(&self) -> dump::Gate {
        match self.0.load(Ordering::SeqCst) {
            0 => dump::Gate::Open,
            marks if marks & SEALED != 0 => dump::Gate::Sealed,
            marks if marks & PERMANENT != 0 => dump::Gate::Closed,
            _ => dump::Gate::Draining,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_of_several_rules_holds() {
        let gate = Gate::new();
        let is = |admits, shown| {
            assert_eq!((gate.admits(), gate.snapshot()), (admits, shown));
            assert_eq!(gate.looks_open(), admits == Admits::All);
        };
        is(Admits::All, dump::Gate::Open);
        gate.begin_drain();
        gate.begin_drain();
        gate.end_drain();
        is(Admits::ItemsOfTheQueue, dump::Gate::Draining);
        assert!(!gate.is_closed());
        gate.shut(SHUT);
        is(Admits::ItemsOfTheQueue, dump::Gate::Closed);
        gate.forget_drains();
        is(Admits::ItemsOfAnyQueue, dump::Gate::Closed);
        gate.close();
        is(Admits::ItemsOfTheQueue, dump::Gate::Closed);
        gate.shut(SHUT | SEALED);
        is(Admits::Nothing, dump::Gate::Sealed);
        assert!(gate.is_closed());
    }
}
