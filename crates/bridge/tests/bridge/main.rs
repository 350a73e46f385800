//! The bridge on a redis-server that the tests start.

mod access;
mod bad_input;
mod clock;
mod cluster;
mod exec;
mod faults;
mod jobs;
mod support;
#[cfg(feature = "tls")]
mod tls;
