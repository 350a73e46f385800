//! Threads as targets of task work: the waits that each declares, and the notifications that end
//! them.
//!
//! The protocol is the engine's (`engine/src/words/task`); this module has the notifications. The README
//! explains how a signal cannot come too early for a system call.

#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), path = "call/mod.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "call/absent.rs")]
mod call;
mod calls;
mod descriptor;
mod ring_message;
mod signal;
mod target;
mod turn;

#[cfg(feature = "control")]
pub(crate) use call::{checked, end_if_not_begun};
pub use calls::{epoll_wait, read, syscall};
#[cfg(feature = "ring")]
pub(crate) use ring_message::NOTICE;
pub use signal::{SignalError, set_signal};
pub(super) use target::child;
pub use target::{
    Delivery, ENDED, Outcome, Target, Wait, current, current_or_none, ended, has_ended, own,
    run_due, thread_ends,
};

/// The code in which the signal found a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the thread's own code: the handler has done everything.
    Own,
    /// In another handler, which has interrupted the stub and may return to a call that has not
    /// begun.
    Handler,
}
