//! A server that speaks RESP, the protocol of Redis, and lives on uwork's task work and queues.
//!
//! - [`resp`]: the protocol
//! - [`keyspace`]: keys and values, plain data that one thread owns

mod command;
pub mod keyspace;
pub mod resp;
