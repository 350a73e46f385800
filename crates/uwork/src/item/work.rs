//! Plain items.

use std::marker::{PhantomData, PhantomPinned};

use uwork_engine::{Helped, Work as RawWork};

use super::{DisableDepthError, Enqueued, WorkItem, embedded_methods, field, perform};
use crate::queue::{Queue, enqueued};
use uwork_engine::WorkPointer;
use uwork_linux::engine;

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
///
/// An item in a static needs no allocation and no reference count. Its state can be read without a
/// queue:
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// struct Tick { work: uwork::Work<Tick>, ticks: AtomicU32 }
/// uwork::has_work!(impl HasWork for Tick { work });
/// impl uwork::WorkItem for Tick {
///     type Pointer = &'static Tick;
///     fn run(this: &'static Tick) {
///         assert!(this.work.busy().running);
///         this.ticks.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// static TICK: Tick = Tick { work: uwork::Work::new(), ticks: AtomicU32::new(0) };
///
/// assert_eq!(TICK.work.busy(), uwork::Busy { pending: false, running: false });
/// let queue = uwork::Queue::builder("ticks").build()?;
/// assert!(queue.enqueue(&TICK).is_queued());
/// TICK.work.flush();
/// assert_eq!(TICK.ticks.load(Ordering::Relaxed), 1);
/// # Ok::<(), uwork::Error>(())
/// ```
#[repr(transparent)]
pub struct Work<T, const ID: u64 = 0> {
    pub(crate) raw: RawWork,
    /// The item may run, and `T` be dropped, on any thread that the pointer type permits. Invariant:
    /// the function is that of `T`, so the item is one of `T` alone.
    pub(crate) marker: PhantomData<fn(T) -> T>,
    /// The engine's lists point here.
    pub(crate) pinned: PhantomPinned,
}

impl<T, const ID: u64> Work<T, ID> {
    fn work(&self) -> &RawWork {
        &self.raw
    }
}

embedded_methods!(Work);

impl<T: WorkItem<ID>, const ID: u64> Work<T, ID> {
    /// An idle item, also in a static.
    pub const fn new() -> Work<T, ID> {
        Work { raw: RawWork::new(perform::<T, ID>), marker: PhantomData, pinned: PhantomPinned }
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
        engine().assert_may_wait();
        // SAFETY: as in `cancel`.
        unsafe { engine().help(self.raw()) == Helped::Ran || engine().flush_work(self.raw()) }
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
