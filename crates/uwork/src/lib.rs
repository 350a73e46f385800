//! Linux workqueues in user space.
//!
//! A *work item* is a function and a few words of state, embedded in the type that needs the work
//! done. A *queue* runs items on managed pools of worker threads that know the machine's caches and
//! NUMA nodes. Submitting normally allocates nothing and takes no lock
//! ([exactly](#what-each-call-may-do)). An item is never queued twice and never runs twice at once.
//! It can be flushed, cancelled and disabled at any time.
//!
//! ```
//! let queue = uwork::Queue::builder("hello").build()?;
//! let answer = queue.spawn(|| 6 * 7);
//! assert_eq!(answer.join().unwrap(), 42);
//! # Ok::<(), uwork::Error>(())
//! ```
//!
//! **Queues**: [`Queue`] and its [`Builder`]; [`system`] has ready-made ones; [`freeze`](mod@freeze)
//! pauses them, [`shutdown`] ends them in order.
//!
//! **Items**: [`Work`] and [`DelayedWork`], embedded in your own types; [`Queue::spawn`] and
//! [`Queue::spawn_future`] for closures and futures. [`current_work`], [`set_worker_desc`] and
//! [`Work::busy`] say which item runs.
//!
//! **Scopes**: [`scope`](fn@scope) for closures that borrow; [`on_stack`], [`work_on_cpu`] and
//! [`on_each_cpu`] for items that end with the call.
//!
//! **Blocking**: [`blocking`] declares that an item is about to wait; [`Setup`] chooses how
//! undeclared waits are detected.
//!
//! **Threads**: [`threads`] calls functions at the start and the end of each thread that runs items, and
//! keeps state for it.
//!
//! **A running process**: [`dump()`] shows the state, [`counters`] counts, [`watchdog`] reports pools that make no
//! progress; `control` lets operators look in from outside; [`topology`] is the machine as uwork sees it.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `symbols` (default) | names of functions, and call stacks of stuck workers |
//! | `percpu` | `percpu`: data for each CPU, reached from all of them; `Setup::percpu_mode` |
//! | `rcu` | `rcu`: items that are queued after a grace period; `Queue::enqueue_rcu` |
//! | `task` | `task`, `combine`, `recycle`: work for a given thread, one sender for all, reusable buffers |
//! | `ring` | `task`, and `ring`: threads that wait for io_uring and for task work at once |
//! | `sysfs` | `sysfs`: the kernel's attribute tree, with the tunable attributes and parameters |
//! | `control` (default) | `control`: the socket of operators and of the command `uwork`; `symbols`, `sysfs` |
//! | `tracing` | a span of `tracing` for each run of an item, an event for each report |
//!
//! The guarantees of the kernel's workqueues hold here too; the project's `docs/semantics.md` goes
//! through them row by row.
//!
//! # What each call may do
//!
//! <!-- calls: begin -->
//! The first four columns say what a call may do: allocate, take a mutex of
//! the library, make a thread, sleep until another thread makes progress.
//! The last four say where it may be called: in an item, in an item of a BH
//! queue, in a signal handler, in a forked child. A number: only as that
//! note says. The wait for a mutex, or for an item that another thread
//! moves, is no sleep: it lasts for a few instructions of that thread.
//!
//! |call                    |alloc|lock|thread|sleep|item|BH |signal|child|
//! |------------------------|-----|----|------|-----|----|---|------|-----|
//! |queue an item           |1    |1   |2     |no   |yes |yes|no    |yes  |
//! |queue on a CPU or node  |1    |1   |2     |no   |yes |yes|no    |yes  |
//! |arm, re-arm a timer     |3,4  |yes |4     |no   |yes |yes|no    |yes  |
//! |cancel, disable         |4    |5   |4     |no   |yes |yes|no    |yes  |
//! |cancel_sync and its like|4    |5   |4     |6    |yes |7  |no    |yes  |
//! |enable                  |no   |no  |no    |no   |yes |yes|no    |yes  |
//! |flush an item           |4,8  |5   |4     |6    |yes |no |no    |yes  |
//! |flush, drain a queue    |4    |yes |4     |6    |9   |no |no    |yes  |
//! |join a handle           |4,8  |5   |4     |6    |9   |7  |no    |10   |
//! |join two closures       |20   |20  |2     |20   |yes |yes|no    |10   |
//! |spawn a closure, future |yes  |1   |2     |no   |yes |yes|no    |yes  |
//! |execute closures        |21   |1   |2     |no   |yes |yes|no    |yes  |
//! |enqueue_all             |22   |1   |2     |no   |yes |yes|no    |yes  |
//! |scope                   |yes  |yes |2,4   |yes  |yes |no |no    |yes  |
//! |blocking                |4    |11  |4     |no   |yes |no |no    |yes  |
//! |unpinned                |23   |23  |no    |no   |yes |yes|no    |yes  |
//! |make a queue            |yes  |yes |yes   |no   |yes |yes|no    |yes  |
//! |destroy a queue         |4    |yes |4     |6    |9   |no |no    |yes  |
//! |drop its last handle    |12   |yes |12    |12   |yes |yes|no    |yes  |
//! |change its attributes   |yes  |yes |yes   |no   |yes |yes|no    |yes  |
//! |freeze, thaw            |yes  |yes |4     |no   |yes |yes|no    |yes  |
//! |per-CPU lock, own CPU   |13   |no  |no    |14   |yes |yes|15    |yes  |
//! |lock other CPU, mode 0  |16   |16  |16    |yes  |yes |no |no    |yes  |
//! |lock other CPU, mode 1,2|13   |no  |no    |14   |yes |yes|no    |yes  |
//! |per-CPU cache           |17   |17  |no    |no   |yes |yes|no    |yes  |
//! |per-CPU work, mode 0    |1    |1   |2     |no   |yes |yes|no    |yes  |
//! |per-CPU work, modes 1, 2|yes  |yes |no    |18   |yes |yes|no    |yes  |
//! |add task work           |no   |no  |no    |19   |yes |yes|no    |10   |
//! |run task work           |no   |yes |no    |18   |yes |yes|no    |yes  |
//! |dump                    |yes  |yes |no    |no   |yes |yes|no    |yes  |
//! |shutdown                |yes  |yes |yes   |6    |no |no |no    |yes  |
//!
//! 1. If a worker must be woken or the watcher called, as for the first
//!    item of a burst: mutexes of the pool, of the watcher, and, where a
//!    worker is moved between pools, of the other pool. The pool's list of
//!    workers may grow. Otherwise neither.
//! 2. If the pool has no worker, or the watcher does not run yet, as in a
//!    child after a fork: the call makes them. Otherwise the watcher makes
//!    the workers that are missing. Making a thread allocates and takes
//!    mutexes.
//! 3. The first timer of a CPU allocates its wheel.
//! 4. If the call leaves a CPU to other items, or an item ready, and no
//!    worker is parked: it makes the worker, or the watcher in a forked
//!    child. An item that waits leaves its CPU to others, and so does a
//!    declared wait.
//! 5. If the item is pending or running, or the handle is not done.
//! 6. If there is anything to wait for.
//! 7. If there is nothing to wait for. A wait in a BH item is reported;
//!    in debug builds most such calls panic.
//! 8. A caller that runs the item itself borrows a run slot, from a table
//!    that may grow. It then does what the item does.
//! 9. An error in an item of that queue; for a handle, in its own item and
//!    in items of the same ordered queue.
//! 10. A join of a handle of the parent's that had not finished is an error,
//!     and a thread of the parent's takes no task work of the child's.
//! 11. In an item. Elsewhere it only calls the closure.
//! 12. Outside of items it waits until the queue is empty. In an item, in a
//!     thread hook, and in the drop or cancel of a future it makes a thread
//!     that does so.
//! 13. The first use by a thread, where glibc registers no rseq area.
//! 14. Until the holder of that lock releases it; attempts do not wait.
//!     Mode 2 makes a membarrier call for another CPU.
//! 15. Attempts and Counter::add, where glibc registers the rseq area.
//! 16. A worker of that CPU takes the lock, and the caller waits for it as
//!     for an item. The first use makes a queue of the library's own. A
//!     caller that is on that CPU takes the lock as on its own.
//! 17. If a magazine is empty or full, the mutex of the depot. If the depot
//!     is empty, memory from the system.
//! 18. As the function or the items do.
//! 19. If the user's signal queue is full, it retries for half a second. A
//!     closure is one allocation.
//! 20. A thread's first call allocates. Mutexes as in note 1 if a worker is
//!     called for the second half. If one has taken it, one more, and the
//!     caller waits for that half.
//! 21. A chunk for up to 127 closures, or, for a closure of more than some
//!     200 bytes, memory of its own.
//! 22. If an item is returned.
//! 23. In an item whose pod has several pools, with two system calls.
//!     Elsewhere it only calls the closure.
//!
//! With UWORK_DEBUG=objects every call of the C library takes one more
//! mutex and may allocate. In any call an error or a report may allocate.
//! The first use of a system queue makes it.
//! <!-- calls: end -->

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Not in a package, where there are no tests of documents.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/porting.md")]
struct Porting;

