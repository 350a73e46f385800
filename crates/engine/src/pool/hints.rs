//! A pool's marks and hints, as its workers, submitters and the watcher change them.

use uwork_policy::batch::RunEstimate;

use super::Pool;
use crate::words::host::Host;
use crate::words::sync::{AtomicU64, Ordering};

/// For whose work a worker was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledBy {
    /// Its own pool's.
    Own,
    /// That of this neighbour.
    Pool(u32),
    /// That of any neighbour.
    Any,
}

impl CalledBy {
    fn encode(self) -> u64 {
        match self {
            CalledBy::Own => 0,
            CalledBy::Any => 1,
            CalledBy::Pool(id) => u64::from(id) + 2,
        }
    }

    fn decode(word: u64) -> CalledBy {
        match word {
            0 => CalledBy::Own,
            1 => CalledBy::Any,
            _ => CalledBy::Pool((word - 2) as u32),
        }
    }

    /// One worker for two calls.
    fn and(self, other: CalledBy) -> CalledBy {
        match self {
            CalledBy::Own => other,
            _ if self == other => self,
            _ => CalledBy::Any,
        }
    }
}

/// For whose work the worker on its way up comes, if there is one.
///
/// A thread marks first and reads the pool's counters second. A worker arrives in the counters first
/// and takes the mark second. All four are SeqCst: a thread that still finds the worker on its way up
/// has marked it in time.
#[derive(Debug)]
pub(crate) struct ComingHelp(AtomicU64);

impl ComingHelp {
    pub(crate) fn new() -> ComingHelp {
        ComingHelp(AtomicU64::new(CalledBy::Own.encode()))
    }

    /// Adds a call to those that the next worker answers.
    pub(crate) fn mark(&self, called_by: CalledBy) {
        let add = |known| Some(CalledBy::decode(known).and(called_by).encode());
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }

    /// Takes the calls.
    pub(crate) fn take(&self) -> CalledBy {
        let none = CalledBy::Own.encode();
        match self.0.load(Ordering::SeqCst) {
            known if known == none => CalledBy::Own,
            _ => CalledBy::decode(self.0.swap(none, Ordering::SeqCst)),
        }
    }
}

impl<H: Host> Pool<H> {
    /// Work was taken at `now`, or a worker came up for it.
    #[inline]
    pub(crate) fn note_progress(&self, now: u64) {
        self.last_progress_at.store(now, Ordering::Relaxed);
    }

    /// How long ago that was.
    #[track_caller]
    pub(crate) fn since_progress(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_progress_at.load(Ordering::Relaxed))
    }

    /// Work was taken at `now`.
    #[inline]
    pub(crate) fn note_batch(&self, now: u64) {
        self.last_batch_at.set(now as usize);
    }

    /// When work was last taken.
    #[track_caller]
    pub(crate) fn last_batch_at(&self) -> u64 {
        self.last_batch_at.get() as u64
    }

    /// A worker of this pool took work from a neighbour at `now`.
    pub(crate) fn note_steal(&self, now: u64) {
        self.last_steal_at.set(now as usize);
    }

    /// When a worker of this pool last took work: this pool's, or a neighbour's.
    #[track_caller]
    pub(crate) fn last_taken_at(&self) -> u64 {
        self.last_batch_at().max(self.last_steal_at.get() as u64)
    }

    /// How long items of the queue take from which a worker took last. The two values may belong
    /// to different queues for an instant.
    #[inline]
    #[track_caller]
    pub(crate) fn estimate(&self) -> RunEstimate {
        RunEstimate {
            item_ns: self.item_ns.load(Ordering::Relaxed),
            residual_ns: self.residual_ns.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(crate) fn note_estimate(&self, estimate: RunEstimate) {
        self.item_ns.store(estimate.item_ns, Ordering::Relaxed);
        self.residual_ns.store(estimate.residual_ns, Ordering::Relaxed);
    }

    /// A worker has items scheduled behind the one that it is about to run.
    ///
    /// SeqCst: first this count, then `settle` reads whether the watcher is awake. The watcher
    /// announces its sleep first and reads the count second (watch/mod.rs).
    #[inline]
    pub(crate) fn add_scheduled_batch(&self) {
        self.scheduled_batches.fetch_add(1, Ordering::SeqCst);
    }

    /// It has none any more.
    pub(crate) fn remove_scheduled_batch(&self) {
        self.scheduled_batches.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether any worker has items scheduled behind the one that it runs.
    #[inline]
    #[track_caller]
    pub(crate) fn has_scheduled_batches(&self) -> bool {
        self.scheduled_batches.load(Ordering::SeqCst) > 0
    }

    /// When a worker may be spawned again after a failure; 0 if no spawn has failed.
    pub(crate) fn create_again_at(&self) -> u64 {
        self.create_again_at.load(Ordering::Relaxed)
    }

    /// Whether the rescuers are due to be called again at `now`; if so, the next call is due
    /// `interval` later.
    pub(crate) fn claim_maydays(&self, now: u64, interval: u64) -> bool {
        let is_due = self.mayday_at.load(Ordering::Relaxed) <= now;
        if is_due {
            self.mayday_at.store(now.saturating_add(interval), Ordering::Relaxed);
        }
        is_due
    }

    /// Leaves a claimed wake to the watcher.
    pub(crate) fn request_spawn(&self) {
        self.is_spawn_requested.store(true, Ordering::SeqCst);
    }

    /// Takes such a claim. Returns false if there is none.
    #[must_use]
    pub(crate) fn take_spawn_request(&self) -> bool {
        self.is_spawn_requested.swap(false, Ordering::SeqCst)
    }

    /// Since when the watcher has found the pool stranded; 0 if it is not.
    pub(crate) fn stranded_since(&self) -> u64 {
        self.stranded_since.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stranded_since(&self, since: u64) {
        self.stranded_since.store(since, Ordering::Relaxed);
    }
}
