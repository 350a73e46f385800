//! Task work: items that a certain thread runs itself, any thread adds, and of which a sleeping thread is told.
//!
//! The protocol and its proof are in the README. Here is no system call: whoever waits, and whoever ends a wait,
//! is the host's; this says when.

mod item;
mod list;
mod state;

pub use item::{TaskCalls, TaskWork};
pub use list::{Added, Kick, TaskList};
pub use state::Notify;
