//! Task work: what is promised of adding, running, taking back and the end.

mod cancel;
mod running;
#[path = "../support/mod.rs"]
mod support;
mod target;
mod waits;
