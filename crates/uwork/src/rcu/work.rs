//! Work items that are queued after a grace period.

use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::ptr::NonNull;

use uwork_engine::WorkPointer;
use uwork_engine::{Busy, Graced, Work as RawWork};
use uwork_linux::{Linux, engine};

use super::driver;
use crate::item::{DisableDepthError, Enqueued, HasWork, WorkItem, container, field, perform};
use crate::query::WorkId;
use crate::queue::{Queue, enqueued};

/// A work item to be queued after a grace period, embedded in a type `T` instead of a
/// [`Work`](crate::Work). See the [module](super).
///
/// It is pending from the call of [`Queue::enqueue_rcu`] on. It may also be queued at once, with
/// [`Queue::enqueue`].
#[repr(transparent)]
pub struct RcuWork<T, const ID: u64 = 0> {
    pub(crate) raw: Graced<Linux>,
    pub(crate) marker: PhantomData<fn(T)>,
    pub(crate) pinned: PhantomPinned,
}

// SAFETY: all fields are accessed through the engine's protocols only.
unsafe impl<T, const ID: u64> Send for RcuWork<T, ID> {}
// SAFETY: as above.
unsafe impl<T, const ID: u64> Sync for RcuWork<T, ID> {}

/// A type with an [`RcuWork`] field. Implement it with [`has_rcu_work!`](crate::has_rcu_work).
///
/// # Safety
/// At [`HasWork::OFFSET`] in every value of the type is its `RcuWork<Self, ID>`.
pub unsafe trait HasRcuWork<const ID: u64 = 0>: HasWork<ID> {}

/// Implements [`HasRcuWork`](crate::rcu::HasRcuWork) for a type with an
/// [`RcuWork`](crate::rcu::RcuWork) field.
///
/// ```
/// struct Old { work: uwork::rcu::RcuWork<Old> }
/// uwork::has_rcu_work!(impl HasRcuWork for Old { work });
/// ```
#[macro_export]
macro_rules! has_rcu_work {
    (impl HasRcuWork for $type:ty { $field:ident }) => {
        $crate::has_rcu_work!(impl HasRcuWork<0> for $type { $field });
    };
    (impl HasRcuWork<$id:literal> for $type:ty { $field:ident }) => {
        // SAFETY: the offset is that of the field, whose type is checked here; an RCU work begins
        // with its work.
        unsafe impl $crate::HasWork<$id> for $type {
            const OFFSET: usize = {
                // To a raw pointer, so that nothing is dereferenced on the way.
                const fn check(value: &$type) -> *const $crate::rcu::RcuWork<$type, $id> {
                    &value.$field
                }
                let _ = check;
                ::core::mem::offset_of!($type, $field)
            };
        }
        // SAFETY: see above.
        unsafe impl $crate::rcu::HasRcuWork<$id> for $type {}
    };
}

impl<T: WorkItem<ID>, const ID: u64> Default for RcuWork<T, ID> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: WorkItem<ID>, const ID: u64> RcuWork<T, ID> {
    /// An idle item.
    pub fn new() -> RcuWork<T, ID> {
        RcuWork { raw: Graced::new(perform::<T, ID>), marker: PhantomData, pinned: PhantomPinned }
    }

    fn raw(&self) -> NonNull<RawWork> {
        NonNull::from(&self.raw).cast()
    }

    fn take_back(&self, was_pending: bool) -> Option<T::Pointer> {
        // SAFETY: the item was taken off: this call owns the queue's pointer.
        was_pending.then(|| unsafe { T::Pointer::from_raw(container::<T, ID>(self.raw())) })
    }

    /// Whether the item waits for a grace period or is queued.
    pub fn is_pending(&self) -> bool {
        self.raw.work().is_pending()
    }

    /// Whether the item is pending, and whether it runs. See [`Work::busy`](crate::Work::busy).
    pub fn busy(&self) -> Busy {
        engine().busy(self.raw.work())
    }

    /// See [`Work::id`](crate::Work::id).
    pub fn id(&self) -> WorkId {
        WorkId::of(self.raw.work())
    }

    /// See [`Work::description`](crate::Work::description).
    pub fn description(&self) -> Option<String> {
        engine().description(self.raw.work())
    }

    /// Takes the item out of its wait for a grace period, or off its queue. (The kernel cannot do
    /// this before the grace period has ended.) See [`Work::cancel`](crate::Work::cancel).
    pub fn cancel(&self) -> Option<T::Pointer> {
        // SAFETY: live, as we have a reference, and only ever queued on the process's engine.
        let was_pending = unsafe { engine().cancel(self.raw()) };
        self.take_back(was_pending)
    }

    /// As [`RcuWork::cancel`], and waits for a run in progress, but not for a grace period.
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn cancel_sync(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending = unsafe { engine().cancel_sync(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// Keeps the item from being queued. See [`Work::disable`](crate::Work::disable).
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn disable(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending = unsafe { engine().disable(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// As [`RcuWork::disable`], and waits for a run in progress.
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn disable_sync(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending =
            unsafe { engine().disable_sync(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// Undoes one disable. True if the item can be queued again.
    ///
    /// # Errors
    /// The item is not disabled.
    pub fn enable(&self) -> Result<bool, DisableDepthError> {
        // SAFETY: as in `cancel`.
        unsafe { engine().enable(self.raw()) }.map_err(DisableDepthError)
    }

    /// If the item waits for a grace period, waits for its end; then waits until the item's last
    /// queueing has run. A cancel ends the wait. False if the item was idle. Also false, at once,
    /// where the caller would wait for itself: inside the item, or while it holds a
    /// [`ReadGuard`](super::ReadGuard) and the item waits for a grace period.
    pub fn flush(&self) -> bool {
        engine().assert_may_wait();
        let may_wait = !super::is_read_locked();
        // SAFETY: as in `cancel`.
        unsafe { engine().flush_after_grace(NonNull::from(&self.raw), may_wait) }
    }
}

impl<T, const ID: u64> fmt::Debug for RcuWork<T, ID> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuWork")
            .field("pending", &self.raw.work().is_pending())
            .field("disable_depth", &self.raw.work().disable_depth())
            .finish()
    }
}

impl Queue {
    /// Queues an item at the end of a grace period that begins after the start of this call: every
    /// [`ReadGuard`](crate::rcu::ReadGuard) that exists now has been dropped by then. The item is
    /// pending from now on. An item that is not queued is returned, and does not wait for a new
    /// grace period: an item that was pending runs after the grace period of its earlier queueing.
    ///
    /// Takes a mutex; only the first use in the process allocates.
    ///
    /// The item runs as if it were queued on the CPU of this call. Until the grace period has
    /// ended, it does not keep the queue alive and does not count in a flush or drain of it. If the
    /// queue has ended, or drains, by then, the item is dropped and does not run.
    ///
    /// See the module [`rcu`](crate::rcu) for an example.
    ///
    /// # Panics
    /// If no worker thread can be created at first use in the process. The item is dropped.
    pub fn enqueue_rcu<P, const ID: u64>(&self, item: P) -> Enqueued<P>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P> + HasRcuWork<ID>,
    {
        driver::prepare();
        let raw = item.into_raw();
        let graced = field::<P::Target, ID>(raw).cast::<Graced<Linux>>();
        // SAFETY: the pointer keeps the item live and in place; it is taken back when the item has
        // run, was cancelled, or here.
        unsafe { enqueued(raw, self.0.queue_after_grace(graced, driver::call)) }
    }
}
