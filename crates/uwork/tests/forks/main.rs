//! Forks, from every place and at every time.
//!
//! A program of its own: a child has what other threads held at the fork.

mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
mod workqueues;