mod bounded;
mod builder;
#[cfg(feature = "control")]
pub mod control;
#[cfg(not(feature = "control"))]
#[path = "control/absent.rs"]
mod control;
mod counters;
mod dump_api;
mod error;
mod every_cpu;
mod execute;
#[doc(hidden)]
pub mod foreign;
pub mod freeze;
mod future;
pub mod housekeeping;
mod item;
mod join;
mod pause;
#[cfg(feature = "percpu")]
pub mod percpu;
mod query;
mod queue;
#[cfg(feature = "rcu")]
pub mod rcu;
mod scoped;
mod setup;
mod shutdown;
#[cfg(feature = "sysfs")]
pub mod sysfs;
pub mod system;
pub mod threads;
mod unblock;
#[cfg(doctest)]
mod variance;
pub mod watchdog;

pub use bounded::{BoundedQueue, Reservation};
pub use builder::Builder;
pub use counters::{Counters, FunctionCounters, QueueCounters, Times, counters};
#[doc(hidden)]
pub use dump_api::rescues;
pub use dump_api::{dump, dump_queues, long_runs};
pub use error::{JoinError, RejectedError};
pub use every_cpu::{on_each_cpu, work_on_cpu};
pub use execute::EnqueuedAll;
pub use item::{
    DelayedWork, DisableDepthError, Enqueued, HasDelayedWork, HasWork, StackWork, Work, WorkItem,
    on_stack,
};
pub use join::{JoinHandle, join};
pub use query::{WorkId, current_work, set_worker_desc};
pub use queue::Queue;
pub use scoped::{ScopedJoinHandle, SpawnScope, scope};
pub use setup::{Setup, SetupError};
pub use shutdown::shutdown;
pub use unblock::{report_waits, unblock};
pub use uwork_engine::dump;
pub use uwork_engine::host::Report;
#[doc(hidden)]
pub use uwork_engine::{__impl_offset, __split_generics};
pub use uwork_engine::{Busy, Shutdown, ShutdownReport, WorkPointer};
#[cfg(feature = "ring")]
#[doc(inline)]
pub use uwork_linux::ring;
#[doc(inline)]
pub use uwork_linux::{Error, ErrorKind, topology};
pub use uwork_policy::blocking::Tier as BlockingTier;
pub use uwork_policy::cpuset::CpuSet;
pub use uwork_policy::flags::{Flags, FlagsWarning};
pub use uwork_policy::scope::{AffinityScope, AffinityScopeChoice, EffectiveAffinityScope};
#[cfg(feature = "task")]
#[doc(inline)]
pub use uwork_task::{combine, has_task_work, recycle, task};

