//! The locks and detached items that the calling thread holds, in builds with debug assertions:
//! locks by rank.
//!
//! An item is detached between leaving a list (or becoming pending) and being put into a list,
//! started or released. During those instructions every other operation on it spins, so no user
//! code may run then.

mod order;

use std::cell::Cell;

use super::Rank;
use order::{MAY_CALL_UNDER, MAY_WAKE_UNDER, RANKS};

/// A thread's record. A host that runs several of its threads on one system thread switches records
/// with [`exchange`].
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// Locks, by rank.
    locks: [u16; RANKS],
    /// Detached items.
    items: i32,
    /// Whether a fork is taking every lock, several of a rank.
    forks: bool,
}

impl Holding {
    /// The record of a thread that holds nothing.
    pub const NOTHING: Holding = Holding { locks: [0; RANKS], items: 0, forks: false };

    fn ranks(&self) -> u32 {
        let bits = self.locks.iter().enumerate();
        bits.fold(0, |held, (rank, &count)| held | u32::from(count > 0) << rank)
    }
}

thread_local! {
    static HOLDING: Cell<Holding> = const { Cell::new(Holding::NOTHING) };
}

fn change(f: impl FnOnce(&mut Holding)) {
    let mut holding = HOLDING.get();
    f(&mut holding);
    HOLDING.set(holding);
}

/// Replaces the calling thread's record, and returns the previous one.
pub fn exchange(holding: Holding) -> Holding {
    HOLDING.replace(holding)
}

/// The rank of a lock.
#[derive(Clone, Copy)]
pub(super) struct Ranked(Rank);

/// A lock that is held.
pub(super) struct Held(Rank);

impl Ranked {
    pub(super) fn new(rank: Rank) -> Ranked {
        Ranked(rank)
    }

    /// Checks the order and records the lock, before the calling thread takes it.
    #[track_caller]
    pub(super) fn take(self) -> Held {
        let (rank, holding) = (self.0, HOLDING.get());
        let wrong = holding.ranks() & !rank.may_be_under();
        assert!(
            wrong == 0 || holding.forks || std::thread::panicking(),
            "a lock of rank {rank:?} is taken under others: {holding:?}"
        );
        change(|holding| holding.locks[rank as usize] += 1);
        Held(rank)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        change(|holding| holding.locks[self.0 as usize] -= 1);
    }
}

/// Marks that the calling thread takes every lock, for a fork; or that it has ended that.
pub(crate) fn take_all(forks: bool) {
    change(|holding| holding.forks = forks);
}

/// Records that the calling thread has detached an item.
#[inline]
pub(crate) fn item_detached() {
    change(|holding| holding.items += 1);
}

/// Records that the calling thread holds one detached item less.
#[inline]
pub(crate) fn item_attached() {
    change(|holding| holding.items -= 1);
}

/// Records that the calling thread moves an item.
#[inline]
pub(crate) fn item_moves(was_detached: impl FnOnce() -> bool, is_detached: bool) {
    match (was_detached(), is_detached) {
        (true, false) => item_attached(),
        (false, true) => item_detached(),
        _ => {}
    }
}

/// Checks that user code may be called.
///
/// # Panics
/// In builds with debug assertions, if the calling thread holds a lock of the engine or a detached
/// item.
#[inline]
#[track_caller]
pub fn assert_nothing_held(user_code: &str) {
    let holding = HOLDING.get();
    assert!(
        holding.ranks() & !MAY_CALL_UNDER == 0 && holding.items == 0 || std::thread::panicking(),
        "{user_code} is called while something is held: {holding:?}"
    );
}

/// Checks that a wake may be sent.
#[inline]
#[track_caller]
pub(crate) fn assert_may_wake() {
    let holding = HOLDING.get();
    assert!(
        holding.ranks() & !MAY_WAKE_UNDER == 0 || std::thread::panicking(),
        "a wake is sent under a lock: {holding:?}"
    );
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::words::sync::{Lock, Rank, Right};

    /// Whether `f` panics, on a thread that holds nothing.
    fn panics(f: impl FnOnce() + Send) -> bool {
        std::thread::scope(|scope| {
            let caught = || catch_unwind(AssertUnwindSafe(f)).is_err();
            scope.spawn(caught).join().expect("it is caught")
        })
    }

    #[test]
    fn a_lock_taken_out_of_order_panics() {
        let (pwq, slot) = (Lock::ranked(Rank::Pwq, ()), Lock::ranked(Rank::Slot, ()));
        let (timers, last) = (Lock::ranked(Rank::Timers, ()), Lock::new(()));
        assert!(!panics(|| drop((pwq.lock(), slot.lock(), last.lock()))));
        assert!(panics(|| drop((slot.lock(), pwq.lock()))));
        assert!(panics(|| drop((pwq.lock(), timers.lock()))));
        let other = Lock::ranked(Rank::Pwq, ());
        assert!(panics(|| drop((pwq.lock(), other.lock()))));
        let fork = || {
            take_all(true);
            drop((pwq.lock(), other.lock(), timers.lock()));
            take_all(false);
        };
        assert!(!panics(fork));
    }

    #[test]
    fn a_right_counts_as_a_lock() {
        let (pool, timers) = (Lock::ranked(Rank::Pool, ()), Lock::ranked(Rank::Timers, ()));
        assert!(!panics(|| drop((Right::ranked(Rank::Firing), timers.lock()))));
        assert!(panics(|| drop((Right::ranked(Rank::Firing), pool.lock()))));
        assert!(panics(|| {
            let _right = Right::ranked(Rank::Firing);
            assert_may_wake();
        }));
        assert!(panics(|| {
            let _right = Right::ranked(Rank::Firing);
            assert_nothing_held("a test");
        }));
    }

    #[test]
    fn a_wake_under_a_lock_panics() {
        let (pool, tunable) = (Lock::ranked(Rank::Pool, ()), Lock::ranked(Rank::Tunable, ()));
        assert!(!panics(assert_may_wake));
        let wake_under = |lock: &Lock<()>| {
            let _guard = lock.lock();
            assert_may_wake();
        };
        assert!(panics(|| wake_under(&pool)));
        assert!(!panics(|| wake_under(&tunable)));
    }

    #[test]
    fn user_code_under_a_lock_or_with_a_detached_item_panics() {
        let lock = Lock::new(());
        assert!(!panics(|| assert_nothing_held("a test")));
        assert!(panics(|| {
            let _guard = lock.lock();
            assert_nothing_held("a test");
        }));
        assert!(panics(|| {
            item_detached();
            assert_nothing_held("a test");
        }));
        assert!(!panics(|| {
            item_detached();
            item_attached();
            assert_nothing_held("a test");
        }));
    }
}
