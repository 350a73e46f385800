//! Task work: items that a given thread runs itself. Any thread adds them, and may notify a
//! sleeping target.
//!
//! The protocol and its proof are in the README. This module makes no system call: the host waits
//! and ends waits; this module decides when.

mod item;
mod list;
mod state;

pub use item::{TaskCalls, TaskWork};
pub use list::{Added, Notification, TaskList};
pub use state::Notify;
