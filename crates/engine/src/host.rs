//! What the engine needs from the platform, and nothing more.

mod text;

use std::alloc::Layout;
use std::ptr::NonNull;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::FlagsWarning;
use uwork_policy::percpu::Mode;

use crate::cpus::Cpus;
use crate::dump::Stall;
use crate::thread::ThreadState;

/// What a new worker thread should be.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// For the thread's name.
    pub name: String,
    /// The CPUs it may run on.
    pub cpus: CpuSet,
    /// Its niceness; the nearest allowed one is taken.
    pub nice: i32,
}

/// A thread could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError(pub String);

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It has a CPU, or waits for one: another process may have it.
    Runs,
    /// It waits for something else.
    Sleeps {
        /// Since when, by the host's clock, where that is known.
        since: Option<u64>,
    },
    /// A debugger or a signal has stopped it.
    Stopped,
}

/// What [`Host::look`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What the thread is at; nothing if that is not known (records were lost, or there were none yet).
    pub activity: Option<Activity>,
    /// Its last sleep that is over, if that ended since the look before: when it began, by the host's clock,
    /// and how long it was, in nanoseconds.
    pub slept: Option<(u64, u64)>,
}

/// How undeclared sleeps are noticed, and why in this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The way in use.
    pub tier: Tier,
    /// Why this one: what was asked for, what was refused.
    pub reason: String,
}

/// One call of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Frame {
    /// Where the call goes on, or, for the innermost one, where the thread was. That of the caller for a
    /// function that was inlined.
    pub address: usize,
    /// The function's name, if it is known.
    pub symbol: Option<String>,
    /// `file:line`, if that is known.
    pub location: Option<String>,
}

/// Why the calls of a thread are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// It has not answered in time: it blocks signals, or does not get a CPU.
    NoAnswer,
    /// It cannot be asked: the platform cannot do that, or the thread is gone.
    Unavailable,
}

/// Something that the engine's user should hear of.
///
/// Prints as what the default reporter writes on standard error after `uwork: `, without a newline at its
/// end. A [`Stalled`](Report::Stalled) has several lines, all others have one.
/// The default reporter leaves out [`ItemPanicked`](Report::ItemPanicked): the panic hook has spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A work item panicked; the worker lives on.
    ItemPanicked {
        /// The queue's name.
        queue: String,
        /// The panic's message, where it had one.
        message: String,
    },
    /// A queue has been draining for this many rounds and is not empty yet.
    DrainIsLong {
        /// The queue's name.
        queue: String,
        /// Rounds so far.
        rounds: u32,
    },
    /// An item was queued from outside on a queue that drains or is destroyed; it was given back.
    QueuedWhileDraining {
        /// The queue's name.
        queue: String,
    },
    /// A queue's flags were not those that it got.
    FlagsChanged {
        /// The queue's name.
        queue: String,
        /// What was changed.
        warning: FlagsWarning,
    },
    /// A function computed for too long while other items waited, and has done so before. Its queue had
    /// better be unbound, or marked as CPU-intensive.
    CpuIntensive {
        /// The address of the item's function.
        function: usize,
        /// The type that it is for, where the function says so.
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
    /// An item of a BH queue was about to wait, which it must not.
    BhWaits {
        /// The queue's name.
        queue: String,
    },
    /// An item has returned in a read side of RCU that it had begun; the read side was ended. Once for each
    /// queue.
    ReadSideLeft {
        /// The queue's name.
        queue: String,
        /// The function of the item, where that is known.
        function: Option<String>,
    },
    /// The CPUs or the CPU time that the process may use have changed; the workers have been moved.
    CpusChanged {
        /// The CPUs that it may use now.
        allowed: CpuSet,
        /// How many CPUs' worth of time it gets now, if that is limited.
        limit: Option<u32>,
    },
    /// Threads could not have the niceness that their queues want. Once for each wanted niceness.
    NiceNotHad {
        /// What was wanted.
        wanted: i32,
        /// What the threads have instead: the nearest that the process may set.
        got: i32,
    },
    /// Undeclared sleeps are noticed in another way than was asked for, or not for all threads.
    BlockingTier {
        /// The way in use.
        tier: Tier,
        /// Why.
        reason: String,
        /// What is wrong with the environment's wish, where that is ignored.
        ignored: Option<String>,
    },
    /// A debugger or a signal has stopped a worker inside an item, while other items wait. Nobody stands
    /// in.
    WorkerStopped {
        /// The worker's thread.
        thread: u64,
    },
    /// A pool and those that it shares its work with have as many workers as they may have, all of them sleep,
    /// and work waits. Once for each value of the limit.
    WorkersMax {
        /// The pool's label.
        pool: String,
        /// How many workers they may have in all.
        max: u32,
    },
    /// Per-CPU locks are not in the mode that was asked for, or what was asked for is none.
    PerCpuMode {
        /// The mode they are in.
        mode: Mode,
        /// Why.
        reason: String,
    },
    /// A cache was dropped while some of its objects were out. Their memory is kept for ever.
    CacheInUse {
        /// The cache's name.
        cache: String,
        /// How many objects are out.
        objects: usize,
    },
    /// Items wait, and nothing has moved for the watchdog's threshold. Once for each stall.
    Stalled(Box<Stall>),
    /// The system refuses barriers on other CPUs (`membarrier`), which it had allowed. Cheap fences are full ones
    /// from now on. Once.
    BarrierRefused {
        /// The system's error.
        reason: String,
    },
    /// A worker thread could not be created. Its pool goes on with those it has.
    SpawnFailed {
        /// Why.
        reason: String,
    },
}

