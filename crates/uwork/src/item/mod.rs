//! Work items embedded in the user's own types.

mod delayed;
mod on_stack;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use uwork_engine::{Action, Busy, ItemName, Work as RawWork};

use crate::linux::engine;
use crate::pointer::WorkPointer;
use crate::query::WorkId;
use crate::queue::{Queue, enqueued};

pub(crate) use delayed::nanos;
pub use delayed::{DelayedWork, HasDelayedWork};
pub use on_stack::{StackWork, on_stack};

/// A work item, to be embedded in a type `T`; `ID` tells several in one type apart.
///
/// 40 bytes. Its function is `T`'s [`WorkItem`] implementation for the same `ID`.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// struct Log {
///     flush: uwork::Work<Log, 0>,
///     rotate: uwork::Work<Log, 1>,
///     flushed: AtomicU32,
///     rotated: AtomicU32,
/// }
/// uwork::has_work!(impl HasWork<0> for Log { flush });
/// uwork::has_work!(impl HasWork<1> for Log { rotate });
///
/// impl uwork::WorkItem<0> for Log {
///     type Pointer = Arc<Log>;
///     fn run(this: Arc<Log>) {
///         this.flushed.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// impl uwork::WorkItem<1> for Log {
///     type Pointer = Arc<Log>;
///     fn run(this: Arc<Log>) {
///         this.rotated.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let queue = uwork::Queue::builder("log").build()?;
/// let log = Arc::new(Log {
///     flush: uwork::Work::new(),
///     rotate: uwork::Work::new(),
///     flushed: AtomicU32::new(0),
///     rotated: AtomicU32::new(0),
/// });
/// assert!(queue.enqueue::<_, 0>(log.clone()).is_queued());
/// assert!(queue.enqueue::<_, 1>(log.clone()).is_queued());
/// queue.flush()?;
/// assert_eq!(log.flushed.load(Ordering::Relaxed), 1);
/// assert_eq!(log.rotated.load(Ordering::Relaxed), 1);
/// # Ok::<(), uwork::Error>(())
/// ```
#[repr(transparent)]
pub struct Work<T, const ID: u64 = 0> {
    pub(crate) raw: RawWork,
    /// The item may run, and `T` be dropped, on any thread that the pointer type permits.
    pub(crate) marker: PhantomData<fn(T)>,
    /// The engine's lists point here.
    pub(crate) pinned: std::marker::PhantomPinned,
}

/// A type with a [`Work`] field. Implement it with [`has_work!`](crate::has_work).
///
/// # Safety
/// At `OFFSET` in every value of the type is its `Work<Self, ID>`.
pub unsafe trait HasWork<const ID: u64 = 0>: Sized {
    /// The field's offset in bytes.
    const OFFSET: usize;
}

/// The function of a work item.
pub trait WorkItem<const ID: u64 = 0>: HasWork<ID> {
    /// The pointer through which the item is queued, and which its run receives.
    type Pointer: WorkPointer<Target = Self>;

    /// Does the work. Never runs twice at once for one item.
    ///
    /// A panic ends the item, not the worker; it is counted and reported.
    fn run(this: Self::Pointer);
}

/// Implements [`HasWork`] for a type with a [`Work`] field.
///
/// ```
/// struct Job { work: uwork::Work<Job> }
/// uwork::has_work!(impl HasWork for Job { work });
/// ```
#[macro_export]
macro_rules! has_work {
    (impl HasWork for $type:ty { $field:ident }) => {
        $crate::has_work!(impl HasWork<0> for $type { $field });
    };
    (impl HasWork<$id:literal> for $type:ty { $field:ident }) => {
        // SAFETY: the offset is that of the field, whose type is checked here.
        unsafe impl $crate::HasWork<$id> for $type {
            const OFFSET: usize = {
                // To a raw pointer, so that nothing is dereferenced on the way.
                const fn check(value: &$type) -> *const $crate::Work<$type, $id> {
                    &value.$field
                }
                let _ = check;
                ::core::mem::offset_of!($type, $field)
            };
        }
    };
}

/// The item's disable depth would leave its range: too many disables, or an enable too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisableDepthError(pub(crate) uwork_engine::DepthError);

impl fmt::Display for DisableDepthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DisableDepthError {}

