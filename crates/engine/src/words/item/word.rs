//! The state word of a work item.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `PENDING` | the item is queued, armed, or held for an instant by its owner |
//! | 1..=11 | disable depth | how many `disable` calls have no `enable` yet |
//! | 12..=27 | runner | the slot that last ran the item, plus one; 0: never ran |
//! | 28..=63 | run | the number of that run in that slot, modulo 2^36 |
//!
//! **Ownership.** A `fetch_or(PENDING)` that finds the bit clear makes the caller the owner. Only
//! the owner changes any other bit, and only the owner clears `PENDING`. Every other thread may do
//! nothing but `fetch_or(PENDING)`, which leaves an owned word unchanged. So an owner may compute a
//! new word from the value it took and `swap` it in: no other thread can have changed it. Closures
//! without a handle and futures have one submitter at a time, which the library determines; they
//! are acquired by a plain store.
//!
//! **Ordering.** Every transition is a read-modify-write with acquire and release, so all of them
//! form a single chain. Consider a `queue` that finds `PENDING` set and returns false. Its
//! `fetch_or` releases the caller's stores into the chain. The `start` that clears the bit comes
//! later in the chain and acquires from it, so the next run sees those stores.
//!
//! | PENDING | depth | runner | state |
//! |---|---|---|---|
//! | 0 | 0 | 0 | idle, never ran |
//! | 0 | 0 | r | idle, or running in slot r if that slot's current run is the run named here |
//! | 0 | d | any | disabled; may still be running |
//! | 1 | 0 | any | pending (and may be running at the same time), or held for an instant |
//! | 1 | d | any | held for an instant by a `queue`, `disable`, `enable` or `cancel`; never in a list |

use crate::words::sync::{
    AtomicU64, Ordering, const_unless_modelled, item_attached, item_detached,
};

const PENDING: u64 = 1;
const DEPTH_SHIFT: u32 = 1;
const DEPTH_BITS: u32 = 11;
const RUNNER_SHIFT: u32 = DEPTH_SHIFT + DEPTH_BITS;
const RUNNER_BITS: u32 = 16;
const RUN_SHIFT: u32 = RUNNER_SHIFT + RUNNER_BITS;
const RUN_BITS: u32 = 36;
const _: () = assert!(RUN_SHIFT + RUN_BITS == 64);

const DEPTH_MASK: u64 = (1 << DEPTH_BITS) - 1;
const RUNNER_MASK: u64 = (1 << RUNNER_BITS) - 1;
/// Run numbers are compared modulo 2^36.
pub(crate) const RUN_MASK: u64 = (1 << RUN_BITS) - 1;
/// The greatest number of `disable` calls without a matching `enable`.
pub const DISABLE_DEPTH_MAX: u32 = DEPTH_MASK as u32;
/// The most run slots: their count, so ids are smaller. The field that names one holds id + 1.
pub(crate) const SLOTS_MAX: u32 = RUNNER_MASK as u32 - 1;

/// A run: a slot, and the number of a run in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunId {
    /// The slot's id.
    pub(crate) slot: u32,
    /// The run's number there, modulo 2^36.
    pub(crate) run: u64,
}

/// The word as its owner found it.
#[derive(Clone, Copy, Debug)]
#[must_use = "an owner must put the item somewhere or give the word back"]
pub(crate) struct Owned(u64);

impl Owned {
    /// How many `disable` calls have no `enable` yet.
    pub(crate) fn disable_depth(self) -> u32 {
        ((self.0 >> DEPTH_SHIFT) & DEPTH_MASK) as u32
    }

    /// The item's last run, if it ever ran.
    #[inline]
    pub(crate) fn last_run(self) -> Option<RunId> {
        last_run(self.0)
    }

    /// Whether the item was never disabled and never ran, so that a submitter needs no further
    /// check.
    #[inline]
    pub(crate) fn is_fresh(self) -> bool {
        self.0 & !PENDING == 0
    }
}

#[inline]
fn last_run(word: u64) -> Option<RunId> {
    let runner = (word >> RUNNER_SHIFT) & RUNNER_MASK;
    (runner != 0).then(|| RunId { slot: runner as u32 - 1, run: word >> RUN_SHIFT })
}

/// The outcome of trying to become the owner.
#[must_use = "an owner must put the item somewhere or give the word back"]
pub(crate) enum Acquire {
    /// The caller is the owner now.
    Owned(Owned),
    /// Another thread is.
    Pending,
}

/// The outcome of a change of the disable depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepthChange {
    /// The new depth.
    Now(u32),
    /// The depth is at its limit (or at zero, for an enable) and stays there.
    Refused,
}

/// The state word.
pub(crate) struct Word(AtomicU64);

impl Word {
    const_unless_modelled! {
        pub(crate) fn new() -> Self {
            Word(AtomicU64::new(0))
        }
    }