/// Declares to the pool that the calling work item is about to wait. While `f` runs, the worker
/// does not count as running, so that another worker takes the queued items.
///
/// Exact and immediate. Costs four locked instructions, and a wake if items are waiting. Outside of
/// work items, and in [thread hooks](threads), it only calls `f`.
///
/// # Panics
/// In debug builds, in an item of a BH queue, which must not wait. Optimized builds report it once
/// for each queue.
///
/// ```
/// let queue = uwork::Queue::builder("reader").build()?;
/// let text = queue.spawn(|| uwork::blocking(|| std::fs::read_to_string("/proc/self/comm")));
/// assert!(!text.join().unwrap().unwrap().is_empty());
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let Some(engine) = uwork_linux::started() else { return f() };
    engine.assert_may_block();
    engine.declared_block(f)
}

/// Runs `f` on all CPUs of the pod: for programs and threads that it starts. Elsewhere in a work item
/// they inherit the one CPU to which the worker is pinned, and
/// [`available_parallelism`](std::thread::available_parallelism) is 1. There the first use of rayon's
/// global pool gives it one thread for good, and threads of a tokio runtime or of OpenMP stay on the
/// CPU.
///
/// Takes a lock, allocates, and makes two system calls. Nests. Outside of work items, and where the
/// pod has one pool (of a per-CPU queue: one CPU), it only calls `f`.
///
/// ```
/// let queue = uwork::Queue::builder("starter").build()?;
/// let child = queue.spawn(|| uwork::unpinned(|| std::process::Command::new("true").status()));
/// assert!(child.join().unwrap().unwrap().success());
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn unpinned<R>(f: impl FnOnce() -> R) -> R {
    match uwork_linux::started() {
        Some(engine) => engine.unpinned(f),
        None => f(),
    }
}

