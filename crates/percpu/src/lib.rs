//! Data for each CPU: fast local access, and access from other CPUs.
//!
//! Programs use this crate as `uwork::percpu`, with the feature `percpu` of `uwork`; that module has
//! the overview, and the README the protocol. The crate is below `uwork` and
//! knows no items: `uwork` builds per-CPU work on the module `raw`.

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod bundle;
mod cache;
mod calls;
mod counter;
mod data;
mod error;
mod forks;
mod locks;
mod mode;
mod parts;
#[doc(hidden)]
pub mod raw;
mod remote;
mod singles;
#[cfg(test)]
mod tests;
mod underway;

pub use bundle::Bundle;
pub use cache::{Cache, CacheInUse, CacheStats, Cached};
pub use counter::Counter;
pub use data::{Guard, PerCpu};
pub use error::LockError;
pub use mode::{is_cpu_remote, mode, reason};
pub use uwork_policy::percpu::Mode;
