//! Queues.

use std::fmt;
use std::time::Duration;

use uwork_engine::host::Host;
use uwork_engine::{Attrs, Kind, QueueError, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{EffectiveScope, ScopeChoice};

use crate::builder::Builder;
use crate::error::{Error, RejectedError};
use crate::item::{Enqueued, WorkItem, field};
use crate::linux::{Linux, engine};
use crate::pointer::WorkPointer;

/// A queue of work items. Clones are handles to the same queue.
///
/// Dropping the last handle waits until everything that is queued has run, as
/// [`Queue::destroy`] does; inside a work item that waiting is left to a thread of its own. Armed
/// delayed items do not keep a queue: when they expire after it has gone, they are dropped without
/// being run.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// let queue = uwork::Queue::builder("doc-drop").max_active(2).build()?;
/// for _ in 0..10 {
///     drop(queue.spawn(|| DONE.fetch_add(1, Ordering::Relaxed)));
/// }
/// drop(queue);
/// assert_eq!(DONE.load(Ordering::Relaxed), 10);
/// # Ok::<(), uwork::Error>(())
/// ```
#[derive(Clone)]
pub struct Queue(pub(crate) uwork_engine::Queue<Linux>);

impl Queue {
    /// Starts to describe a queue. The name has 1 to 31 bytes and is unique while the queue lives.
    ///
    /// ```
    /// use uwork::{Queue, Scope, ScopeChoice};
    /// let queue = Queue::builder("per-node")
    ///     .affinity_scope(ScopeChoice::Explicit(Scope::Numa))
    ///     .max_active(16)
    ///     .build()?;
    /// assert_eq!(queue.affinity_scope().unwrap().to_string(), "numa");
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    /// What the queue is for, after the rules for flags were applied.
    pub fn flags(&self) -> Flags {
        self.0.flags()
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Queues an item in the pod of the calling CPU (on that CPU, for a per-CPU queue). One that
    /// is not queued comes back. Wakes a worker only if the pod has none to spare that is awake, and
    /// takes a lock only then; else it takes none and allocates nothing
    /// ([exactly](crate#what-each-call-may-do)).
    ///
    /// What the caller wrote before is visible to the run if this returns `Queued`, and to the
    /// coming run if it returns `Pending`.
    ///
    /// ```
    /// struct Job { work: uwork::Work<Job> }
    /// uwork::has_work!(impl HasWork for Job { work });
    /// impl uwork::WorkItem for Job {
    ///     type Pointer = std::pin::Pin<Box<Job>>;
    ///     fn run(_this: Self::Pointer) {}
    /// }
    /// let queue = uwork::Queue::builder("jobs").build()?;
    /// assert!(queue.enqueue(Box::pin(Job { work: uwork::Work::new() })).is_queued());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[inline]
    pub fn enqueue<P, const ID: u64>(&self, item: P) -> Enqueued<P>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P>,
    {
        let raw = item.into_raw();
        // SAFETY: the pointer keeps the item live and in place; it is taken back when the item has
        // run, was cancelled, or here.
        unsafe { enqueued(raw, self.0.queue(field::<P::Target, ID>(raw))) }
    }

    /// As [`Queue::enqueue`], as if called on `cpu`: on that CPU for a per-CPU queue, in its pod
    /// for an unbound one.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it. The item comes back.
    pub fn enqueue_on<P, const ID: u64>(
        &self,
        cpu: u32,
        item: P,
    ) -> Result<Enqueued<P>, RejectedError<P>>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P>,
    {
        let raw = item.into_raw();
        // SAFETY: as in `enqueue`.
        unsafe { accepted(raw, self.0.queue_on(cpu, field::<P::Target, ID>(raw))) }
    }

    /// As [`Queue::enqueue`], in a pod of this NUMA node: the calling CPU's if it is on the node,
    /// else that of the node's first CPU. As [`Queue::enqueue`] if there is no such node.
    ///
    /// # Errors
    /// The queue is a per-CPU one. The item comes back.
    pub fn enqueue_node<P, const ID: u64>(
        &self,
        node: u32,
        item: P,
    ) -> Result<Enqueued<P>, RejectedError<P>>
    where
        P: WorkPointer,
        P::Target: WorkItem<ID, Pointer = P>,
    {
        let raw = item.into_raw();
        // SAFETY: as in `enqueue`.
        unsafe { accepted(raw, self.0.queue_node(Some(node), field::<P::Target, ID>(raw))) }
    }

    /// Whether items can be queued for this CPU.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it.
    pub fn check_cpu(&self, cpu: u32) -> Result<(), Error> {
        Ok(self.0.check_cpu(cpu)?)
    }

    /// Waits until everything that was queued before this call has run. What is queued later does
    /// not hold it up.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// static DONE: AtomicU32 = AtomicU32::new(0);
    /// let queue = uwork::Queue::builder("flush").build()?;
    /// for _ in 0..100 {
    ///     drop(queue.spawn(|| DONE.fetch_add(1, Ordering::Relaxed)));
    /// }
    /// queue.flush()?;
    /// assert_eq!(DONE.load(Ordering::Relaxed), 100);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn flush(&self) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        Ok(self.0.flush()?)
    }

    /// As [`Queue::flush`], but for `limit` at most. False if some of what was queued before has not run
    /// by then; that goes on as if nobody had waited.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// let queue = uwork::Queue::builder("flush-timeout").build()?;
    /// let (done, wait) = mpsc::channel::<()>();
    /// let stuck = queue.spawn(move || wait.recv());
    /// assert!(!queue.flush_timeout(Duration::from_millis(1))?);
    /// drop(done);
    /// assert!(queue.flush_timeout(Duration::from_secs(60))?);
    /// # assert!(stuck.join().unwrap().is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, Error> {
        self.0.engine().assert_may_wait();
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let deadline = engine().host().now().saturating_add(limit_ns);
        Ok(self.0.flush_until(deadline)?)
    }

    /// Waits until the queue is empty. Meanwhile only its own items may queue more on it; what
    /// others queue is refused.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn drain(&self) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        Ok(self.0.drain()?)
    }

    /// Drains the queue and takes no more items. A second call changes nothing.
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("short-lived").build()?;
    /// queue.destroy()?;
    /// let late = queue.spawn(|| 1);
    /// assert!(matches!(late.join(), Err(uwork::JoinError::Refused)));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn destroy(&self) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        Ok(self.0.destroy()?)
    }

    /// Whether nothing is queued and nothing runs. Out of date as soon as it is known.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Whether items run one at a time and in order.
    pub fn is_ordered(&self) -> bool {
        self.0.is_ordered()
    }

    /// How many items may run at once: see [`Builder::max_active`].
    pub fn max_active(&self) -> u32 {
        self.0.max_active()
    }

    /// Changes `max_active` while the queue is in use: 1 to 2048. A higher limit holds at once. Under
    /// a lower one what runs is finished, and nothing is started until fewer run than it allows.
    /// [`Queue::min_active`] goes down with it, and does not go up again by itself.
    ///
    /// # Errors
    /// Out of range, or the queue is ordered or a BH one.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("throttled").max_active(64).build()?;
    /// queue.set_max_active(4)?;
    /// assert_eq!((queue.max_active(), queue.min_active()), (4, Some(4)));
    /// assert!(queue.set_max_active(0).is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn set_max_active(&self, max_active: u32) -> Result<(), Error> {
        Ok(self.0.set_max_active(max_active)?)
    }

    /// The least that a NUMA node gets of an unbound queue's `max_active`: see
    /// [`Queue::set_min_active`]. None for per-CPU and ordered queues.
    pub fn min_active(&self) -> Option<u32> {
        self.0.min_active()
    }

    /// Changes `min_active` of an unbound queue while it is in use.
    ///
    /// Each NUMA node gets its share of `max_active`, in proportion to the CPUs of it that the queue
    /// uses and rounded up, but at least `min_active`: so the nodes together may run more than
    /// `max_active`. It is 8 if not set, or `max_active` if that is less. More than `max_active`
    /// counts as `max_active`; with that, each node has the whole limit. Pods that span several nodes
    /// share one further limit, the whole `max_active`.
    ///
    /// # Errors
    /// The queue is a per-CPU one, or ordered.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("per-node-floor").max_active(64).build()?;
    /// assert_eq!(queue.min_active(), Some(8));
    /// queue.set_min_active(1_000)?;
    /// assert_eq!(queue.min_active(), Some(64));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn set_min_active(&self, min_active: u32) -> Result<(), Error> {
        Ok(self.0.set_min_active(min_active)?)
    }

    /// Whether items that were queued from the calling CPU wait because as many run as may, or
    /// because the queue is frozen (the kernel's `workqueue_congested`). Items that only wait for a
    /// worker do not count. Out of date as soon as it is known, and true of one CPU or pod only: a
    /// hint for statistics, not for whether to queue.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("congestion").build()?;
    /// assert!(!queue.is_congested());
    /// assert!(!queue.is_congested_on(queue.cpumask().first().unwrap())?);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn is_congested(&self) -> bool {
        self.0.is_congested(None).unwrap_or(false)
    }

    /// As [`Queue::is_congested`], for items that are queued for `cpu`.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it.
    pub fn is_congested_on(&self, cpu: u32) -> Result<bool, Error> {
        Ok(self.0.is_congested(Some(cpu))?)
    }

    /// The scope in force, and how it came about; prints as `default (cache -> cluster)`. None for
    /// per-CPU queues.
    pub fn affinity_scope(&self) -> Option<EffectiveScope> {
        self.0.effective_scope()
    }

    /// Changes the affinity scope while the queue is in use. What is queued already runs where it
    /// is; nothing is lost, and an ordered queue keeps its order.
    ///
    /// # Errors
    /// The queue is a per-CPU or a dedicated one, or no thread could be created; nothing is changed then.
    ///
    /// ```
    /// use uwork::{Queue, Scope, ScopeChoice};
    /// let queue = Queue::builder("tuned").build()?;
    /// queue.set_affinity_scope(ScopeChoice::Explicit(Scope::System))?;
    /// assert_eq!(queue.affinity_scope().unwrap().to_string(), "system");
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn set_affinity_scope(&self, scope: ScopeChoice) -> Result<(), Error> {
        self.check_scoped()?;
        self.change(|attrs| attrs.scope = scope)
    }

    /// Changes whether pods keep to themselves.
    ///
    /// # Errors
    /// As [`Queue::set_affinity_scope`].
    pub fn set_affinity_strict(&self, strict: bool) -> Result<(), Error> {
        self.check_scoped()?;
        self.change(|attrs| attrs.strict = strict)
    }

    /// Changes the workers' niceness, -20 to 19.
    ///
    /// # Errors
    /// Out of range, and as [`Queue::set_affinity_scope`].
    pub fn set_nice(&self, nice: i32) -> Result<(), Error> {
        self.change(|attrs| attrs.nice = nice)
    }

    /// The CPUs in use.
    pub fn cpumask(&self) -> CpuSet {
        self.0.cpus()
    }

    /// Changes the CPUs to use.
    ///
    /// # Errors
    /// None of them may be used by the process, and as [`Queue::set_affinity_scope`].
    pub fn set_cpumask(&self, cpumask: CpuSet) -> Result<(), Error> {
        self.change(|attrs| attrs.cpumask = cpumask)
    }

    /// A thread of one's own is in no pod.
    fn check_scoped(&self) -> Result<(), Error> {
        if matches!(self.0.kind(), Kind::Dedicated(_)) {
            return Err(QueueError::NotForThisKind(
                "affinity_scope and affinity_strict are for unbound and ordered queues; this one has a \
                 thread to itself",
            )
            .into());
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Attrs)) -> Result<(), Error> {
        Ok(self.0.change_attrs(change)?)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// As [`enqueued`], of a call that can be wrong.
///
/// # Safety
/// As [`enqueued`].
pub(crate) unsafe fn accepted<P: WorkPointer>(
    raw: std::ptr::NonNull<P::Target>,
    outcome: Result<Queued, QueueError>,
) -> Result<Enqueued<P>, RejectedError<P>> {
    match outcome {
        // SAFETY: by this function's contract.
        Ok(outcome) => Ok(unsafe { enqueued(raw, outcome) }),
        // SAFETY: as above; a call that was wrong has left the item alone.
        Err(error) => Err(RejectedError { item: unsafe { P::from_raw(raw) }, error: error.into() }),
    }
}

/// # Safety
/// `raw` came from `P::into_raw`, and is nobody else's unless `outcome` is `Yes`.
pub(crate) unsafe fn enqueued<P: WorkPointer>(
    raw: std::ptr::NonNull<P::Target>,
    outcome: Queued,
) -> Enqueued<P> {
    // SAFETY: by this function's contract.
    let back = || unsafe { P::from_raw(raw) };
    match outcome {
        Queued::Yes => Enqueued::Queued,
        Queued::AlreadyPending => Enqueued::Pending(back()),
        Queued::Disabled => Enqueued::Disabled(back()),
        Queued::Refused => Enqueued::Refused(back()),
    }
}
