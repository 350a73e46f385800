//! The mechanism of uwork: work items, pools, workers, queues, flush, cancel, timers.
//!
//! It is generic over one small trait, [`host::Host`]: the same code runs on Linux threads, in
//! virtual time and under a model checker. Users depend on the crate `uwork`, which provides the
//! Linux host.

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod account;
mod engine;
pub mod handle;
mod lifecycle;
#[cfg(all(test, loom))]
mod models;
mod pool;
mod queue;
mod slot;
mod timer;
pub mod trace;
mod wait;
mod watch;
mod words;
mod worker;

pub use account::FunctionTimes;
pub use engine::{Config, Engine};
pub use lifecycle::{Forking, FreezeError, Housekeeping};
pub use pool::POOL_WORKERS_LIMIT;
pub use queue::{
    Attrs, Chain, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI, Queue,
    QueueError, QueueMemory, QueueSpec, Queued, Wq, path_char, scope_names,
};
pub use slot::{DESCRIPTION_MAX, Running};
pub use timer::{Delayed, Graced, Rearmed};
pub use wait::{Context, DepthError, Helped};
pub use watch::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH, WATCHDOG_THRESH_NS};
pub use words::dump::{Releasing, Shutdown, ShutdownReport, Unfinished};
pub use words::host::{Cpus, Demands, PageList, Pages, ThreadState, Wanted};
pub use words::item::{Action, DISABLE_DEPTH_MAX, ForeignFn, ItemName, Work, WorkFn, must_return};
pub use words::pointer::WorkPointer;
pub use words::{
    combine, deque, dump, embedded, exchange, futex, host, payload, percpu, places, sync, task,
};
pub use worker::Busy;
