//! The whole server through sockets, each test with every configuration; and its parser and
//! keyspace alone.

mod bad_input;
mod client;
mod commands;
mod digest;
mod foreign;
#[path = "../../../../crates/uwork/tests/support/guard.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod guard;
mod keyspace;
#[path = "../../../../crates/uwork/tests/support/left_out.rs"]
mod left_out;
mod library;
mod limits;
mod order;
mod parser;
mod peers;
mod redis;
mod refused;
mod shutdown;
