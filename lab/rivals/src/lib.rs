//! The load that every pool is measured with, and the pools that uwork is compared with.
//!
//! [`load`] drives any [`Pool`] by static dispatch, so that no pool pays for an indirect call that
//! another pool avoids. Each adapter contains the code that a competent user of that pool would
//! write, and no extra cost; [`catalogue`] lists the adapters. [`jobs`] is the interface for items
//! that block, [`nested`] has tasks that make tasks, [`open`] is the interface for items that arrive
//! by a plan, [`periodic`] the one for periodic tasks, [`at_once`] for timers of one moment, [`long_items`] for
//! items that block for long. This crate is only for measurements: the library never depends on it.

#![warn(missing_docs)]

pub mod alloc;
mod async_executor;
pub mod at_once;
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
pub mod long_items;
#[cfg(feature = "native")]
mod native;
#[cfg(not(feature = "native"))]
#[path = "native/disabled.rs"]
mod native;
pub mod nested;
pub mod open;
pub mod periodic;
pub mod posts;
mod progress;
mod rayon;
mod threadpool;
mod tokio;

pub use catalogue::{Rival, Standing, catalogue, joins};
pub use load::{Latency, Load, Pool, Producer, Sample, measure};
pub use progress::Progress;
