//! Workers that are in an item but off the running count: the reason, and how long it lasts.
//!
//! `not_running` is guarded by the slot's mutex alone. Another thread marks a run only while that run
//! is in progress. The mark is cleared by the owner at the end of that run, since `DEFERRED` sends
//! it through the mutex; or earlier by the watcher, when it finds the worker running again.

use super::{RemoteSlot, Slot, detach_all};
use crate::words::host::Host;
use crate::words::item::WorkList;

/// Why a worker that is in an item is off the running count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRunning {
    /// It counts.
    No,
    /// It declared so itself: it waits, or its items are CPU-intensive.
    Declared,
    /// Its present run was detected as a hog. Lasts until the end of that run.
    Hog,
    /// Its present run was detected as blocked, at this time of the host's clock. Lasts until it is
    /// found running again, at the latest until the end of that run.
    FoundBlocked(u64),
    /// The runs of its function were found blocked so often that its present run is presumed to block.
    /// Lasts until it is found running, at the latest until the end of that run.
    Presumed,
}

/// What a declared wait changes in the pool's running count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WasRunning {
    /// The owner counted until now. The caller subtracts it, and adds it at the end of the wait.
    Yes,
    /// The owner was subtracted before, when its block was detected or presumed. The caller adds it
    /// at the end of the wait.
    AlreadyLeft,
    /// The owner does not count, neither now nor at the end of this wait.
    No,
}

impl<H: Host> Slot<H> {
    /// Owner: starts or stops being a worker, which counts in its pool.
    pub(crate) fn set_worker(&self, is_worker: bool) {
        let guard = self.mutex.lock();
        // SAFETY: `is_worker` is guarded by the mutex alone.
        unsafe { (*self.lists.get()).is_worker = is_worker };
        drop(guard);
    }

    /// Owner, inside an item: declares a wait, and takes all items scheduled behind its
    /// item. If it is to count at the end, [`Slot::end_block`] must follow.
    pub(crate) fn begin_block(&self) -> (WorkList, WasRunning) {
        let guard = self.mutex.lock();
        // SAFETY: the owner is not in SECTION, and remote threads need the mutex.
        let lists = unsafe { &mut *self.lists.get() };
        let items = detach_all(lists.scheduled.take());
        let counted = match lists.not_running {
            NotRunning::No => WasRunning::Yes,
            NotRunning::FoundBlocked(_) | NotRunning::Presumed => WasRunning::AlreadyLeft,
            NotRunning::Declared | NotRunning::Hog => WasRunning::No,
        };
        if counted != WasRunning::No {
            lists.not_running = NotRunning::Declared;
        }
        drop(guard);
        (items, counted)
    }

    /// Owner, in a run whose function it has not called yet: presumes that the run blocks, and takes
    /// all items scheduled behind it. [`Slot::end_presumed_block`] must follow. `None`, and nothing is
    /// changed, if it does not count anyway: the run was marked meanwhile.
    pub(crate) fn presume_block(&self) -> Option<WorkList> {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_block`.
        let lists = unsafe { &mut *self.lists.get() };
        let counts = lists.not_running == NotRunning::No;
        let behind = counts.then(|| detach_all(lists.scheduled.take()));
        if counts {
            lists.not_running = NotRunning::Presumed;
        }
        drop(guard);
        behind
    }

    /// Owner, still in that run: ends the presumption. Calls `count_again`, which puts it back on the
    /// running count, unless another thread found it running or it has declared a wait itself. That is
    /// under the mutex: once the mark is gone, another thread may mark the run and subtract.
    pub(crate) fn end_presumed_block(&self, count_again: impl FnOnce()) {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_block`.
        let not_running = unsafe { &mut (*self.lists.get()).not_running };
        if *not_running == NotRunning::Presumed {
            count_again();
            *not_running = NotRunning::No;
        }
        drop(guard);
    }

    /// Owner: ends a declared wait.
    pub(crate) fn end_block(&self) {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_block`.
        let not_running = unsafe { &mut (*self.lists.get()).not_running };
        debug_assert_eq!(*not_running, NotRunning::Declared, "an end without a beginning");
        *not_running = NotRunning::No;
        drop(guard);
    }

    /// Owner: declares a wait, and leaves the items behind its own scheduled. Returns
    /// whether it counted as running until now; then [`Slot::end_block`] must follow.
    pub(crate) fn declare_not_running(&self) -> bool {
        let guard = self.mutex.lock();
        // SAFETY: the owner is not in SECTION, and remote threads need the mutex.
        let not_running = unsafe { &mut (*self.lists.get()).not_running };
        let counted = *not_running == NotRunning::No;
        if counted {
            *not_running = NotRunning::Declared;
        }
        drop(guard);
        counted
    }

    /// Whether the owner is in an item, not in a declared wait, and not detected or presumed as
    /// blocked. Stale by the time it is used.
    pub(crate) fn computes(&self) -> bool {
        let sleeps =
            || matches!(self.not_running(), NotRunning::FoundBlocked(_) | NotRunning::Presumed);
        self.present_run().is_some() && !self.waits() && !sleeps()
    }

    /// Why the owner is off the running count. Stale by the time it is used.
    pub(crate) fn not_running(&self) -> NotRunning {
        let _guard = self.mutex.lock();
        // SAFETY: `not_running` is guarded by the mutex alone: the owner accesses it under no other
        // guard.
        unsafe { (*self.lists.get()).not_running }
    }
}

impl<H: Host> RemoteSlot<'_, H> {
    /// Marks the owner as not running until the end of `run`, its present run. Returns false if the run is
    /// over or the owner is off the count anyway. After true, the caller takes the pool's count
    /// down and takes back the items scheduled behind the run.
    ///
    /// Slots are reused: the caller saw a worker's run here, but this run may be a helper's, which
    /// counts in no pool.
    #[must_use]
    pub(crate) fn mark_not_running(&mut self, run: u64, why: NotRunning) -> bool {
        debug_assert!(
            matches!(why, NotRunning::Hog | NotRunning::FoundBlocked(_)),
            "the owner declares itself"
        );
        if !self.lists().is_worker
            || !self.slot.is_running(run)
            || self.lists().not_running != NotRunning::No
        {
            return false;
        }
        self.lists().not_running = why;
        self.want_attention();
        true
    }

    /// Clears the mark of an owner that was detected or presumed as blocked in `run` and now runs.
    /// Returns the cleared mark; `None` if the run is over or the mark has another reason. The
    /// caller puts the owner back on the running count.
    #[must_use]
    pub(crate) fn mark_running_again(&mut self, run: u64) -> Option<NotRunning> {
        let was = self.lists().not_running;
        let may_end = matches!(was, NotRunning::FoundBlocked(_) | NotRunning::Presumed);
        if !may_end || !self.slot.is_running(run) {
            return None;
        }
        self.lists().not_running = NotRunning::No;
        Some(was)
    }
}
