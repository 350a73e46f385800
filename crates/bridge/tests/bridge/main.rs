//! The bridge on a redis-server that the tests start.

mod access;
mod bad_input;
mod clock;
mod cluster;
mod consumers;
mod dead;
mod deaths;
mod delayed;
mod descriptors;
mod effects;
mod examples;
mod exec;
mod failover;
mod faults;
mod groups;
mod guide;
mod jobs;
mod reports;
mod safety;
mod stop;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod trouble;
