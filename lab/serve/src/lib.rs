//! A server that speaks RESP, the protocol of Redis, built on uwork's task work and queues.
//!
//! - [`Server`]: threads that own connections and keys; requests for other threads' keys are
//!   executed in place or handed over
//! - [`resp`]: the protocol
//! - [`keyspace`]: keys and values, plain data that one thread owns

mod buffer;
mod charge;
mod command;
pub mod keyspace;
mod notes;
pub mod resp;
mod server;

pub use server::{Config, ForeignKeys, Io, Notify, Receiver, Replies, Server, Spares, StartError};
