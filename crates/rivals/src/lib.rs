//! The load that every pool is measured with, and the other pools that uwork is compared against.
//!
//! [`load`] drives any [`Pool`] by static dispatch, so that no pool pays for an indirect call that
//! another does not. Each adapter does what a competent user of that pool would write, and nothing
//! to slow it down; [`catalogue`] lists them. [`jobs`] is the interface for items that
//! block. This crate is for measuring only: the library never depends on it.

#![warn(missing_docs)]

pub mod alloc;
mod async_executor;
mod bare;
mod catalogue;
pub mod collect;
pub mod count;
mod cpus;
mod crossbeam;
mod futex;
pub mod jobs;
mod kernel;
pub mod load;
#[cfg(feature = "native")]
mod native;
#[cfg(not(feature = "native"))]
#[path = "native/disabled.rs"]
mod native;
pub mod posts;
mod progress;
mod rayon;
mod threadpool;
mod tokio;

pub use catalogue::{Rival, Standing, catalogue};
pub use load::{Latency, Load, Pool, Producer, Sample, measure};
pub use progress::Progress;
