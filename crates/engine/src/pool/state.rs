//! A pool's counters in one word, so that one load decides whether a worker must be woken.
//!
//! | bits | name |
//! |---|---|
//! | 0..=15 | running |
//! | 16..=31 | idle |
//! | 32..=47 | workers |
//! | 48 | waking: a worker is on its way up |
//! | 49 | retired: no queue uses the pool; workers exit |
//! | 50 | kept: a parked worker, the keeper, sleeps no longer than until the next timer |

use uwork_policy::concurrency::{PoolCounts, need_more_workers};

use crate::words::sync::{AtomicU64, Ordering};

const RUNNING: u64 = 1;
const IDLE: u64 = 1 << 16;
const WORKERS: u64 = 1 << 32;
const WAKING: u64 = 1 << 48;
const RETIRED: u64 = 1 << 49;
const KEPT: u64 = 1 << 50;
const COUNT: u64 = 0xffff;
/// The greatest number of workers of one pool.
pub(crate) const WORKERS_MAX: u32 = COUNT as u32 - 1;

/// The counters. Every change and every load is SeqCst: each is one half of a handshake with an
/// inbox (see README.md).
pub(crate) struct PoolState(AtomicU64);

fn counts(word: u64) -> PoolCounts {
    PoolCounts {
        running: (word & COUNT) as u32,
        idle: ((word / IDLE) & COUNT) as u32,
        workers: ((word / WORKERS) & COUNT) as u32,
        waking: word & WAKING != 0,
        kept: word & KEPT != 0,
    }
}

impl PoolState {
    pub(crate) fn new() -> PoolState {
        PoolState(AtomicU64::new(0))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn counts(&self) -> PoolCounts {
        counts(self.0.load(Ordering::SeqCst))
    }

    /// Claims the right to bring one more worker up, if the policy wants one.
    #[inline]
    #[must_use]
    #[track_caller]
    pub(crate) fn begin_wake(&self, target: u32) -> bool {
        let mut word = self.0.load(Ordering::SeqCst);
        while need_more_workers(counts(word), target) {
            match self.0.compare_exchange_weak(
                word,
                word | WAKING,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Gives up a claim that failed.
    #[track_caller]
    pub(crate) fn abort_wake(&self) {
        self.0.fetch_and(!WAKING, Ordering::SeqCst);
    }

    /// Counts a worker that is being spawned, or moves here from another pool.
    #[track_caller]
    pub(crate) fn add_worker(&self) {
        self.0.fetch_add(WORKERS, Ordering::SeqCst);
    }

    /// Takes an idle worker off the stack's count: it was picked for a claimed wake.
    #[track_caller]
    pub(crate) fn leave_idle(&self) {
        self.0.fetch_sub(IDLE, Ordering::SeqCst);
    }

    /// The worker on its way up has arrived. It scans the lists after this, because submitters that
    /// read WAKING before this rely on its scan.
    #[track_caller]
    pub(crate) fn arrive(&self) {
        self.0.fetch_sub(WAKING - RUNNING, Ordering::SeqCst);
    }

    /// A running worker parks on the idle stack. Returns the counters after the change.
    #[track_caller]
    pub(crate) fn running_to_idle(&self) -> PoolCounts {
        let before = self.0.fetch_add(IDLE - RUNNING, Ordering::SeqCst);
        debug_assert!(counts(before).running > 0, "a worker parks that does not count");
        counts(before.wrapping_add(IDLE - RUNNING))
    }

    /// An idle worker wakes by itself and runs.
    #[track_caller]
    pub(crate) fn idle_to_running(&self) {
        self.0.fetch_sub(IDLE - RUNNING, Ordering::SeqCst);
    }

    /// A running worker waits inside an item. Pools of several workers go through
    /// [`super::Pool::block`].
    #[track_caller]
    pub(crate) fn block(&self) {
        let before = self.0.fetch_sub(RUNNING, Ordering::SeqCst);
        debug_assert!(counts(before).running > 0, "a worker blocks that does not count");
    }

    /// The worker is back from its wait.
    #[track_caller]
    pub(crate) fn unblock(&self) {
        self.0.fetch_add(RUNNING, Ordering::SeqCst);
    }

    /// An idle worker exits, or moves to another pool.
    #[track_caller]
    pub(crate) fn exit_idle(&self) {
        self.0.fetch_sub(IDLE + WORKERS, Ordering::SeqCst);
    }

    /// The worker that was being spawned does not come.
    #[track_caller]
    pub(crate) fn abort_worker(&self) {
        self.0.fetch_sub(WORKERS, Ordering::SeqCst);
    }

    /// In a child after a fork: no workers.
    #[track_caller]
    pub(crate) fn forget(&self) {
        self.0.fetch_and(RETIRED, Ordering::SeqCst);
    }

    /// Sets whether a parked worker is the keeper. Under the pool lock.
    #[track_caller]
    pub(crate) fn set_kept(&self, kept: bool) {
        if kept {
            self.0.fetch_or(KEPT, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!KEPT, Ordering::SeqCst);
        }
    }

    #[track_caller]
    pub(crate) fn set_retired(&self, retired: bool) {
        if retired {
            self.0.fetch_or(RETIRED, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!RETIRED, Ordering::SeqCst);
        }
    }

    #[track_caller]
    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(Ordering::SeqCst) & RETIRED != 0
    }
}
