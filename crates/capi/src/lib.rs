//! The C interface of uwork: what `include/uwork.h` declares, one function here for each function there.
//!
//! Nothing is decided here. A function checks the pointers that C cannot vouch for, calls the crate
//! `uwork`, and turns the answer into a number: 0 or more is an answer, less is an errno with its sign
//! turned. What was wrong in words is kept for the thread (`error`).
//!
//! **Panics** do not cross. Functions that can run other people's code, or make a queue of the library's
//! own, catch them (`error::guarded`); the others cannot panic, and if one did, the process would be
//! ended there: that is what the compiler makes of `extern "C"`. **C++ exceptions** that leave a work function
//! end the process: Rust says so and aborts.
//!
//! An item is embedded in the user's memory. Its layout is [`UwWork`]; `UWORK_DEBUG=objects` puts a
//! shadow beside it (`debug`).
#![allow(clippy::missing_safety_doc, reason = "uwork.h says what callers promise")]

mod attrs;
mod cpu;
mod debug;
mod delayed;
mod ending;
mod error;
mod inspect;
mod item;
mod job;
mod percpu;
mod queue;
mod rcu;
mod rested;
mod setup;
mod sysfs;
mod system;
mod task;
mod work;

pub use attrs::*;
pub use cpu::*;
pub use debug::*;
pub use delayed::*;
pub use ending::*;
pub use error::{uw_error_text, uw_string_free, uw_version};
pub use inspect::*;
pub use job::*;
pub use percpu::*;
pub use queue::*;
pub use rcu::*;
pub use setup::*;
pub use sysfs::*;
pub use system::*;
pub use task::*;
pub use work::*;
