//! The C interface of the bridge. Each function that `include/uwork-bridge.h` declares is defined
//! here. The crate decides nothing: it checks what it gets from C and calls `uwork-bridge`.
//!
//! Results, error texts and panics are those of `uwork.h`: see the crate `uwork-capi`, whose
//! functions are part of the same library.
#![allow(clippy::missing_safety_doc, reason = "uwork-bridge.h says what callers promise")]
// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod config;
mod consumer;
mod dead;
mod error;
mod given;
mod job;
mod producer;

pub use config::*;
pub use consumer::*;
pub use dead::*;
pub use job::*;
pub use producer::*;
