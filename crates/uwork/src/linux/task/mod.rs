//! Threads as targets of task work: what each says of its waits, and what ends them.
//!
//! The protocol is the engine's (`engine/src/task`); here are its notifications. How a signal cannot come
//! too early for a system call is in the README.

#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), path = "call/mod.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "call/absent.rs")]
mod call;
mod descriptor;
mod ring_message;
mod signal;
mod target;
mod turn;

#[cfg(feature = "ring")]
pub(crate) use ring_message::NOTICE;
pub use signal::SignalError;
pub(crate) use signal::set_signal;
pub use target::Delivery;
pub(super) use target::child;
pub(crate) use target::{Outcome, Target, Wait, current, current_or_none, thread_ends};

/// Where the signal has found a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In its own course: all has been done.
    Own,
    /// In another handler, which has interrupted the stub and may return to a call that is still to be made.
    Handler,
}
