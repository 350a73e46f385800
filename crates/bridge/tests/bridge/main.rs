//! The bridge on a redis-server that the tests start.

mod bad_input;
mod faults;
mod jobs;
mod support;
