//! Everything that the engine needs from the platform.

mod cpus;
mod pages;
mod text;
pub(crate) mod thread;

use std::alloc::Layout;
use std::ptr::NonNull;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;
use uwork_policy::percpu::Mode;

use crate::dump::Stall;
pub use cpus::Cpus;
pub use pages::{PageList, Pages};

pub use thread::ThreadState;

/// The properties of a new worker thread.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// For the thread's name.
    pub name: String,
    /// The CPUs it may run on.
    pub cpus: CpuSet,
    /// Its niceness; the nearest permitted value is used.
    pub nice: i32,
}

/// A thread could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError(pub String);

/// What a thread does, as the system sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It has a CPU, or waits for a CPU that another thread or process has.
    Runs,
    /// It waits for anything else.
    Sleeps {
        /// Since when, by the host's clock, if known.
        since: Option<u64>,
    },
    /// It was stopped by a debugger or a signal.
    Stopped,
}

/// A sample of an observed thread: the result of [`Host::look`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What the thread does; None if unknown (records were lost, or none exist yet).
    pub activity: Option<Activity>,
    /// Its last completed sleep, if that ended since the previous sample: when it began, by the
    /// host's clock, and how long it lasted, in nanoseconds.
    pub slept: Option<(u64, u64)>,
}

/// How undeclared blocks are detected, and why in this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The tier in use.
    pub tier: Tier,
    /// The reason: what was requested, and what the system refused.
    pub reason: String,
}

/// One call on a thread's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Frame {
    /// The address at which the call continues; for the innermost call, the address that the thread
    /// had reached. An inlined function has its caller's address.
    pub address: usize,
    /// The function's name, if it is known.
    pub symbol: Option<String>,
    /// `file:line`, if known.
    pub location: Option<String>,
}

/// Why the calls of a thread are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// It has not answered in time: it blocks signals, or gets no CPU.
    NoAnswer,
    /// It cannot be asked: the platform has no means, or the thread has ended.
    Unavailable,
}

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
    /// The CPUs or the CPU time that the process may use have changed; the workers have been moved.
    CpusChanged {
        /// The CPUs that it may use now.
        allowed: CpuSet,
        /// How many CPUs' worth of time it gets now, if that is limited.
        limit: Option<u32>,
    },
    /// The system refused threads the niceness that their queues want. Reported once for each such
    /// niceness.
    NiceRefused {
        /// The wanted niceness.
        wanted: i32,
        /// The niceness that the threads have instead: the nearest that the process may set.
        got: i32,
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
    /// A worker was stopped inside an item by a debugger or a signal, while other items wait. It is
    /// not replaced.
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
    /// A worker thread could not be created. Its pool continues with its present workers.
    SpawnFailed {
        /// The reason.
        reason: String,
    },
}

/// The layout of memory that stands for pages, on a platform without a better source of them.
fn page_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("it fits into memory")
}

