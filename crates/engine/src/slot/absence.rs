//! Workers that are at an item and do not count as running: who says so, and for how long.
//!
//! `absence` is guarded by the slot's mutex alone. A mark that another thread makes is made while the run
//! that it is about is on, and taken back by whoever ends it: the owner at the end of that run, which
//! `SET_ASIDE` sends through the mutex, or the watch that finds it back earlier.

use super::{RemoteSlot, Slot, into_hands};
use crate::host::{Cure, Host};
use crate::sync::Ordering;
use crate::work::WorkList;

/// Why a worker that is at an item does not count as running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It does count.
    No,
    /// It said so itself: it waits, or its items compute for long.
    Declared,
    /// Its present run was found to compute for long. Ends with that run.
    Hog,
    /// Its present run was found to sleep, since then by the host's clock. Ends when it was found to be
    /// back, at the latest with that run.
    Asleep(u64),
    /// Its items have been found asleep so often that the next is presumed to sleep. Ends when it is found to
    /// run, at the latest with the batch.
    Presumed,
}

/// What a declared absence means for the pool's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The owner has counted until now: it is to be taken off, and to count again at the end.
    Yes,
    /// It was taken off already, as it was found to sleep; it is to count again at the end.
    NotNow,
    /// It does not count, and will not at the end.
    No,
}

impl<H: Host> Slot<H> {
    /// Owner: begins or ends to be a worker, which counts in its pool.
    pub(crate) fn set_worker(&self, is_worker: bool) {
        let guard = self.mutex.lock();
        // SAFETY: `is_worker` is guarded by the mutex alone.
        unsafe { (*self.lists.get()).is_worker = is_worker };
        drop(guard);
    }

    /// Owner, inside an item: declares itself absent, and takes everything that is lined up behind the
    /// item. If it is to count at the end, [`Slot::end_absence`] must follow.
    pub(crate) fn begin_absence(&self) -> (WorkList, Counted) {
        let guard = self.mutex.lock();
        // SAFETY: the owner is not in SECTION, and remote threads need the mutex.
        let lists = unsafe { &mut *self.lists.get() };
        let items = into_hands(lists.scheduled.take());
        let counted = match lists.absence {
            Absence::No => Counted::Yes,
            Absence::Asleep(_) | Absence::Presumed => Counted::NotNow,
            Absence::Declared | Absence::Hog => Counted::No,
        };
        if counted != Counted::No {
            lists.absence = Absence::Declared;
        }
        drop(guard);
        (items, counted)
    }

    /// Owner, not in an item: presumes that its next item sleeps. [`Slot::end_presumed`] must follow.
    pub(crate) fn presume_absence(&self) {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_absence`.
        unsafe { (*self.lists.get()).absence = Absence::Presumed };
        drop(guard);
    }

    /// Owner, after that item: whether it is to count again, as nobody has found it running and it has
    /// declared nothing itself.
    #[must_use]
    pub(crate) fn end_presumed(&self) -> bool {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_absence`.
        let absence = unsafe { &mut (*self.lists.get()).absence };
        let still = *absence == Absence::Presumed;
        if still {
            *absence = Absence::No;
        }
        drop(guard);
        still
    }

    /// Owner: is back.
    pub(crate) fn end_absence(&self) {
        let guard = self.mutex.lock();
        // SAFETY: as in `begin_absence`.
        let absence = unsafe { &mut (*self.lists.get()).absence };
        debug_assert_eq!(*absence, Absence::Declared, "an end without a beginning");
        *absence = Absence::No;
        drop(guard);
    }

    /// Owner: declares itself absent, and leaves what is lined up where it is. Whether it counted as
    /// running until now; then [`Slot::end_absence`] must follow.
    pub(crate) fn declare_absence(&self) -> bool {
        let guard = self.mutex.lock();
        // SAFETY: the owner is not in SECTION, and remote threads need the mutex.
        let absence = unsafe { &mut (*self.lists.get()).absence };
        let counted = *absence == Absence::No;
        if counted {
            *absence = Absence::Declared;
        }
        drop(guard);
        counted
    }

    /// Whether the owner is in an item, not in a declared wait, and was not found or presumed asleep.
    /// Stale by the time it is used.
    pub(crate) fn computes(&self) -> bool {
        let sleeps = || matches!(self.absence(), Absence::Asleep(_) | Absence::Presumed);
        self.present_run().is_some() && !self.waits.load(Ordering::Relaxed) && !sleeps()
    }

    /// Why the owner does not count as running. Stale by the time it is used.
    pub(crate) fn absence(&self) -> Absence {
        let _guard = self.mutex.lock();
        // SAFETY: `absence` is guarded by the mutex alone: the owner touches it under no other guard.
        unsafe { (*self.lists.get()).absence }
    }
}

impl<H: Host> RemoteSlot<'_, H> {
    /// Lets the owner not count as running until the end of `run`, in which it is. False if the run is over
    /// or the owner does not count anyway. What is lined up behind the run is to be taken back.
    ///
    /// Slots are used again: the caller has seen a worker's run here, and this one may be a helper's.
    #[must_use]
    pub(crate) fn mark_absent(&mut self, host: &H, run: u64, why: Absence) -> bool {
        debug_assert!(
            matches!(why, Absence::Hog | Absence::Asleep(_)),
            "the owner declares itself"
        );
        let counts = self.lists().is_worker || host.reverts(Cure::MarkedRun);
        if !counts || !self.slot.is_running(run) || self.lists().absence != Absence::No {
            return false;
        }
        self.lists().absence = why;
        self.want_attention();
        true
    }

    /// The owner, which was found or presumed to sleep in `run`, runs. Why it did not count; `None` if the
    /// run is over or that was for another reason. Then it counts again: the caller sees to that.
    #[must_use]
    pub(crate) fn mark_back(&mut self, run: u64) -> Option<Absence> {
        let was = self.lists().absence;
        let may_end = matches!(was, Absence::Asleep(_) | Absence::Presumed);
        if !may_end || !self.slot.is_running(run) {
            return None;
        }
        self.lists().absence = Absence::No;
        Some(was)
    }
}