/// Of memory that stands for pages on a platform that does not say better.
fn page_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("it fits into memory")
}

/// The platform. One implementation pins it to Linux, one runs in virtual time, one under loom.
///
/// All methods may be called from any thread. Timing contracts are part of each method. `now`, the
/// fences, `thread`, `thread_id`, `relax`, and `set_cpus` for other threads than the caller may be
/// called with the engine's locks held, `spawn` with those of the queue that is being made or
/// changed, or of a change of CPUs; all others are called without.
pub trait Host: Send + Sync + Sized + 'static {
    /// Where one thread sleeps until another wakes it.
    ///
    /// A wake that comes first is remembered: the next `park` returns at once.
    type Event: Default + Send + Sync;

    /// The monotonic clock, in nanoseconds. At most some tens of nanoseconds.
    fn now(&self) -> u64;

    /// The CPU that the caller runs on. A hint, stale by the time it is used. A nanosecond or two.
    fn current_cpu(&self) -> u32;

    /// Starts a thread that runs `main`. Tens of microseconds.
    ///
    /// # Errors
    /// When no thread can be created. `main` is dropped.
    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError>;

    /// Sleeps until `event` is woken or the clock reaches `deadline`. May return early.
    ///
    /// True if a wake was consumed; what happened before that wake is then visible. One wake is
    /// consumed once.
    #[must_use]
    fn park(&self, event: &Self::Event, deadline: Option<u64>) -> bool;

    /// Wakes the sleeper of `event`: a system call where it sleeps, an exchange where not.
    ///
    /// # Safety
    /// `event` is live when the call is made. It may go away as soon as its sleeper can return
    /// from `park`; the implementation must not dereference it after making that possible.
    unsafe fn wake(&self, event: *const Self::Event);

    /// Lets other threads of this CPU go first. Returns at once when there are none.
    fn yield_now(&self);

    /// Waits a little for another thread to finish a few instructions; `round` counts the calls
    /// made for one such wait, so that a wait for a preempted thread can grow longer.
    fn relax(&self, round: u32);

    /// The cheap half of an asymmetric fence: on the side that runs all the time.
    fn light_fence(&self);

    /// The dear half: after it, every other thread has passed a full fence since the call began
    /// or will see what the caller stored before it.
    fn heavy_fence(&self);

    /// The calling thread's state, valid until that thread exits.
    fn thread(&self) -> *const ThreadState;

    /// Ends the read sides that another language has begun on the calling thread, but for the first `keep`. The
    /// function of the item that has begun them. Called where an item has forgotten to.
    fn end_read_sides(&self, keep: u32) -> Option<String> {
        let _ = keep;
        None
    }

    /// A number for the calling thread, by which `set_cpus` and `cpu_time` find it while it lives; 0 on a
    /// platform whose threads cannot be moved. A system call at most.
    fn thread_id(&self) -> u64;

    /// The CPU time that a thread has used, in nanoseconds, where that can be known; 0.2 us.
    fn cpu_time(&self, thread: u64) -> Option<u64>;

    /// The calls that a thread is in, innermost first. Microseconds
    /// for a thread that answers at once, and up to tenths of a second. The thread may notice: system calls
    /// that it waits in may return early. Asked for a stall that is to be reported only.
    ///
    /// # Errors
    /// Why there are none.
    fn stack_of(&self, thread: u64) -> Result<Vec<Frame>, NoStack>;

    /// What the host keeps to see when a thread goes to sleep.
    type Sight: Send;

    /// How undeclared sleeps are noticed. May go down while the process runs, not up. A nanosecond or two.
    fn tier(&self) -> Tier;

    /// The same with its reason, for people.
    fn detection(&self) -> Detection;

    /// What a thread is at, as the system sees it; nothing if it is gone or that cannot be known. Some
    /// microseconds.
    fn activity(&self, thread: u64) -> Option<Activity>;

    /// Begins to watch a thread's switches, in the tier of events; ends when the sight is dropped. Tens
    /// of microseconds, the first time some milliseconds. Nothing if the system refuses.
    fn observe(&self, thread: u64) -> Option<Self::Sight>;

    /// What an observed thread is at. Tens of nanoseconds and some for each switch since the last look.
    fn look(&self, sight: &mut Self::Sight) -> Seen;

    /// The same as [`Host::activity`], of an observed thread, which may be cheaper.
    fn activity_of(&self, _sight: &Self::Sight, thread: u64) -> Option<Activity> {
        self.activity(thread)
    }

    /// Sleeps until one of these threads goes to sleep or gets up, or until `deadline`. May return
    /// early, and late where `event` is woken, but not after the deadline.
    fn park_observing(&self, event: &Self::Event, sights: &[&Self::Sight], deadline: u64);

    /// Lets a thread run on these CPUs and on no others, from when the call returns. Does nothing if
    /// the system does not allow that. Some microseconds, more where the thread has to leave a CPU.
    ///
    /// Called with nothing locked that the thread could wait for with work in hand.
    fn set_cpus(&self, thread: u64, cpus: &CpuSet);

    /// Gives the calling thread another name. A microsecond.
    fn rename_thread(&self, name: &str);

    /// What the process may use now, if that may have changed since the last call. Called by one
    /// thread at a time, some times a second while there is work. Some microseconds if nothing has
    /// changed.
    fn cpus_changed(&self) -> Option<Cpus>;

    /// Makes the event as new: whoever slept on it is not there any more. After a fork, in the child.
    fn renew(&self, event: &Self::Event);

    /// Fresh memory of so many bytes, aligned to a page, that is not the allocator's: a fork needs it while the
    /// allocator may be locked. Some microseconds. Where there is none the process ends with a message.
    fn map_pages(bytes: usize) -> NonNull<u8> {
        let layout = page_layout(bytes);
        // SAFETY: not of size 0.
        let pages = unsafe { std::alloc::alloc(layout) };
        NonNull::new(pages).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Gives such memory back.
    ///
    /// # Safety
    /// From [`Host::map_pages`] with so many bytes, and not used any more.
    unsafe fn unmap_pages(pages: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { std::alloc::dealloc(pages.as_ptr(), page_layout(bytes)) };
    }

    /// Ends the process, as a thread that returns does whose process has no other: a child was forked
    /// inside a work item, and the item has returned.
    fn end_forked_thread(&self) -> !;

    /// Tells the user. Called without locks held. Does not unwind.
    fn report(&self, report: Report);

    /// Whether a test wants the engine to be as it was before a defect was cured, to show that it finds the
    /// defect. Never in production.
    #[doc(hidden)]
    #[inline(always)]
    fn reverts(&self, _cure: Cure) -> bool {
        false
    }
}

/// The cure of a defect of progress, which a test can take back.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// The watch looks after timers that no parked worker keeps.
    KeptTimers,
    /// A worker that parks while items wait behind others calls the watch.
    WatchedWork,
    /// A shutdown lets go of one item at a time.
    OneAtATime,
    /// A pwq that moves between the ready lists is visible in one of them.
    ReadyAsOne,
    /// Only a worker of the pool is taken off its running count.
    MarkedRun,
}
