//! Forks from every context and at every time.
//!
//! This is a program of its own, because a child inherits the locks that other threads held at the
//! fork.

mod adversary;
mod bounded;
mod clocks;
mod descriptors;
mod frames;
mod hooks;
mod locks;
mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
mod workqueues;
