//! Everything that the engine needs from the platform.

mod cpus;
mod demands;
mod observer;
mod pages;
mod probe;
mod text;
pub(crate) mod thread;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;
use uwork_policy::percpu::Mode;

use crate::words::dump::Stall;
use crate::words::trace::Tracer;
pub(crate) use cpus::Places;
pub use cpus::{Cpus, Placement};
pub use demands::{Demands, Wanted};
pub use observer::{Activity, Detection, Frame, Heard, NoStack, Observer, ThreadSample};
pub use pages::{Forks, PageList, Pages};
pub use probe::{ItemPoint, ItemProbe, SubmissionProbe};

pub use thread::ThreadState;

/// The properties of a new thread of the engine's.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// For the thread's name.
    pub name: String,
    /// The CPUs it may run on; with none, the host leaves it where it is.
    pub cpus: CpuSet,
    /// Its niceness; the nearest permitted value is used.
    pub nice: i32,
    /// How it runs items. None if it runs none.
    pub runner: Option<Runner>,
}

/// How a thread runs items. Constant from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its kind.
    pub kind: ThreadKind,
    /// The queue for which it was started, if it was started for a single one.
    pub queue: Option<String>,
}

/// The kinds of threads that run items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadKind {
    /// A worker of a pool that several queues share.
    Worker,
    /// The worker that runs the items of BH queues for a CPU.
    Bh,
    /// The only worker of a dedicated queue.
    Dedicated,
    /// The rescuer of a `MEM_RECLAIM` queue.
    Rescuer,
    /// A thread that the engine did not start for items, and that runs one while it waits.
    Helper,
}

/// A thread could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError(pub String);

