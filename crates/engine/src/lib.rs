//! The mechanism of uwork: work items, pools, workers, queues, flush, cancel, timers.
//!
//! It is generic over one small trait, [`host::Host`]: the same code runs on Linux threads, in
//! virtual time and under a model checker. Users depend on the crate `uwork`, which provides the
//! Linux host.

mod batch;
mod block;
mod cancel;
pub mod combine;
mod conserve;
mod cpus;
mod delayed;
mod dependency;
mod disposal;
pub mod dump;
pub mod embedded;
mod engine;
pub mod exchange;
mod flush;
mod fork;
mod freeze;
mod function;
pub mod futex;
mod grace;
pub mod handle;
mod help;
pub mod host;
mod inbox;
#[cfg(all(test, loom))]
mod models;
mod owner;
pub mod percpu;
mod plural;
mod pointer;
mod pool;
mod pwq;
mod query;
mod queue;
mod registry;
mod reports;
mod rescuer;
mod run;
mod shutdown;
mod slab;
mod slot;
mod submit;
pub mod sync;
pub mod task;
mod thread;
mod timer;
mod waits;
mod wake;
mod watch;
mod word;
mod work;
mod worker;

pub use block::Context;
pub use cancel::DepthError;
pub use cpus::Cpus;
pub use delayed::{Delayed, Rearmed};
pub use disposal::Releasing;
pub use engine::{Config, Engine, POOL_WORKERS_LIMIT};
pub use fork::{Forking, PageList, Pages};
pub use freeze::FreezeError;
pub use function::ForeignFn;
pub use grace::Graced;
pub use help::Helped;
pub use owner::Queue;
pub use pointer::WorkPointer;
pub use query::Busy;
pub use queue::{
    Attrs, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI, QueueError,
    QueueSpec, Wq, scope_names,
};
pub use shutdown::{Shutdown, ShutdownReport, Unfinished};
pub use slot::{DESCRIPTION_MAX, Running};
pub use submit::Queued;
pub use thread::ThreadState;
pub use watch::{CPU_INTENSIVE_THRESH_NS, CPU_INTENSIVE_WARNING_THRESH, WATCHDOG_THRESH_NS};
pub use word::DISABLE_DEPTH_MAX;
pub use work::{Action, ItemName, Work, WorkFn};