/// The platform. One implementation is for Linux, another runs in virtual time, another under loom.
///
/// All methods may be called from any thread. Timing contracts are part of each method. Some
/// methods may be called while the engine's locks are held: `now`, the fences, `thread`,
/// `thread_id`, `relax`, and `set_cpus` for other threads than the caller. `spawn` may be called
/// with the locks of the queue that is being made or changed, or of a change of CPUs. All other
/// methods are called without locks.
pub trait Host: Send + Sync + Sized + 'static {
    /// An event on which one thread sleeps until another wakes it.
    ///
    /// A wake that comes first is remembered: the next `park` returns at once.
    type Event: Default + Send + Sync;

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

    /// Ends the read sides that another language has begun on the calling thread, except for the
    /// first `keep`. Returns the function of the item that began them. Called when an item failed
    /// to end them.
    fn end_read_sides(&self, keep: u32) -> Option<String> {
        let _ = keep;
        None
    }

    /// A number for the calling thread, by which `set_cpus` and `cpu_time` find it while it lives;
    /// 0 on a platform whose threads cannot be moved. Costs at most one system call.
    fn thread_id(&self) -> u64;

    /// The CPU time that a thread has used, in nanoseconds, if known. Takes 0.2 us.
    fn cpu_time(&self, thread: u64) -> Option<u64>;

    /// The calls that a thread is in, innermost first. Takes microseconds for a thread that answers
    /// at once, and up to tenths of a second. The thread may notice: system calls that it waits in
    /// may return early. Used only for a stall that is about to be reported.
    ///
    /// # Errors
    /// Why the calls are unknown.
    fn stack_of(&self, thread: u64) -> Result<Vec<Frame>, NoStack>;

    /// The host's state for an observed thread, from which it detects that the thread blocks.
    type Sight: Send;

    /// How undeclared blocks are detected. The tier may drop while the process runs; it never
    /// rises. Takes a nanosecond or two.
    fn tier(&self) -> Tier;

    /// The tier with its reason, for people.
    fn detection(&self) -> Detection;

    /// What a thread does, as the system sees it; None if the thread has ended or this is unknown.
    /// Takes some microseconds.
    fn activity(&self, thread: u64) -> Option<Activity>;

    /// Begins to observe a thread's context switches, in the tier of events; ends when the result
    /// is dropped. Takes tens of microseconds, the first time some milliseconds. None if the system
    /// refuses.
    fn observe(&self, thread: u64) -> Option<Self::Sight>;

    /// Samples an observed thread. Takes tens of nanoseconds, and a few more for each switch since
    /// the previous sample.
    fn look(&self, sight: &mut Self::Sight) -> Seen;

    /// As [`Host::activity`], for an observed thread, which may be cheaper.
    fn activity_of(&self, _sight: &Self::Sight, thread: u64) -> Option<Activity> {
        self.activity(thread)
    }

    /// Sleeps until one of these threads blocks or wakes, or until `deadline`. May return early.
    /// May return late if `event` is woken, but never after the deadline.
    fn park_observing(&self, event: &Self::Event, sights: &[&Self::Sight], deadline: u64);

    /// Restricts a thread to these CPUs, from when the call returns. Does nothing if the system
    /// does not permit that. Takes some microseconds, more if the thread must leave a CPU.
    ///
    /// The caller holds no lock that the thread could wait for while it has items.
    fn set_cpus(&self, thread: u64, cpus: &CpuSet);

    /// Renames the calling thread. Takes a microsecond.
    fn rename_thread(&self, name: &str);

    /// What the process may use now, if that may have changed since the last call. Called by a
    /// single thread at a time, several times a second while there is work. Takes some microseconds
    /// if nothing has changed.
    fn cpus_changed(&self) -> Option<Cpus>;

    /// Resets the event: its sleeper no longer exists. Called in the child after a fork.
    fn renew(&self, event: &Self::Event);

    /// Fresh memory of so many bytes, aligned to a page, not from the allocator, which may be
    /// locked during a fork. Takes some microseconds. If there is no memory the process ends with a
    /// message.
    fn map_pages(bytes: usize) -> NonNull<u8> {
        let layout = page_layout(bytes);
        // SAFETY: the size is not 0.
        let pages = unsafe { std::alloc::alloc(layout) };
        NonNull::new(pages).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Frees such memory.
    ///
    /// # Safety
    /// The memory came from [`Host::map_pages`] with the same size, and is no longer used.
    unsafe fn unmap_pages(pages: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { std::alloc::dealloc(pages.as_ptr(), page_layout(bytes)) };
    }

    /// Ends the process, in the way in which a process ends when its only thread returns. Called
    /// when a child was forked inside a work item and the item has returned there.
    fn end_forked_thread(&self) -> !;

    /// Delivers a report to the user. Called without locks held. Does not unwind.
    fn report(&self, report: Report);

    /// Whether a test asks the engine to behave as before the cure of a defect, to show that the
    /// test finds the defect. Never in production.
    #[doc(hidden)]
    #[inline(always)]
    fn reverts(&self, _cure: Cure) -> bool {
        false
    }
}

/// The cure of a defect of progress, which a test can revert.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// The watcher covers timers that no keeper covers.
    KeptTimers,
    /// A worker that parks while items wait behind running workers calls the watcher.
    WatchedWork,
    /// A shutdown disposes of one item at a time.
    OneAtATime,
    /// A pwq that moves between the ready lists is visible in one of them.
    ReadyAsOne,
    /// Only a worker of the pool is taken off its running count.
    MarkedRun,
    /// A submitter settles the pool that it has made ready.
    SettledSubmission,
}