/// Whether the calling thread is the rescuer of a [`mem_reclaim`](Builder::mem_reclaim) queue (the
/// kernel's `current_is_workqueue_rescuer()`). An item that runs on a rescuer should not wait for
/// memory.
///
/// ```
/// assert!(!uwork::current_is_rescuer());
/// ```
pub fn current_is_rescuer() -> bool {
    uwork_linux::started().is_some_and(|engine| engine.is_rescuer())
}

/// How many work items have panicked since the process started.
///
/// A panic ends the item, not the worker. The payload goes to the join handle, if the item has one.
///
/// ```
/// let before = uwork::panics();
/// let queue = uwork::Queue::builder("panics").build()?;
/// assert!(queue.spawn(|| panic!("on purpose")).join().is_err());
/// assert_eq!(uwork::panics(), before + 1);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn panics() -> u64 {
    uwork_linux::panics()
}

/// Sets what receives the engine's reports, in place of a line on standard error. A library should
/// leave this to the program; a program that knows of no other reporter uses [`replace_reporter`].
///
/// Any thread may call it, with no locks held; it should return soon and must not panic. The
/// `Display` form of a report is that line without its prefix `uwork: `. Panics of items are
/// reported as well; the default leaves those to the panic hook.
///
/// # Errors
/// A reporter is already set, and stays.
///
/// ```
/// uwork::set_reporter(|report| eprintln!("my program: {report}")).ok();
/// ```
pub fn set_reporter(
    reporter: impl Fn(&Report) + Send + Sync + 'static,
) -> Result<(), ReporterIsSet> {
    uwork_linux::set_reporter(Box::new(reporter)).then_some(()).ok_or(ReporterIsSet)
}

/// As [`set_reporter`], in place of the present reporter, if there is one. Reports that are being
/// delivered still go to the former one. Its memory is kept until the process ends, since another
/// thread may be inside.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// let reports = Arc::new(AtomicU64::new(0));
/// let counted = reports.clone();
/// uwork::replace_reporter(move |_| { counted.fetch_add(1, Ordering::Relaxed); });
/// let queue = uwork::Queue::builder("reported").build()?;
/// assert!(queue.spawn(|| panic!("on purpose")).join().is_err());
/// assert_eq!(reports.load(Ordering::Relaxed), 1);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn replace_reporter(reporter: impl Fn(&Report) + Send + Sync + 'static) {
    uwork_linux::replace_reporter(Box::new(reporter));
}

/// The error of [`set_reporter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReporterIsSet;

impl std::fmt::Display for ReporterIsSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a reporter is set already; replace_reporter replaces it")
    }
}

impl std::error::Error for ReporterIsSet {}

/// Task work is not compiled in.
#[cfg(not(feature = "task"))]
#[doc(hidden)]
#[macro_export]
macro_rules! has_task_work {
    ($($item:tt)*) => {
        ::core::compile_error!("`has_task_work!` needs the feature `task` of `uwork`");
    };
}
