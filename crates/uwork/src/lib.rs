//! Linux workqueues in user space.
//!
//! A *work item* is a function and a few words that you embed in what you want to have done. A
//! *queue* runs items on managed pools of worker threads that know the machine's caches and nodes.
//! Queueing allocates nothing, takes no lock and wakes nobody without need; an item is never
//! queued twice, never runs twice at once, and can be flushed, cancelled and disabled at any time.
//!
//! ```
//! let queue = uwork::Queue::builder("hello").build()?;
//! let answer = queue.spawn(|| 6 * 7);
//! assert_eq!(answer.join().unwrap(), 42);
//! # Ok::<(), uwork::Error>(())
//! ```
//!
//! - [`Queue`]: queues and their attributes; [`system`] has ready-made ones
//! - [`Work`], [`DelayedWork`]: items embedded in your own types
//! - [`Queue::spawn`], [`Queue::spawn_future`], [`scope`](fn@scope): closures, futures, borrowed
//!   data
//! - [`on_stack`], [`work_on_cpu`], [`on_each_cpu`]: items that end with the call
//! - [`rcu`]: items that are queued after a grace period
//! - [`percpu`]: data for each CPU, reached from all of them
//! - [`current_work`], [`set_worker_desc`], [`Work::busy`]: what runs
//! - [`blocking`]: tells the pool that an item is about to wait; [`Setup`] chooses how waits are noticed
//!   that nobody declares
//! - [`task`]: work for a certain thread, which is woken for it
//! - `ring` (feature of that name): threads that wait for completions of io_uring and for task work at once
//! - [`combine`], [`recycle`]: one thread sends for all; boxes that go around
//! - [`freeze`](mod@freeze): lets queues pause together
//! - [`dump()`], [`sysfs`]: what goes on inside, and the knobs; [`shutdown`]: the end, in order
//! - [`watchdog`]: when nothing moves
//! - [`topology`]: the machine as uwork sees it
//!
//! What the kernel promises of its workqueues holds here too; the project's `docs/semantics.md`
//! goes through it row by row.

mod builder;
pub mod combine;
mod delayed;
mod ending;
mod error;
mod every_cpu;
mod first_use;
#[doc(hidden)]
pub mod foreign;
pub mod freeze;
mod future;
mod item;
mod join;
mod linux;
mod looking_in;
mod on_stack;
mod own_queue;
pub mod percpu;
mod pointer;
mod query;
mod queue;
pub mod rcu;
pub mod recycle;
#[cfg(feature = "ring")]
pub mod ring;
mod scoped;
mod setup;
#[cfg_attr(feature = "symbols", path = "symbols/resolved.rs")]
#[cfg_attr(not(feature = "symbols"), path = "symbols/unresolved.rs")]
mod symbols;
pub mod sysfs;
pub mod system;
pub mod task;
pub mod topology;
pub mod watchdog;

pub use builder::Builder;
pub use delayed::{DelayedWork, HasDelayedWork};
pub use ending::shutdown;
pub use error::{Error, ErrorKind, JoinError, RejectedError};
pub use every_cpu::{on_each_cpu, work_on_cpu};
pub use item::{DisableDepthError, Enqueued, HasWork, Work, WorkItem};
pub use join::JoinHandle;
#[doc(hidden)]
pub use looking_in::rescues;
pub use looking_in::{dump, dump_queues};
pub use on_stack::{StackWork, on_stack};
pub use pointer::WorkPointer;
pub use query::{WorkId, current_work, set_worker_desc};
pub use queue::Queue;
pub use scoped::{Scope as SpawnScope, ScopedJoinHandle, scope};
pub use setup::{Setup, SetupError};
pub use uwork_engine::Busy;
pub use uwork_engine::dump;
pub use uwork_engine::host::Report;
pub use uwork_engine::{Releasing, Shutdown, ShutdownReport, Unfinished};
pub use uwork_policy::blocking::Tier as BlockingTier;
pub use uwork_policy::cpuset::CpuSet;
pub use uwork_policy::flags::{Flags, FlagsWarning};
pub use uwork_policy::scope::{EffectiveScope, Scope, ScopeChoice};

/// Tells the pool that the calling work item is about to wait for something: while `f` runs, the
/// worker does not count as running, so that another one takes what is queued.
///
/// Exact and immediate. Costs four locked instructions, and a wake where work is waiting.
/// Outside of work items it just calls `f`.
///
/// # Panics
/// In debug builds, in an item of a BH queue, which must not wait; optimized builds report it once for
/// each queue.
///
/// ```
/// let queue = uwork::Queue::builder("reader").build()?;
/// let text = queue.spawn(|| uwork::blocking(|| std::fs::read_to_string("/proc/self/comm")));
/// assert!(!text.join().unwrap().unwrap().is_empty());
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let Some(engine) = linux::started() else { return f() };
    engine.assert_may_wait();
    engine.blocking(f)
}

/// Whether the calling thread is the rescuer of a [`mem_reclaim`](Builder::mem_reclaim) queue (the
/// kernel's `current_is_workqueue_rescuer()`): the item that runs had better not wait for memory.
///
/// ```
/// assert!(!uwork::current_is_rescuer());
/// ```
pub fn current_is_rescuer() -> bool {
    linux::started().is_some_and(|engine| engine.is_rescuer())
}

/// How many work items have panicked since the process started.
///
/// A panic ends the item, not the worker. The payload goes to the join handle, where there is one.
///
/// ```
/// let before = uwork::panics();
/// let queue = uwork::Queue::builder("panics").build()?;
/// assert!(queue.spawn(|| panic!("on purpose")).join().is_err());
/// assert_eq!(uwork::panics(), before + 1);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn panics() -> u64 {
    linux::panics()
}

/// Sets what is called with the engine's reports, instead of a line on standard error. Once per
/// process.
///
/// Called from any thread, without locks held; it should return soon and must not panic. A report prints as
/// that line, without the `uwork: ` in front of it; panics of items are reported as well, which the default
/// leaves to the panic hook.
///
/// # Errors
/// There is one already; `reporter` comes back.
///
/// ```
/// uwork::set_reporter(|report| eprintln!("my program: {report}")).ok();
/// ```
pub fn set_reporter(reporter: fn(&Report)) -> Result<(), fn(&Report)> {
    linux::set_reporter(reporter)
}
