//! A server that speaks RESP, the protocol of Redis, built on uwork's task work and queues.
//!
//! - [`Server`]: threads that own connections and keys, and hand requests for other threads' keys
//!   over
//! - [`resp`]: the protocol
//! - [`keyspace`]: keys and values, plain data that one thread owns

mod buffer;
mod charge;
mod command;
pub mod keyspace;
mod notes;
pub mod resp;
mod server;

pub use server::{Config, Io, Notify, Receiver, Replies, Server, Spares, StartError};
