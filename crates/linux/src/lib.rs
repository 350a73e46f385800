//! The engine's host on Linux, and the process's one engine.
//!
//! This crate makes all system calls of the library: threads, futexes, `rseq`, `membarrier`, perf
//! events, signals, forks, stacks of other threads, sysfs. It decides nothing that the engine or
//! `uwork-policy` decides, and has no queues or items of its own. Programs use the crate `uwork`;
//! the interface of this one follows the needs of the crates above it.

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[cfg(not(target_os = "linux"))]
compile_error!("uwork runs on Linux only: it needs futexes, rseq, membarrier and sysfs");

pub mod binding;
mod blocked;
#[cfg(test)]
mod bounded;
pub mod cancel;
mod changes;
#[cfg_attr(
    not(all(feature = "control", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "control/absent.rs"
)]
pub mod control;
mod cpu;
mod crossing;
mod descriptor;
pub mod environment;
mod error;
mod event;
mod fatal;
pub mod first_use;
pub mod fork;
pub mod futex;
pub mod hooks;
mod host;
pub mod latest;
#[cfg(test)]
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../uwork/tests/support/left_out.rs"]
mod left_out;
pub mod library_queue;
mod membarrier;
pub mod on_cpu;
mod pages;
mod posix_thread;
mod probes;
mod process;
pub mod readers;
mod report;
#[cfg(feature = "ring")]
pub mod ring;
pub mod rseq;
mod signal_info;
mod signals;
pub mod small_files;
#[cfg(feature = "tracing")]
mod spans;
#[cfg_attr(
    all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "stack/mod.rs"
)]
#[cfg_attr(
    not(all(feature = "symbols", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "stack/absent.rs"
)]
mod stack;
mod stack_size;
mod standard_error;
pub mod symbols;
pub mod task;
mod thread;
mod time_namespace;
pub mod topology;

pub use blocked::Records;
pub use blocked::thread_sleeps;
pub use descriptor::StreamSocket;
pub use error::{Error, ErrorKind};
pub use event::Event;
pub use fork::forks;
pub use host::{Linux, current_cpu, relax};
pub use posix_thread::by_c_library;
pub use process::{Options, OptionsBy, engine, options, set_options, started};
pub use report::{Reporter, panics, replace_reporter, report_panic, set_reporter, warn_of_flags};
pub use stack_size::{STACK_SIZES, STACK_SIZES_TEXT, of_service as service_stack_size};
pub use standard_error::print;
pub use thread::{Handle as ThreadHandle, actual_nice, start_joinable};
