//! Task work: the promises of adding, running, cancelling and the end.

mod cancel;
mod descriptors;
mod end;
mod faults;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod nested;
mod running;
mod signal;
#[path = "../support/mod.rs"]
mod support;
mod target;
mod waits;
