//! The bridge on a redis-server that the tests start.

mod access;
mod bad_input;
mod exec;
mod faults;
mod jobs;
mod support;