/// An event that the engine's user should know of.
///
/// Its `Display` text is what the default reporter writes on standard error after `uwork: `,
/// without a final newline. A [`Stalled`](Report::Stalled) has several lines, every other report
/// has a single line. The default reporter omits [`ItemPanicked`](Report::ItemPanicked), because
/// the panic hook has printed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A work item panicked; the worker continues.
    ItemPanicked {
        /// The queue's name.
        queue: String,
        /// The panic's message, or empty if it had none.
        message: String,
    },
    /// A queue has been draining for this many rounds and is not empty yet.
    DrainIsLong {
        /// The queue's name.
        queue: String,
        /// Rounds so far.
        rounds: u32,
    },
    /// An item was enqueued from outside on a queue that drains or is being destroyed; it was
    /// refused.
    QueuedWhileDraining {
        /// The queue's name.
        queue: String,
    },
    /// A queue's flags were inconsistent, and were changed.
    FlagsChanged {
        /// The queue's name.
        queue: String,
        /// What was changed.
        warning: FlagsWarning,
    },
    /// A function computed for too long while other items waited, and not for the first time. Its
    /// queue should be unbound, or marked as CPU-intensive.
    CpuIntensive {
        /// The address of the item's function.
        function: usize,
        /// The type that it serves, if the function gives it.
        name: Option<String>,
        /// How often so far.
        count: u64,
        /// CPU time that the present run has used, in nanoseconds.
        used_ns: u64,
    },
    /// An item of a `MEM_RECLAIM` queue waits for a queue that may need new threads.
    FlushDependency {
        /// The queue of the item that waits.
        from: String,
        /// The queue that it waits for.
        on: String,
    },
    /// A future on another executor's thread waits for items, which keeps that thread from its other
    /// futures. Reported once for each thread, and only where the program asked for it.
    WaitInFuture {
        /// The thread's name.
        thread: String,
    },
    /// An item of a BH queue was about to wait, which is forbidden.
    BhWaits {
        /// The queue's name.
        queue: String,
    },
    /// An item returned inside an RCU read side that it had begun; the engine ended the read side.
    /// Reported once for each queue.
    ReadSideLeft {
        /// The queue's name.
        queue: String,
        /// The item's function, if known.
        function: Option<String>,
    },
    /// An item arms itself again and again for the same delay, which is shorter than its slack: the
    /// time between two runs may more than double. Reported once for each queue.
    SlackBeyondPeriod {
        /// The queue's name.
        queue: String,
        /// The delay for which the item arms itself, in nanoseconds.
        period_ns: u64,
        /// Its slack or the queue's, whichever is longer, in nanoseconds.
        slack_ns: u64,
    },
    /// An environment variable of uwork's has a value that is not permitted. It is ignored.
    VariableIgnored {
        /// The variable's name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The permitted values.
        allowed: String,
    },
    /// The process may use none of the CPUs that were chosen for unbound queues. They use others
    /// until one of the chosen CPUs is back. Reported once each time that this happens.
    CpumaskWithoutCpu {
        /// The chosen CPUs.
        cpumask: CpuSet,
        /// The CPUs that unbound queues use instead.
        used: CpuSet,
    },
    /// The CPUs or the CPU time that the process may use have changed; the workers have been moved.
    CpusChanged {
        /// The CPUs that it may use now.
        allowed: CpuSet,
        /// How many CPUs' worth of time it gets now, if that is limited.
        limit: Option<u32>,
    },
    /// The system had no descriptor for files that describe the machine when the first queue was made.
    /// What they say is unknown for the life of the process: queues may not follow its caches and NUMA
    /// nodes. Limits of CPU time are read again later. Reported once.
    MachineUnread {
        /// The system's error.
        reason: String,
    },
    /// The system refused threads the niceness that their queues want. Reported once for each such
    /// niceness.
    NiceRefused {
        /// The wanted niceness.
        wanted: i32,
        /// The niceness that the threads have instead: the nearest that the process may set.
        got: i32,
    },
    /// The system refused threads the scheduling policy of the process. Reported once.
    PolicyRefused {
        /// The policy of the process, with its priority if it is real-time.
        wanted: String,
        /// The policy that the threads have instead: that of the thread which created them.
        got: String,
        /// The system's error.
        reason: String,
    },
    /// Undeclared blocks are detected in another way than requested, or not for all threads.
    BlockingTier {
        /// The tier in use.
        tier: Tier,
        /// The reason.
        reason: String,
        /// What is wrong with the value in the environment, if that is ignored.
        ignored: Option<String>,
    },
    /// A worker was stopped inside an item by a debugger or a signal for 100 ms or longer, while other
    /// items wait. It is not replaced.
    WorkerStopped {
        /// The worker's thread.
        thread: u64,
    },
    /// An item waited in a pool that lacked a worker for no known reason. The watcher has added one. This
    /// is a defect of the engine; a debug build ends the process after this report.
    WorkerMissing {
        /// The pool's label.
        pool: String,
        /// For how long the pool lacked the worker, in nanoseconds.
        missing_ns: u64,
    },
    /// A pool and those that it shares its work with have as many workers as they may have, all of
    /// them block, and items wait. Reported once for each value of the limit.
    WorkersMax {
        /// The pool's label.
        pool: String,
        /// How many workers they may have together.
        max: u32,
    },
    /// Per-CPU locks are not in the requested mode, or the requested mode does not exist.
    PerCpuMode {
        /// The mode they are in.
        mode: Mode,
        /// The reason.
        reason: String,
    },
    /// A cache was dropped while some of its objects were in use. Their memory is never freed.
    CacheInUse {
        /// The cache's name.
        cache: String,
        /// How many objects are in use.
        objects: usize,
    },
    /// Items wait, and none has made progress for the watchdog's threshold. Reported once for each
    /// stall.
    Stalled(Box<Stall>),
    /// The system refuses barriers on other CPUs (`membarrier`), which it permitted before. Light
    /// fences are full fences from now on. Reported once.
    BarrierRefused {
        /// The system's error.
        reason: String,
    },
    /// A thread hook panicked; the thread continues without what the hook was to do.
    HookPanicked {
        /// The thread's name.
        thread: String,
        /// Whether it was the thread's end that the hook was called for, not its start.
        ends: bool,
        /// The panic's message, or empty if it had none.
        message: String,
    },
    /// The process has no control socket, so that no operator can look in from outside. Reported once;
    /// not if `UWORK_CONTROL=0` asks for it.
    NoControlSocket {
        /// The reason, for each folder in which the socket could be.
        reason: String,
    },
    /// A worker thread could not be created. Its pool continues with its present workers.
    SpawnFailed {
        /// The reason.
        reason: String,
    },
    /// The CPUs of the process or the settings of all queues have changed, and the engine has no pools, or
    /// no room for a queue's own part of them, left for some queues. Their items run in the pools of
    /// before, whose workers were moved.
    RoutesKept {
        /// The reason.
        reason: String,
    },
}