    /// Tries to become the owner.
    #[inline]
    pub(crate) fn acquire(&self) -> Acquire {
        let found = self.0.fetch_or(PENDING, Ordering::AcqRel);
        if found & PENDING != 0 {
            return Acquire::Pending;
        }
        item_detached();
        Acquire::Owned(Owned(found | PENDING))
    }

    /// Makes the caller the owner of an item that no other thread may acquire, as if it was new.
    #[inline]
    pub(crate) fn acquire_unshared(&self) -> Owned {
        // Relaxed, and no read-modify-write: no other thread changes the word. The push that makes
        // the item reachable for its worker releases this store.
        self.0.store(PENDING, Ordering::Relaxed);
        item_detached();
        Owned(PENDING)
    }

    /// The owner's view of a word that it already owns (it came off a list).
    #[track_caller]
    pub(crate) fn owned(&self) -> Owned {
        // Relaxed: only the owner changes the word, and the caller is the owner.
        Owned(self.0.load(Ordering::Relaxed))
    }

    /// The owner gives the item up, unchanged and not pending.
    #[track_caller]
    pub(crate) fn release(&self, owned: Owned) {
        item_attached();
        self.0.swap(owned.0 & !PENDING, Ordering::AcqRel);
    }

    /// The owner starts the item: clears `PENDING` and records the run.
    #[inline]
    pub(crate) fn start(&self, id: RunId) {
        // Acquire pairs with every `fetch_or` that found the bit set: the run sees the stores made
        // before it. Release publishes the slot's RUNNING state, stored before this, along with the
        // name of the run. A thread that reads the name therefore sees that state or a later one.
        let word = ((u64::from(id.slot) + 1) << RUNNER_SHIFT) | ((id.run & RUN_MASK) << RUN_SHIFT);
        item_attached();
        self.0.swap(word, Ordering::AcqRel);
    }

    /// The owner raises the disable depth and gives the item up.
    pub(crate) fn release_disabled(&self, owned: Owned) -> DepthChange {
        let depth = owned.disable_depth();
        if depth == DISABLE_DEPTH_MAX {
            self.release(owned);
            return DepthChange::Refused;
        }
        self.release(Owned(owned.0 + (1 << DEPTH_SHIFT)));
        DepthChange::Now(depth + 1)
    }

    /// The owner lowers the disable depth and gives the item up.
    pub(crate) fn release_enabled(&self, owned: Owned) -> DepthChange {
        let depth = owned.disable_depth();
        if depth == 0 {
            self.release(owned);
            return DepthChange::Refused;
        }
        self.release(Owned(owned.0 - (1 << DEPTH_SHIFT)));
        DepthChange::Now(depth - 1)
    }

    /// Whether the item looks as if it was never disabled and never ran. A hint for a caller that is
    /// not the owner.
    pub(crate) fn looks_fresh(&self) -> bool {
        Owned(self.0.load(Ordering::Relaxed)).is_fresh()
    }

    /// Whether the item is pending or held at this moment.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) & PENDING != 0
    }

    /// How many `disable` calls have no `enable` at this moment.
    pub(crate) fn disable_depth(&self) -> u32 {
        Owned(self.0.load(Ordering::Acquire)).disable_depth()
    }

    /// Whether the item is pending, and its last run, in a single load.
    pub(crate) fn snapshot(&self) -> (bool, Option<RunId>) {
        let word = self.0.load(Ordering::Acquire);
        (word & PENDING != 0, last_run(word))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take(word: &Word) -> Owned {
        match word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => panic!("expected to become the owner"),
        }
    }

    #[test]
    fn a_pending_word_has_one_owner() {
        let word = Word::new();
        let owned = take(&word);
        assert!(owned.is_fresh());
        assert!(matches!(word.acquire(), Acquire::Pending));
        word.release(owned);
        assert!(!word.is_pending());
    }

    #[test]
    fn start_records_the_run_and_keeps_nothing_else() {
        let word = Word::new();
        let _ = take(&word);
        word.start(RunId { slot: SLOTS_MAX, run: RUN_MASK + 5 });
        assert_eq!(word.snapshot(), (false, Some(RunId { slot: SLOTS_MAX, run: 4 })));
        assert_eq!(word.disable_depth(), 0);
    }

    #[test]
    fn depth_is_bounded_both_ways_and_keeps_the_run() {
        let word = Word::new();
        let _ = take(&word);
        word.start(RunId { slot: 3, run: 9 });
        assert_eq!(word.release_enabled(take(&word)), DepthChange::Refused);
        for depth in 1..=DISABLE_DEPTH_MAX {
            assert_eq!(word.release_disabled(take(&word)), DepthChange::Now(depth));
        }
        assert_eq!(word.release_disabled(take(&word)), DepthChange::Refused);
        assert_eq!(word.release_enabled(take(&word)), DepthChange::Now(DISABLE_DEPTH_MAX - 1));
        assert_eq!(word.snapshot(), (false, Some(RunId { slot: 3, run: 9 })));
    }
}
