//! Work items that are queued after a grace period.

use std::marker::{PhantomData, PhantomPinned};
use std::ptr::NonNull;

use uwork_engine::{Graced, Work as RawWork};

use super::driver;
use crate::item::{Enqueued, HasWork, WorkItem, embedded_methods, field, perform};
use crate::queue::{Queue, enqueued};
use uwork_engine::WorkPointer;
use uwork_linux::{Linux, engine};

/// A work item to be queued after a grace period, embedded in a type `T` instead of a
/// [`Work`](crate::Work). See the [module](super).
///
/// It is pending from the call of [`Queue::enqueue_rcu`] on. It may also be queued at once, with
/// [`Queue::enqueue`]. A cancel also ends its wait for a grace period, which the kernel's cannot.
#[repr(transparent)]
pub struct RcuWork<T, const ID: u64 = 0> {
    pub(crate) raw: Graced<Linux>,
    /// As in [`Work`](crate::Work).
    pub(crate) marker: PhantomData<fn(T) -> T>,
    pub(crate) pinned: PhantomPinned,
}

// SAFETY: all fields are accessed through the engine's protocols only.
unsafe impl<T, const ID: u64> Send for RcuWork<T, ID> {}
// SAFETY: as above.
unsafe impl<T, const ID: u64> Sync for RcuWork<T, ID> {}

/// A type with an [`RcuWork`] field. Implement it with [`has_work!`](crate::has_work).
///
/// # Safety
/// At [`HasWork::OFFSET`] in every value of the type is its `RcuWork<Self, ID>`.
#[diagnostic::on_unimplemented(
    message = "no field of `{Self}` is declared as an item that waits for a grace period",
    label = "a line `uwork::has_work!(impl HasRcuWork ...)` for `{Self}` is missing",
    note = "for a field `work: uwork::rcu::RcuWork<{Self}>` add the line: \
            uwork::has_work!(impl HasRcuWork for {Self} {{ work }});",
    note = "it takes the place of the line with `HasWork`, which is for a field of the type `uwork::Work`"
)]
pub unsafe trait HasRcuWork<const ID: u64 = 0>: HasWork<ID> {}

impl<T, const ID: u64> RcuWork<T, ID> {
    fn work(&self) -> &RawWork {
        self.raw.work()
    }
}

embedded_methods!(RcuWork);

impl<T: WorkItem<ID>, const ID: u64> RcuWork<T, ID> {
    /// An idle item.
    pub const fn new() -> RcuWork<T, ID> {
        RcuWork { raw: Graced::new(perform::<T, ID>), marker: PhantomData, pinned: PhantomPinned }
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
