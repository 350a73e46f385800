//! Queues.

use std::fmt;
use std::time::Duration;

use uwork_engine::WorkPointer;
use uwork_engine::host::Host;
use uwork_engine::{Attrs, Kind, QueueError, Queued};
use uwork_linux::{Error, Linux, engine};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScopeChoice, EffectiveAffinityScope};

use crate::builder::Builder;
use crate::error::RejectedError;
use crate::item::{Enqueued, WorkItem, field, nanos};

/// A queue of work items. Clones are handles to the same queue.
///
/// Dropping the last handle waits until everything that is queued has run, as [`Queue::destroy`]
/// does. Inside a work item a separate thread does that waiting. On a thread of an async executor the
/// drop keeps that thread from other futures: await `uwork::unblock(move || queue.destroy())` before
/// it, after which the drop has nothing to wait for. A future of
/// [`spawn_future`](Queue::spawn_future) holds a handle until it is done.
///
/// Armed delayed items do not keep a queue alive: if they expire after its end, they are dropped and do
/// not run.
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
    /// Begins the description of a queue. The name has 1 to 31 bytes and is unique while the queue
    /// lives.
    ///
    /// ```
    /// use uwork::{Queue, AffinityScope, AffinityScopeChoice};
    /// let queue = Queue::builder("per-node")
    ///     .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Numa))
    ///     .max_active(16)
    ///     .build()?;
    /// assert_eq!(queue.affinity_scope().unwrap().to_string(), "numa");
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    /// The queue's flags, after the rules for flags were applied.
    pub fn flags(&self) -> Flags {
        self.0.flags()
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Queues an item for the calling CPU (an unbound queue: or for an idle one of its pod). An item
    /// that is not queued is returned. The call wakes a worker only if none is awake that will take
    /// the item soon, and takes a lock only then; otherwise it takes no lock and allocates nothing
    /// ([exactly](crate#what-each-call-may-do)).
    ///
    /// The caller's earlier writes are visible to the run if this returns `Queued`, and to the
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

    /// As [`Queue::enqueue`], for `cpu`. While that CPU is busy, other CPUs take items of an unbound
    /// queue from it: those of its pod only if the queue is strict.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it. The item is returned.
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

    /// As [`Queue::enqueue`], as if called on this NUMA node: for the calling CPU if it is on the node,
    /// else for the node's first, or for an idle CPU of that one's pod. If the node does not exist, the
    /// same as [`Queue::enqueue`].
    ///
    /// # Errors
    /// The queue is a per-CPU queue. The item is returned.
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

    /// Waits until every item that was queued before this call has run. Items that are queued later
    /// do not delay it. Async code calls it by [`unblock`](crate::unblock).
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

    /// As [`Queue::flush`], but for `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut): some of the items queued before have not run by then;
    /// they run later as usual. Or the caller is in an item of this queue.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use uwork::ErrorKind;
    /// let queue = uwork::Queue::builder("flush-timeout").build()?;
    /// let (done, wait) = mpsc::channel::<()>();
    /// let stuck = queue.spawn(move || wait.recv());
    /// let error = queue.flush_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// drop(done);
    /// queue.flush_timeout(Duration::from_secs(60))?;
    /// # assert!(stuck.join().unwrap().is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        let limit_ns = nanos(limit);
        let deadline = engine().host().now().saturating_add(limit_ns);
        in_time(
            self.0.flush_until(deadline),
            "the limit has passed, and some items queued before the call have not run",
        )
    }

    /// Waits until the queue is empty. Meanwhile only its own items may queue more on it;
    /// submissions from elsewhere are refused. Async code calls it by [`unblock`](crate::unblock).
    ///
    /// # Errors
    /// The caller is in an item of this queue.
    pub fn drain(&self) -> Result<(), Error> {
        self.0.engine().assert_may_wait();
        Ok(self.0.drain()?)
    }

    /// Drains the queue and refuses all later items. A second call changes nothing.
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

    /// Whether nothing is queued and nothing runs. The answer may be out of date on return.
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

    /// Changes `max_active` while the queue is in use: 1 to 2048. For an unbound queue each NUMA node
    /// gets its new share ([`Builder::max_active`]). A higher limit holds at once. A lower limit lets
    /// running items finish, and starts no item until fewer run than it allows. It also lowers
    /// [`Queue::min_active`] where necessary; a later increase does not raise that again.
    ///
    /// # Errors
    /// The number is out of range, or the queue is ordered or a BH queue.
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

    /// How much later than their deadlines timers of the queue may expire, so that they share
    /// wakes.
    pub fn timer_slack(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.timer_slack())
    }

    /// Changes the slack of timers that are armed from now on. An item with a longer slack of its
    /// own keeps it. A slack beyond a period lengthens the period, and is reported once
    /// ([`Report::SlackBeyondPeriod`](crate::Report::SlackBeyondPeriod)); no timer expires early.
    /// [`Builder::timer_slack`](crate::Builder::timer_slack) gives the first value.
    ///
    /// ```
    /// use std::time::Duration;
    /// let queue = uwork::Queue::builder("lenient").build()?;
    /// queue.set_timer_slack(Duration::from_millis(50));
    /// assert_eq!(queue.timer_slack(), Duration::from_millis(50));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn set_timer_slack(&self, slack: std::time::Duration) {
        self.0.set_timer_slack(crate::item::nanos(slack));
    }

    /// The smallest share of an unbound queue's `max_active` that a NUMA node gets: see
    /// [`Queue::set_min_active`]. None for per-CPU and ordered queues.
    pub fn min_active(&self) -> Option<u32> {
        self.0.min_active()
    }

    /// Changes `min_active` of an unbound queue while it is in use.
    ///
    /// Each NUMA node gets a share of `max_active`, in proportion to the number of its CPUs that
    /// the queue uses, rounded up, but at least `min_active`. So the nodes together may run more
    /// than `max_active`. The default is 8, or `max_active` if that is less. A value above
    /// `max_active` counts as `max_active`; each node then has the whole limit. Pods that span
    /// several nodes share one further limit, the whole `max_active`.
    ///
    /// # Errors
    /// The queue is per-CPU or ordered.
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

    /// Whether items that were queued from the calling CPU, or from another one of its pod, wait
    /// because the limit of running items is reached or the queue is frozen (the kernel's
    /// `workqueue_congested`). Items that only wait for a worker do not count. The answer may be out
    /// of date on return: use it for statistics, not to decide whether to queue.
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

    /// The affinity scope in force, and how it was chosen; prints as `default (cache -> cluster)`.
    /// None for
    /// per-CPU queues.
    pub fn affinity_scope(&self) -> Option<EffectiveAffinityScope> {
        self.0.effective_scope()
    }

    /// Changes the affinity scope while the queue is in use. Items already queued run in the pod
    /// where they were queued; none is lost, and an ordered queue keeps its order.
    ///
    /// # Errors
    /// The queue is a per-CPU or a dedicated one, or no thread could be created; then nothing
    /// changes.
    ///
    /// ```
    /// use uwork::{Queue, AffinityScope, AffinityScopeChoice};
    /// let queue = Queue::builder("tuned").build()?;
    /// queue.set_affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))?;
    /// assert_eq!(queue.affinity_scope().unwrap().to_string(), "system");
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn set_affinity_scope(&self, scope: AffinityScopeChoice) -> Result<(), Error> {
        self.check_scoped()?;
        self.change(|attrs| attrs.scope = scope)
    }

    /// Changes whether pods refuse to share items: see [`Builder::affinity_strict`].
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
    /// The number is out of range, and as [`Queue::set_affinity_scope`].
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
    /// The process may use none of these CPUs, and as [`Queue::set_affinity_scope`].
    pub fn set_cpumask(&self, cpumask: CpuSet) -> Result<(), Error> {
        self.change(|attrs| attrs.cpumask = cpumask)
    }

    /// A dedicated queue belongs to no pod, so that a scope means nothing for it.
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

/// The answer of a wait with a limit: an error if it was not over in time.
pub(crate) fn in_time(
    outcome: Result<bool, QueueError>,
    what_has_not_ended: &'static str,
) -> Result<(), Error> {
    match outcome? {
        true => Ok(()),
        false => Err(QueueError::TimedOut(what_has_not_ended).into()),
    }
}

/// As [`enqueued`], for a call that can fail.
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
        // SAFETY: as above; a failed call left the item unchanged.
        Err(error) => Err(RejectedError { item: unsafe { P::from_raw(raw) }, error: error.into() }),
    }
}

/// # Safety
/// `raw` came from `P::into_raw`, and the caller owns it unless `outcome` is `Yes`.
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
