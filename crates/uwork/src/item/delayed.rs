//! Items that are queued later.

use std::marker::{PhantomData, PhantomPinned};
use std::ptr::NonNull;
use std::time::Duration;

use uwork_engine::{Delayed, Rearmed, Work as RawWork};

use super::{Enqueued, HasWork, WorkItem, embedded_methods, field, perform};
use crate::error::RejectedError;
use crate::queue::{Queue, accepted, enqueued};
use uwork_engine::WorkPointer;
use uwork_linux::{Linux, engine};

/// A work item with a timer, to be embedded in a type `T` instead of a [`Work`](crate::Work).
///
/// The timer is part of the item. Arming takes a lock, and allocates only the timer wheel of a pool
/// that had no timer before. While the timer is armed the item is pending. Timers expire on the
/// monotonic clock, never early. On an idle machine they are late by the time that a wake takes;
/// [`DelayedWork::with_slack`] and [`DelayedWork::deferrable`] permit more, to save wakes. A delay
/// beyond the range of the clock, 584 years, is cut to that range.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// struct Timeout { work: uwork::DelayedWork<Timeout> }
/// uwork::has_work!(impl HasDelayedWork for Timeout { work });
/// impl uwork::WorkItem for Timeout {
///     type Pointer = Arc<Timeout>;
///     fn run(_this: Arc<Timeout>) {}
/// }
///
/// let queue = uwork::Queue::builder("timeouts").build()?;
/// let timeout = Arc::new(Timeout { work: uwork::DelayedWork::new() });
/// assert!(queue.enqueue_delayed(timeout.clone(), Duration::from_secs(3_600)).is_queued());
/// assert!(timeout.work.is_pending());
/// assert!(timeout.work.cancel().is_some());
/// # Ok::<(), uwork::Error>(())
/// ```
#[repr(transparent)]
pub struct DelayedWork<T, const ID: u64 = 0> {
    pub(crate) raw: Delayed<Linux>,
    /// As in [`Work`](crate::Work).
    pub(crate) marker: PhantomData<fn(T) -> T>,
    pub(crate) pinned: PhantomPinned,
}

// SAFETY: all fields are accessed through the engine's protocols only.
unsafe impl<T, const ID: u64> Send for DelayedWork<T, ID> {}
// SAFETY: as above.
unsafe impl<T, const ID: u64> Sync for DelayedWork<T, ID> {}

/// A type with a [`DelayedWork`] field. Implement it with
/// [`has_work!`](crate::has_work).
///
/// # Safety
/// At [`HasWork::OFFSET`] in every value of the type is its `DelayedWork<Self, ID>`.
#[diagnostic::on_unimplemented(
    message = "no field of `{Self}` is declared as a delayed work item",
    label = "a line `uwork::has_work!(impl HasDelayedWork ...)` for `{Self}` is missing",
    note = "for a field `work: uwork::DelayedWork<{Self}>` add the line: \
            uwork::has_work!(impl HasDelayedWork for {Self} {{ work }});",
    note = "it takes the place of the line with `HasWork`, which is for a field of the type `uwork::Work`"
)]
pub unsafe trait HasDelayedWork<const ID: u64 = 0>: HasWork<ID> {}

impl<T, const ID: u64> DelayedWork<T, ID> {
    fn work(&self) -> &RawWork {
        self.raw.work()
    }
}

embedded_methods!(DelayedWork);

impl<T: WorkItem<ID>, const ID: u64> DelayedWork<T, ID> {
    /// An idle item.
    pub const fn new() -> DelayedWork<T, ID> {
        Self::from_raw(Delayed::new(perform::<T, ID>))
    }

