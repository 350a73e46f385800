//! The whole server through sockets, each test with every configuration; and its parser and
//! keyspace alone.

#[path = "../../../../crates/uwork/tests/support/address.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod address;
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
#[path = "../../../../crates/uwork/tests/support/owned.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod owned;
mod parser;
#[path = "../../../../crates/uwork/tests/support/patience.rs"]
#[allow(dead_code, reason = "shared by the tests of several crates")]
mod patience;
mod peers;
mod redis;
mod refused;
mod shutdown;
