//! What a pool knows of its undeclared blocks. Hints, all of them: they decide how often the watcher
//! samples the workers and how long it waits with a replacement, never whether an item runs.

use uwork_policy::blocking::{patience_ns, usual_block_ns};

use super::NO_SLOT;
use crate::words::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How long more blocks are expected after one was found.
const EXPECT_NS: u64 = 1_000_000_000;
/// How long a block is taken to last before any was measured: the first worker that blocks is
/// replaced at once.
const UNKNOWN_BLOCK_NS: u64 = 1_000_000;
/// After so many blocks in a row that were presumed, no other ones are expected.
const PRESUMED_IN_ROW: u32 = 32;
/// For this long after a presumed block more of them are expected.
const PRESUMES_NS: u64 = 10_000_000;

/// See the module.
pub(crate) struct BlockingState {
    /// Blocks are expected until this time, because one was found lately: the watcher samples the
    /// workers more often. 0 if none are expected.
    expect_until: AtomicU64,
    /// When the workers that had been counted out were last sampled.
    returns_at: AtomicU64,
    /// When an item was last presumed to block.
    presumed_at: AtomicU64,
    /// The worker of that item, and its CPU time then.
    presumed: AtomicU32,
    presumed_cpu_ns: AtomicU64,
    /// How many blocks in a row were presumed.
    presumed_in_row: AtomicU32,
    /// Presumptions since the last one that was verified.
    unverified: AtomicU32,
    /// How long an undeclared block typically lasts.
    usual_ns: AtomicU64,
    /// When the last batch had been taken when a standby last had the pool examined, when that was,
    /// and how often since that batch.
    examined_batch: AtomicU64,
    examined_at: AtomicU64,
    examinations: AtomicU32,
    /// Whether the pool is to be examined.
    is_requested: AtomicBool,
}

impl BlockingState {
    pub(super) fn new() -> BlockingState {
        BlockingState {
            expect_until: AtomicU64::new(0),
            returns_at: AtomicU64::new(0),
            presumed_at: AtomicU64::new(0),
            presumed: AtomicU32::new(NO_SLOT),
            presumed_cpu_ns: AtomicU64::new(0),
            presumed_in_row: AtomicU32::new(0),
            unverified: AtomicU32::new(0),
            usual_ns: AtomicU64::new(UNKNOWN_BLOCK_NS),
            examined_batch: AtomicU64::new(0),
            examined_at: AtomicU64::new(0),
            examinations: AtomicU32::new(0),
            is_requested: AtomicBool::new(false),
        }
    }

    /// In a child after a fork: no worker is blocked, and no pool is to be examined. What was learned
    /// of the blocks stays.
    pub(super) fn forget(&self) {
        // All fields by name, as in `Pool::forget`.
        let BlockingState {
            expect_until,
            returns_at: _,
            presumed_at,
            presumed,
            presumed_cpu_ns: _,
            presumed_in_row: _,
            unverified: _,
            usual_ns: _,
            examined_batch: _,
            examined_at: _,
            examinations,
            is_requested,
        } = self;
        expect_until.store(0, Ordering::Relaxed);
        presumed_at.store(0, Ordering::Relaxed);
        presumed.store(NO_SLOT, Ordering::Relaxed);
        examinations.store(0, Ordering::Relaxed);
        is_requested.store(false, Ordering::SeqCst);
    }

    /// A block that was not presumed was found at `now`: more of them are expected for a while.
    pub(crate) fn expect_more(&self, now: u64) {
        self.presumed_in_row.store(0, Ordering::Relaxed);
        self.expect_until.store(now.saturating_add(EXPECT_NS), Ordering::Relaxed);
    }

    /// A run that was presumed to block has ended.
    pub(crate) fn note_presumed_end(&self, blocked: bool) {
        let in_row = self.presumed_in_row.load(Ordering::Relaxed) + u32::from(blocked);
        self.presumed_in_row.store(in_row, Ordering::Relaxed);
        if in_row == PRESUMED_IN_ROW {
            self.expect_until.store(0, Ordering::Relaxed);
        }
    }

    /// Whether blocks were expected when the watcher last checked.
    #[inline]
    #[track_caller]
    pub(crate) fn expects_any(&self) -> bool {
        self.expect_until.load(Ordering::Relaxed) != 0
    }