    /// An idle item with a deferrable timer, which never wakes an idle CPU. When it is due, it
    /// waits until a worker of the CPU on which it was armed, or of a near one of its pod, is awake for
    /// another reason. On a CPU with work it is on time; on an idle machine it may wait for ever.
    ///
    /// Otherwise it behaves as other items: [`DelayedWork::flush`] queues it at once. If its queue
    /// ends, its pointer is dropped when the timer is due; if no other queue uses the pool, a
    /// worker does wake for that.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # struct Stats { work: uwork::DelayedWork<Stats> }
    /// # uwork::has_work!(impl HasDelayedWork for Stats { work });
    /// # impl uwork::WorkItem for Stats {
    /// #     type Pointer = Arc<Stats>;
    /// #     fn run(_this: Arc<Stats>) {}
    /// # }
    /// let queue = uwork::Queue::builder("stats").build()?;
    /// let stats = Arc::new(Stats { work: uwork::DelayedWork::deferrable() });
    /// assert!(queue.enqueue_delayed(stats.clone(), Duration::from_secs(3_600)).is_queued());
    /// assert!(stats.work.flush());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub const fn deferrable() -> DelayedWork<T, ID> {
        Self::from_raw(Delayed::deferrable(perform::<T, ID>))
    }

    /// Lets the timer expire at any time from its deadline to `slack` later, so that expiries share
    /// a wake. The engine picks the roundest time in that window, so that other timers pick the
    /// same. On a queue that saves power
    /// ([`housekeeping::set_power_efficient`](crate::housekeeping::set_power_efficient)) it is the time
    /// at which the first window of all timers ends: then all timers expire whose windows are open.
    /// Without saved power, with a slack of a millisecond a pool wakes for timers at most about two thousand times
    /// a second, however many it has. The default is zero; a second call replaces the first.
    ///
    /// A delay of zero uses no timer, and no slack.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # struct Timeout { work: uwork::DelayedWork<Timeout> }
    /// # uwork::has_work!(impl HasDelayedWork for Timeout { work });
    /// # impl uwork::WorkItem for Timeout {
    /// #     type Pointer = Arc<Timeout>;
    /// #     fn run(_this: Arc<Timeout>) {}
    /// # }
    /// let work = uwork::DelayedWork::new().with_slack(Duration::from_millis(50));
    /// let timeout = Arc::new(Timeout { work });
    /// # let queue = uwork::Queue::builder("slack").build()?;
    /// assert!(queue.enqueue_delayed(timeout.clone(), Duration::from_secs(30)).is_queued());
    /// # drop(timeout.work.cancel());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[must_use]
    pub const fn with_slack(self, slack: Duration) -> DelayedWork<T, ID> {
        Self::from_raw(self.raw.with_slack(nanos(slack)))
    }

    const fn from_raw(raw: Delayed<Linux>) -> DelayedWork<T, ID> {
        DelayedWork { raw, marker: PhantomData, pinned: PhantomPinned }
    }

    /// If the item is armed, queues it at once; then waits until its last queueing has run. False
    /// if it was idle.
    pub fn flush(&self) -> bool {
        engine().assert_may_wait();
        // SAFETY: as in `cancel`.
        unsafe { engine().flush_delayed(NonNull::from(&self.raw)) }
    }
}

