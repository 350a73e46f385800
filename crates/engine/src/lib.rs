//! The mechanism of uwork: work items, pools, workers, queues, flush, cancel, timers.
//!
//! It is generic over one small trait, [`host::Host`]: the same code runs on Linux threads, in
//! virtual time and under a model checker. Users depend on the crate `uwork`, which provides the
//! Linux host.

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod account;
pub mod combine;
pub mod deque;
pub mod dump;
pub mod embedded;
mod engine;
pub mod exchange;
pub mod futex;
pub mod handle;
pub mod host;
mod inbox;
mod item;
mod lifecycle;
#[cfg(all(test, loom))]
mod models;
pub mod payload;
pub mod percpu;
pub mod places;
mod plural;
mod pointer;
mod pool;
mod queue;
mod slab;
mod slot;
pub mod sync;
pub mod task;
mod timer;
pub mod trace;
mod wait;
mod wake;
mod watch;
mod worker;

pub use account::FunctionTimes;
pub use dump::{Releasing, Shutdown, ShutdownReport, Unfinished};
pub use engine::{Config, Engine};
pub use host::{Cpus, PageList, Pages, ThreadState};
pub use item::{Action, DISABLE_DEPTH_MAX, ForeignFn, ItemName, Work, WorkFn, must_return};
pub use lifecycle::{Forking, FreezeError, Housekeeping};
pub use pointer::WorkPointer;
pub use pool::POOL_WORKERS_LIMIT;
pub use queue::{
    Attrs, Chain, Demands, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI,
    Queue, QueueError, QueueMemory, QueueSpec, Queued, Wanted, Wq, path_char, scope_names,
};
pub use slot::{DESCRIPTION_MAX, Running};
pub use timer::{Delayed, Graced, Rearmed};
pub use wait::{Context, DepthError, Helped};
pub use watch::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH, WATCHDOG_THRESH_NS};
pub use worker::Busy;