    /// Whether blocks are expected. Only the watcher calls this; it also clears an expectation that
    /// has expired.
    pub(crate) fn expects_at(&self, now: u64) -> bool {
        let until = self.expect_until.load(Ordering::Relaxed);
        if until != 0 && until <= now {
            self.expect_until.store(0, Ordering::Relaxed);
        }
        until > now
    }

    /// A standby has the pool examined at `now`; its last batch was taken at `batch`.
    pub(crate) fn request_examination(&self, batch: u64, now: u64) {
        let (examinations, _) = self.examinations(batch, now);
        self.examinations.store(examinations + 1, Ordering::Relaxed);
        self.examined_at.store(now, Ordering::Relaxed);
        self.examined_batch.store(batch, Ordering::Relaxed);
        // SeqCst: first this, then the wake of the examiner, which takes the request after it.
        self.is_requested.store(true, Ordering::SeqCst);
    }

    /// How often standbys have had the pool examined since the batch that was taken at `batch`, and
    /// how long ago they last did.
    pub(crate) fn examinations(&self, batch: u64, now: u64) -> (u32, u64) {
        if self.examined_batch.load(Ordering::Relaxed) != batch {
            return (0, 0);
        }
        let since = now.saturating_sub(self.examined_at.load(Ordering::Relaxed));
        (self.examinations.load(Ordering::Relaxed), since)
    }

    /// Whether the caller is to examine the pool.
    #[inline]
    pub(crate) fn take_request(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst) && self.is_requested.swap(false, Ordering::SeqCst)
    }

    /// How long ago the workers that had been counted out were last sampled.
    pub(crate) fn since_returns(&self, now: u64) -> u64 {
        now.saturating_sub(self.returns_at.load(Ordering::Relaxed))
    }

    /// The workers that were counted out are sampled at `now`.
    pub(crate) fn note_returns(&self, now: u64) {
        self.returns_at.store(now, Ordering::Relaxed);
    }

    /// Whether an item was presumed to block lately.
    pub(crate) fn presumes_at(&self, now: u64) -> bool {
        self.since_presumed(now) < PRESUMES_NS
    }

    /// At `now` this worker, which has had a CPU for `cpu_ns` so far, is about to begin an item that is
    /// presumed to block.
    pub(crate) fn note_presumed(&self, slot: u32, now: u64, cpu_ns: u64) {
        self.presumed_at.store(now, Ordering::Relaxed);
        self.presumed_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.presumed.store(slot, Ordering::Relaxed);
    }

    /// How long ago such an item last began.
    pub(crate) fn since_presumed(&self, now: u64) -> u64 {
        now.saturating_sub(self.presumed_at.load(Ordering::Relaxed))
    }

    /// The worker that began such an item last, and its CPU time then.
    pub(crate) fn presumed_last(&self) -> Option<(u32, u64)> {
        let cpu_ns = self.presumed_cpu_ns.load(Ordering::Relaxed);
        let slot = Some(self.presumed.load(Ordering::Relaxed)).filter(|&slot| slot != NO_SLOT);
        slot.map(|slot| (slot, cpu_ns))
    }

    /// Presumptions since the last one that was verified.
    pub(crate) fn unverified(&self) -> u32 {
        self.unverified.load(Ordering::Relaxed)
    }

    /// One more item is presumed to block that is not verified.
    pub(crate) fn note_unverified(&self) {
        self.unverified.store(self.unverified().saturating_add(1), Ordering::Relaxed);
    }

    /// The item presumed last was found blocked.
    pub(crate) fn note_verified(&self) {
        self.unverified.store(0, Ordering::Relaxed);
    }

    /// Takes a block that is over into account.
    pub(crate) fn note_block(&self, blocked_ns: u64) {
        let usual = self.usual_ns.load(Ordering::Relaxed);
        self.usual_ns.store(usual_block_ns(usual, blocked_ns), Ordering::Relaxed);
    }

    /// How long a worker may block before it is replaced.
    pub(crate) fn patience_ns(&self, has_idle_worker: bool) -> u64 {
        patience_ns(self.usual_ns.load(Ordering::Relaxed), has_idle_worker)
    }
}
