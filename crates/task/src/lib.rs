//! Task work, and what belongs to threads that work for others: combining and reusable buffers.
//!
//! Programs use this crate through `uwork`, whose feature `task` adds these modules. The crate is
//! below `uwork` and knows no queues. The waits of a thread, and how a notification ends them, are
//! in `uwork-linux`; the lists are in `uwork-engine`.

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod combine;
pub mod recycle;
pub mod task;

#[doc(hidden)]
pub use uwork_engine::{__impl_offset, __split_generics};
