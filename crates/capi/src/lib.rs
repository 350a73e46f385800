//! The C interface of uwork. Each function that `include/uwork.h` declares is defined here.
//!
//! This crate decides nothing. A function checks the pointers that it gets from C, calls the crate
//! `uwork`, and converts the outcome to a number: 0 or more is the result, less than 0 is a
//! negative errno value. The error text is kept per thread (`error`).
//!
//! **Panics** do not cross into C. Functions that can run the program's code, or that can create a
//! queue of the library's own, catch panics (`error::guarded`). The other functions cannot panic;
//! if one did, `extern "C"` would abort the process at that point. **C++ exceptions** that leave a
//! work function end the process: Rust reports them and aborts.
//!
//! An item is embedded in the program's memory. Its layout is [`UwWork`]. With
//! `UWORK_DEBUG=objects` each item also has a shadow (`debug`).
#![allow(clippy::missing_safety_doc, reason = "uwork.h says what callers promise")]
// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod attrs;
mod bounded;
mod counters;
mod cpu;
mod debug;
mod delayed;
pub mod error;
mod inspect;
mod item;
mod job;
mod kernel;
pub mod memory;
mod percpu;
mod quarantine;
mod queue;
mod rcu;
mod reserve;
mod setup;
mod shutdown;
mod sysfs;
mod system;
mod task;
mod thread;
mod work;

pub use attrs::*;
pub use bounded::*;
pub use counters::*;
pub use cpu::*;
pub use debug::*;
pub use delayed::*;
pub use error::{uw_error_text, uw_string_free, uw_version};
pub use inspect::*;
pub use job::*;
pub use kernel::*;
pub use percpu::*;
pub use queue::*;
pub use rcu::*;
pub use setup::*;
pub use shutdown::*;
pub use sysfs::*;
pub use system::*;
pub use task::*;
pub use thread::*;
pub use work::*;