/// A duration in nanoseconds, cut to the range of the clock.
pub(crate) const fn nanos(delay: Duration) -> u64 {
    let nanos = delay.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl Queue {
    /// Queues an item after `delay`; at once if that is zero. The item is pending from now on. An
    /// item that is not queued is returned.
    ///
    /// The item runs in the pod of the CPU on which the timer expires. A flush makes the timer
    /// expire on the flusher's CPU.
    pub fn enqueue_delayed<P, const ID: u64>(&self, item: P, delay: Duration) -> Enqueued<P>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P> + HasDelayedWork<ID>,
    {
        let raw = item.into_raw();
        let delayed = field::<P::Target, ID>(raw).cast::<Delayed<Linux>>();
        // SAFETY: the pointer keeps the item live and in place; it is taken back when the item has
        // run, was cancelled, or here.
        unsafe {
            let outcome = self.0.queue_delayed(None, delayed, nanos(delay));
            enqueued(raw, outcome.unwrap_or(uwork_engine::Queued::Refused))
        }
    }

    /// As [`Queue::enqueue_delayed`], for `cpu`, as [`Queue::enqueue_on`].
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it. The item is returned.
    pub fn enqueue_delayed_on<P, const ID: u64>(
        &self,
        cpu: u32,
        item: P,
        delay: Duration,
    ) -> Result<Enqueued<P>, RejectedError<P>>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P> + HasDelayedWork<ID>,
    {
        let raw = item.into_raw();
        let delayed = field::<P::Target, ID>(raw).cast::<Delayed<Linux>>();
        // SAFETY: as in `enqueue_delayed`.
        unsafe { accepted(raw, self.0.queue_delayed(Some(cpu), delayed, nanos(delay))) }
    }

    /// Sets the item's delay to `delay` from now, whether it was idle, armed or queued. Returns
    /// `Queued` if it was idle. If it was pending, its time is changed, and this call's pointer,
    /// which the queue does not need, is returned in `Pending`.
    ///
    /// May be called from anywhere, also from inside the item.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # struct Timeout { work: uwork::DelayedWork<Timeout> }
    /// # uwork::has_work!(impl HasDelayedWork for Timeout { work });
    /// # impl uwork::WorkItem for Timeout {
    /// #     type Pointer = Arc<Timeout>;
    /// #     fn run(_this: Arc<Timeout>) {}
    /// # }
    /// use uwork::Enqueued;
    /// let queue = uwork::Queue::builder("watchdogs").build()?;
    /// let timeout = Arc::new(Timeout { work: uwork::DelayedWork::new() });
    /// let hour = Duration::from_secs(3_600);
    /// assert!(matches!(queue.mod_delayed(timeout.clone(), hour), Enqueued::Queued));
    /// assert!(matches!(queue.mod_delayed(timeout.clone(), hour), Enqueued::Pending(_)));
    /// assert!(timeout.work.cancel().is_some());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn mod_delayed<P, const ID: u64>(&self, item: P, delay: Duration) -> Enqueued<P>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P> + HasDelayedWork<ID>,
    {
        let raw = item.into_raw();
        let delayed = field::<P::Target, ID>(raw).cast::<Delayed<Linux>>();
        // SAFETY: as in `enqueue_delayed`.
        unsafe {
            let outcome = self.0.mod_delayed(None, delayed, nanos(delay));
            rearmed(raw, outcome.unwrap_or(Rearmed::Refused))
        }
    }

    /// As [`Queue::mod_delayed`], for `cpu`, wherever it was to run before.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it. The pointer is returned, and the item
    /// is unchanged: an armed item stays armed for its old time.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # struct Timeout { work: uwork::DelayedWork<Timeout> }
    /// # uwork::has_work!(impl HasDelayedWork for Timeout { work });
    /// # impl uwork::WorkItem for Timeout {
    /// #     type Pointer = Arc<Timeout>;
    /// #     fn run(_this: Arc<Timeout>) {}
    /// # }
    /// let queue = uwork::Queue::builder("watchdogs-on").per_cpu().build()?;
    /// let timeout = Arc::new(Timeout { work: uwork::DelayedWork::new() });
    /// let (cpu, hour) = (queue.cpumask().first().unwrap(), Duration::from_secs(3_600));
    /// assert!(queue.mod_delayed_on(cpu, timeout.clone(), hour)?.is_queued());
    /// assert!(queue.mod_delayed_on(1_000_000, timeout.clone(), hour).is_err());
    /// assert!(timeout.work.cancel().is_some());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn mod_delayed_on<P, const ID: u64>(
        &self,
        cpu: u32,
        item: P,
        delay: Duration,
    ) -> Result<Enqueued<P>, RejectedError<P>>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P> + HasDelayedWork<ID>,
    {
        let raw = item.into_raw();
        let delayed = field::<P::Target, ID>(raw).cast::<Delayed<Linux>>();
        // SAFETY: as in `enqueue_delayed`. A failed call left the item unchanged.
        unsafe {
            match self.0.mod_delayed(Some(cpu), delayed, nanos(delay)) {
                Ok(outcome) => Ok(rearmed(raw, outcome)),
                Err(error) => Err(RejectedError { item: P::from_raw(raw), error: error.into() }),
            }
        }
    }
}

/// # Safety
/// `raw` came from `P::into_raw`, and the caller owns it unless `outcome` is `Armed`: if the item
/// was pending, the queue has a pointer of its own.
unsafe fn rearmed<P: WorkPointer>(raw: NonNull<P::Target>, outcome: Rearmed) -> Enqueued<P> {
    // SAFETY: by this function's contract.
    let back = || unsafe { P::from_raw(raw) };
    match outcome {
        Rearmed::Armed => Enqueued::Queued,
        Rearmed::Moved => Enqueued::Pending(back()),
        Rearmed::Disabled => Enqueued::Disabled(back()),
        Rearmed::Refused => Enqueued::Refused(back()),
    }
}