/// The outcome of queueing. An item that was not queued is returned.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an item that was not queued is in here"]
pub enum Enqueued<P> {
    /// It will run.
    Queued,
    /// It was pending already: the coming run sees everything that the caller wrote before.
    Pending(P),
    /// It is disabled.
    Disabled(P),
    /// The queue drains or is destroyed, and the caller is not one of its items.
    Refused(P),
}

impl<P> Enqueued<P> {
    /// Whether this call queued the item.
    pub fn is_queued(&self) -> bool {
        matches!(self, Enqueued::Queued)
    }

    /// The item, if this call did not queue it.
    pub fn into_refused(self) -> Option<P> {
        match self {
            Enqueued::Queued => None,
            Enqueued::Pending(item) | Enqueued::Disabled(item) | Enqueued::Refused(item) => {
                Some(item)
            }
        }
    }
}

pub(crate) fn container<T: HasWork<ID>, const ID: u64>(work: NonNull<RawWork>) -> NonNull<T> {
    // The caller may hold a reference to the work alone. The provenance of the whole value was
    // exposed when the item was queued (`field`).
    let value = std::ptr::with_exposed_provenance_mut(work.addr().get() - T::OFFSET);
    // SAFETY: the work is the field of a `T` at this offset (`HasWork`).
    unsafe { NonNull::new_unchecked(value) }
}

pub(crate) fn field<T: HasWork<ID>, const ID: u64>(value: NonNull<T>) -> NonNull<RawWork> {
    let _ = value.as_ptr().expose_provenance();
    // SAFETY: the field lies within the value.
    unsafe { value.byte_add(T::OFFSET).cast() }
}

/// The function that the engine calls for an item of `T`.
pub(crate) unsafe fn perform<T: WorkItem<ID>, const ID: u64>(
    work: NonNull<RawWork>,
    action: Action,
) {
    // SAFETY: the engine hands the pointer that `into_raw` gave at the submission back once.
    let pointer = || unsafe { T::Pointer::from_raw(container::<T, ID>(work)) };
    match action {
        Action::Run => T::run(pointer()),
        Action::Release => drop(pointer()),
        // SAFETY: the engine has asked for it.
        Action::Name => unsafe { ItemName::of_type::<T>(ID).tell(work) },
    }
}

impl<T: WorkItem<ID>, const ID: u64> Default for Work<T, ID> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: WorkItem<ID>, const ID: u64> Work<T, ID> {
    /// An idle item.
    pub fn new() -> Work<T, ID> {
        Work {
            raw: RawWork::new(perform::<T, ID>),
            marker: PhantomData,
            pinned: std::marker::PhantomPinned,
        }
    }

    fn raw(&self) -> NonNull<RawWork> {
        NonNull::from(&self.raw)
    }

    fn take_back(&self, was_pending: bool) -> Option<T::Pointer> {
        // SAFETY: the item was taken off its list: this call owns the queue's pointer.
        was_pending.then(|| unsafe { T::Pointer::from_raw(container::<T, ID>(self.raw())) })
    }

    /// Whether the item is queued (and not only running). The answer may be out of date on return.
    pub fn is_pending(&self) -> bool {
        self.raw.is_pending()
    }

    /// Whether the item is pending, and whether it runs. Both hold for an item that was queued
    /// again while it runs. The answer may be out of date on return.
    ///
    /// ```
    /// struct Job { work: uwork::Work<Job> }
    /// uwork::has_work!(impl HasWork for Job { work });
    /// impl uwork::WorkItem for Job {
    ///     type Pointer = std::sync::Arc<Job>;
    ///     fn run(this: std::sync::Arc<Job>) {
    ///         assert!(this.work.busy().running);
    ///     }
    /// }
    /// let job = Job { work: uwork::Work::new() };
    /// assert_eq!(job.work.busy(), uwork::Busy { pending: false, running: false });
    /// ```
    pub fn busy(&self) -> Busy {
        engine().busy(&self.raw)
    }

    /// The item's identity, to be compared with [`current_work`](crate::current_work) and with
    /// those of other items.
    pub fn id(&self) -> WorkId {
        WorkId::of(&self.raw)
    }

    /// The description that the item set for its run ([`set_worker_desc`](crate::set_worker_desc));
    /// None if it does not run or has set none.
    pub fn description(&self) -> Option<String> {
        engine().description(&self.raw)
    }

