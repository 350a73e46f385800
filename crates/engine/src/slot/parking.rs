//! Where a slot's worker is: its thread, its pool, and whether it was picked to run.

use super::Slot;
use crate::words::host::Host;
use crate::words::sync::{Ordering, set_lock_waits};

/// A value of a slot's home: the worker is moving from one pool to another.
pub(crate) const MOVING: u32 = u32::MAX;
/// A value of `restricted_to`: the worker is not restricted.
pub(super) const UNRESTRICTED: u32 = u32::MAX;
/// No batch is in progress.
pub(super) const NO_BATCH: u64 = u64::MAX;

impl<H: Host> Slot<H> {
    /// The worker's thread, as the host names it; 0 if none.
    pub(crate) fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The caller holds `placing` of the engine's CPUs.
    pub(crate) fn set_thread(&self, thread: u64) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Whether the worker is in a declared wait. A hint.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether the worker waits for a lock of the engine: then its item does not block. A hint.
    pub(crate) fn waits_for_lock(&self) -> bool {
        self.waits_for_lock.load(Ordering::SeqCst)
    }

    /// Owner, a worker that begins or ends: whether it says here that it waits for a lock. Slots live
    /// as long as the engine, and the engine as long as its workers.
    pub(crate) fn note_lock_waits(&self, notes: bool) {
        let place = if notes { &raw const self.waits_for_lock } else { std::ptr::null() };
        // SAFETY: as above; a worker that ends calls this again.
        unsafe { set_lock_waits(place) };
    }

    /// Owner: begins or ends a declared wait.
    pub(crate) fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// A worker of this pool is about to be spawned here.
    pub(crate) fn set_home(&self, pool: u32) {
        self.home.store(pool, Ordering::Relaxed);
    }

    /// The worker's pool. It does not change during a run.
    #[track_caller]
    pub(crate) fn home(&self) -> u32 {
        self.home.load(Ordering::Relaxed)
    }

    /// Owner: its pool, or `MOVING`. Acquire: its partner is the Release store of
    /// [`Slot::end_move`].
    pub(crate) fn home_after_move(&self) -> u32 {
        self.home.load(Ordering::Acquire)
    }

    /// Picks an idle worker, which is off the stack, for a wake. Guard: the lock of its pool.
    pub(crate) fn pick(&self) {
        self.picked.store(true, Ordering::Relaxed);
    }

    /// Picks an idle worker, which is off the stack, for another pool.
    pub(crate) fn pick_to_move(&self) {
        self.home.store(MOVING, Ordering::Relaxed);
        // Release: its partner is the Acquire load in `is_picked`. A worker that finds itself
        // picked also finds that it moves.
        self.picked.store(true, Ordering::Release);
    }

    /// Whether the thread that picked this worker has restricted it to some CPUs. Ordered by
    /// `end_move` and `home_after_move`.
    pub(crate) fn is_restricted(&self) -> bool {
        self.restricted_to() != UNRESTRICTED
    }

    /// The first of those CPUs. See [`Slot::is_restricted`].
    pub(crate) fn restricted_to(&self) -> u32 {
        self.restricted_to.load(Ordering::Relaxed)
    }

    /// See [`Slot::is_restricted`].
    pub(crate) fn set_restricted(&self, to: Option<u32>) {
        self.restricted_to.store(to.unwrap_or(UNRESTRICTED), Ordering::Relaxed);
    }

    /// Whether the owner's item has left the pool's CPUs.
    pub(crate) fn is_unpinned(&self) -> bool {
        self.unpinned.load(Ordering::Relaxed)
    }

    /// See [`Slot::is_unpinned`]. The caller holds `placing`.
    pub(crate) fn note_unpinned(&self, unpinned: bool) {
        self.unpinned.store(unpinned, Ordering::Relaxed);
    }

    /// Release: its partner is the Acquire load in `home_after_move`. The worker sees that it is on
    /// the new pool's list.
    pub(crate) fn end_move(&self, pool: u32) {
        self.home.store(pool, Ordering::Release);
    }

    /// Owner: whether it was picked.
    ///
    /// Acquire pairs with the Release store in `pick_to_move`: a picked worker sees that it moves,
    /// which was stored first. Other data was stored under the pool lock before the wake that ended
    /// the park, or is read again under that lock.
    pub(crate) fn is_picked(&self) -> bool {
        self.picked.load(Ordering::Acquire)
    }

    /// The same, for an owner that holds the lock of its pool.
    pub(crate) fn is_picked_locked(&self) -> bool {
        self.picked.load(Ordering::Relaxed)
    }

    /// Owner: it is up.
    pub(crate) fn unpick(&self) {
        self.picked.store(false, Ordering::Relaxed);
    }

    /// Owner: begins a batch of several items, which its pool has counted.
    ///
    /// Release: a watcher that sees the batch also sees that it is counted, and in this pool.
    #[inline]
    pub(crate) fn begin_batch(&self, now: u64) {
        self.batch_began.store(now, Ordering::Release);
    }

    /// When that batch began; `u64::MAX` if there is none. A hint.
    pub(crate) fn batch_began(&self) -> u64 {
        self.batch_began.load(Ordering::Relaxed)
    }

    /// Ends the batch, by its owner or by the watcher. Returns the pool that counts it, if this call
    /// has ended it.
    #[must_use]
    pub(crate) fn end_batch(&self) -> Option<u32> {
        let began = self.batch_began.load(Ordering::Acquire);
        if began == NO_BATCH {
            return None;
        }
        // Acquire: keeps this load before the exchange. If the exchange succeeds, the batch was in
        // progress at the load, and a worker does not leave its pool during a batch.
        let home = self.home.load(Ordering::Acquire);
        // Only the thread that ends this batch counts it down: the owner and the watcher may race.
        let ours =
            self.batch_began.compare_exchange(began, NO_BATCH, Ordering::AcqRel, Ordering::Relaxed);
        ours.is_ok().then_some(home)
    }
}