/// An event on which one thread sleeps until another wakes it.
///
/// A wake that comes first is remembered: the next [`Host::park`] returns at once.
pub trait Event: Default + Send + Sync {
    /// Resets the event: its sleeper no longer exists. Called in the child after a fork, so never
    /// on a platform without forks.
    fn renew(&self) {
        unreachable!("this platform does not fork");
    }
}

/// The platform: what every host must give. One implementation is for Linux, another runs in
/// virtual time, another under loom.
///
/// Three more traits have the rest. [`Observer`] says what other threads do, [`Placement`] says
/// where threads run, and [`Forks`] is for a host whose process forks.
///
/// All methods may be called from any thread. Timing contracts are part of each method. Some
/// methods may be called while the engine's locks are held: `now`, the fences, `thread`,
/// `thread_id`, `relax`, and [`Placement::set_cpus`] for other threads than the caller. `spawn` may
/// be called with the locks of the queue that is being made or changed, or of a change of CPUs. All
/// other methods are called without locks.
pub trait Host: Placement + Forks + Send + Sync + Sized + 'static {
    /// See [`Event`].
    type Event: Event;

    /// The part of the host that observes threads.
    type Observer: Observer<Event = Self::Event>;

    /// That part. Takes no time.
    fn observer(&self) -> &Self::Observer;

    /// The monotonic clock, in nanoseconds. Takes some tens of nanoseconds at most.
    fn now(&self) -> u64;

    /// The CPU that the caller runs on. A hint, stale by the time it is used. Takes a nanosecond or
    /// two.
    fn current_cpu(&self) -> u32;

    /// Starts a thread that runs `main`. Takes tens of microseconds.
    ///
    /// # Errors
    /// No thread can be created. `main` is dropped.
    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError>;

    /// Sleeps until `event` is woken or the clock reaches `deadline`. May return early.
    ///
    /// Returns true if a wake was consumed; everything before that wake is then visible. Each wake
    /// is consumed once.
    #[must_use]
    fn park(&self, event: &Self::Event, deadline: Option<u64>) -> bool;

    /// Wakes the sleeper of `event`: a system call if it sleeps, otherwise an exchange.
    ///
    /// # Safety
    /// `event` is live when the call is made. It may be destroyed as soon as its sleeper can return
    /// from `park`; the implementation must not dereference it after making that possible.
    unsafe fn wake(&self, event: *const Self::Event);

    /// Lets other threads of this CPU run first. Returns at once if there are none.
    fn yield_now(&self);

    /// Waits briefly for another thread to finish a few instructions. `round` counts the calls made
    /// for the same wait, so that a wait for a preempted thread can back off.
    fn relax(&self, round: u32);

    /// The light half of an asymmetric fence, for the frequent side.
    fn light_fence(&self);

    /// The heavy half: when it returns, every other thread has passed a full fence since the call
    /// began, or will see what the caller stored before the call.
    fn heavy_fence(&self);

    /// The calling thread's state, valid until that thread exits.
    fn thread(&self) -> *const ThreadState;

    /// A number for the calling thread, by which [`Placement`] and [`Observer`] find it while it
    /// lives; 0 on a platform whose threads cannot be moved. Costs at most one system call.
    fn thread_id(&self) -> u64;

    /// How often the calling thread has waited off the CPU. Costs at most one system call. `None` on
    /// a platform that does not count.
    fn waits(&self) -> Option<u64> {
        None
    }

    /// Ends the read sides that another language has begun on the calling thread, except for the
    /// first `keep`. Returns the function of the item that began them. Called when an item failed
    /// to end them.
    fn end_read_sides(&self, keep: u32) -> Option<String> {
        let _ = keep;
        None
    }

    /// The watcher's thread begins, and calls this. `event` wakes it. A host has what it wants done
    /// on a thread that sleeps most of the time in [`Host::watcher_woke`].
    ///
    /// # Safety
    /// `event` lives until the engine ends.
    unsafe fn watcher_begins(&self, event: *const Self::Event) {
        let _ = event;
    }

    /// The watcher has woken. Called on its thread without locks; takes microseconds at most, or a
    /// thread's creation.
    fn watcher_woke(&self) {}

    /// Delivers a report to the user. Called without locks held. Does not unwind.
    fn report(&self, report: Report);

    /// The calling thread, which `thread` belongs to, is about to run items of a queue that makes these
    /// demands. Called by workers, once for each batch, without locks. Takes a load if the host has
    /// nothing to do; otherwise it may call user code, and block.
    #[inline(always)]
    fn before_items(&self, thread: &ThreadState, demands: &Demands) {
        let _ = (thread, demands);
    }

    /// What the calling thread is to do, by [`Host::prepare`], before it helps with an item of a queue
    /// that makes these demands; None if nothing is left to do. Called under locks. Takes a load if the
    /// host has nothing to do.
    #[inline(always)]
    fn wanted(&self, thread: &ThreadState, demands: &Demands) -> Option<Wanted> {
        let _ = (thread, demands);
        None
    }

    /// Does what [`Host::wanted`] has returned; its demands are not wanted again. As
    /// [`Host::before_items`].
    fn prepare(&self, thread: &ThreadState, wanted: Wanted) {
        let _ = (thread, wanted);
    }

    /// Whether the calling worker, which is between two batches or about to park, is to call
    /// [`Host::call_hooks`]. Takes a load if the host has nothing to do. False after that call.
    #[inline(always)]
    fn hooks_are_due(&self, thread: &ThreadState) -> bool {
        let _ = thread;
        false
    }

    /// Calls user code, which may block. The calling worker is outside of items and off its pool's
    /// running count.
    fn call_hooks(&self, thread: &ThreadState) {
        let _ = thread;
    }

    /// The calling thread is outside of items: a helper has left its outermost one, or a rescuer is
    /// about to park. As [`Host::before_items`].
    #[inline(always)]
    fn outside_items(&self, thread: &ThreadState) {
        let _ = thread;
    }

    /// The trace of the engine; None on a platform without one, where it costs nothing.
    #[inline(always)]
    fn tracer(&self) -> Option<&Tracer> {
        None
    }

    /// An item is about to be queued. A host without tools for this does nothing; another asks for
    /// the values only while a tool looks. May be called with a lock, and on the hottest path.
    #[inline(always)]
    fn probe_submission<'a>(&self, values: impl Fn() -> SubmissionProbe<'a>) {
        let _ = values;
    }

    /// An item is at this point; as [`Host::probe_submission`]. May be called with a lock.
    #[inline(always)]
    fn probe_item(&self, point: ItemPoint, values: impl Fn() -> ItemProbe) {
        let _ = (point, values);
    }

    /// Whether the host grants memory without which the engine goes on. A host for tests may refuse
    /// it; elsewhere the allocator decides.
    #[doc(hidden)]
    #[inline(always)]
    fn grants_memory(&self) -> bool {
        true
    }

    /// The calling worker has looked for work, and is about to join the idle workers of its pool. A host
    /// for tests may let time pass here.
    #[doc(hidden)]
    #[inline(always)]
    fn about_to_park(&self) {}
}