    /// Takes the item off its queue without waiting for a run in progress. If the item was pending,
    /// the queued pointer is returned.
    ///
    /// (For a [`DelayedWork`](crate::DelayedWork), this disarms the timer.)
    pub fn cancel(&self) -> Option<T::Pointer> {
        // SAFETY: live, as we have a reference, and only ever queued on the process's engine.
        let was_pending = unsafe { engine().cancel(self.raw()) };
        self.take_back(was_pending)
    }

    /// As [`Work::cancel`], and waits for a run in progress: afterwards the item is neither pending
    /// nor running. Attempts to queue it during the wait are refused. A call from inside the item
    /// itself does not wait.
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn cancel_sync(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending = unsafe { engine().cancel_sync(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// Keeps the item from being queued until it was enabled as often as disabled, and takes it off
    /// its queue.
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn disable(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending = unsafe { engine().disable(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// As [`Work::disable`], and waits for a run in progress.
    ///
    /// # Errors
    /// The disable depth is at its maximum.
    pub fn disable_sync(&self) -> Result<Option<T::Pointer>, DisableDepthError> {
        // SAFETY: as in `cancel`.
        let was_pending =
            unsafe { engine().disable_sync(self.raw()) }.map_err(DisableDepthError)?;
        Ok(self.take_back(was_pending))
    }

    /// Undoes one disable. True if the item can be queued again; this call does not queue it.
    ///
    /// # Errors
    /// The item is not disabled.
    pub fn enable(&self) -> Result<bool, DisableDepthError> {
        // SAFETY: as in `cancel`.
        unsafe { engine().enable(self.raw()) }.map_err(DisableDepthError)
    }

    /// Waits until the last queueing of the item has run. False if the item was idle. Also false,
    /// at once, where the caller would wait for itself: inside the item, or inside an item of the
    /// same ordered queue. A cancel of the item ends the wait.
    pub fn flush(&self) -> bool {
        engine().assert_may_wait();
        // SAFETY: as in `cancel`.
        unsafe { engine().flush_work(self.raw()) }
    }

    /// As [`Work::flush`], but if the item has not started and its queue permits it, the calling
    /// thread runs it: no context switch, no wake.
    pub fn flush_helping(&self) -> bool {
        // SAFETY: as in `cancel`.
        unsafe {
            engine().help(self.raw()) == uwork_engine::Helped::Ran
                || engine().flush_work(self.raw())
        }
    }
}

impl<T, const ID: u64> fmt::Debug for Work<T, ID> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("pending", &self.raw.is_pending())
            .field("disable_depth", &self.raw.disable_depth())
            .finish()
    }
}

impl Queue {
    /// Undoes one disable of the item, and queues it if that was the last (the kernel's
    /// `enable_and_queue_work`). `Disabled` if more disables are left. For items of any kind.
    ///
    /// # Errors
    /// The item is not disabled; it is not queued, and is returned.
    ///
    /// ```
    /// use std::sync::Arc;
    /// struct Job { work: uwork::Work<Job> }
    /// uwork::has_work!(impl HasWork for Job { work });
    /// impl uwork::WorkItem for Job {
    ///     type Pointer = Arc<Job>;
    ///     fn run(_this: Arc<Job>) {}
    /// }
    /// let queue = uwork::Queue::builder("resume").build()?;
    /// let job = Arc::new(Job { work: uwork::Work::new() });
    /// job.work.disable().unwrap();
    /// assert!(matches!(queue.enable_and_enqueue(job.clone()), Ok(uwork::Enqueued::Queued)));
    /// assert!(queue.enable_and_enqueue(job).is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn enable_and_enqueue<P, const ID: u64>(
        &self,
        item: P,
    ) -> Result<Enqueued<P>, (DisableDepthError, P)>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P>,
    {
        let raw = item.into_raw();
        let work = field::<P::Target, ID>(raw);
        // SAFETY: the pointer keeps the item live and in place; it is taken back when the item has
        // run, was cancelled, or here. It was only ever queued on the process's engine.
        unsafe {
            match engine().enable(work) {
                Ok(true) => Ok(enqueued(raw, self.0.queue(work))),
                Ok(false) => Ok(Enqueued::Disabled(P::from_raw(raw))),
                Err(error) => Err((DisableDepthError(error), P::from_raw(raw))),
            }
        }
    }
}
