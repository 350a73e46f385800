//! The bridge: jobs of Redis Streams become work items.
//!
//! A stream holds what outgrows a process: jobs of many producers, on many machines, that die. A
//! [`Bridge`] is a consumer in a group: it fetches what its queue can run, runs it with uwork's
//! limits and detection of blocking, and acknowledges jobs when they have completed. A [`Producer`]
//! adds jobs. The server is Redis 7.0 or newer, or one that speaks its protocol.
//!
//! **At least once.** A job is acknowledged, retried or buried in one step of the server after it
//! has run. A consumer that dies leaves its jobs pending, and another takes them over, so a job may
//! run twice and is never lost. An effect that must happen once is committed with the
//! acknowledgement ([`Reply::effect`]), or carries the job's id as its key. The README beside the
//! code has the proof; `docs/bridge.md` is the guide.
//!
//! ```no_run
//! use std::time::Duration;
//! use uwork_bridge::{Bridge, Config, Failure, Handlers, Producer, Push, Server};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::new("redis://127.0.0.1")?;
//! Producer::new(vec![server.clone()], "jobs", 1)?.push(Push::json(&7)?.handler("square"))?;
//!
//! let square = |n: u64, _job: &uwork_bridge::Job| Ok::<u64, Failure>(n * n);
//! let handlers = Handlers::new().typed("square", square);
//! let bridge = Bridge::start(Config::new(server, "jobs"), handlers, |line| eprintln!("{line}"))?;
//! // ... until a signal arrives
//! let stopped = bridge.stop(Duration::from_secs(10));
//! println!("{} jobs done", stopped.counters.done);
//! # Ok(())
//! # }
//! ```

// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod addresses;
mod config;
mod connection;
mod consumer;
mod counters;
mod dead;
mod exec;
mod fault;
mod greeting;
mod handler;
mod held;
mod job;
mod keys;
mod nodes;
mod policy;
mod process;
mod producer;
mod program;
mod proof;
mod report;
mod resp;
mod safety;
mod scripts;
mod server;
mod shown;
mod start;
mod stat;
#[cfg_attr(not(feature = "tls"), path = "tls_left_out.rs")]
mod tls;
mod wire;

pub use config::{Config, Results, SHARDS_MAX, placed};
pub use consumer::{Bridge, Stopped};
pub use counters::Counters;
pub use dead::{DeadLetter, DeadLetters, Settled};
pub use exec::Exec;
pub use fault::{Error, ErrorKind};
pub use handler::{Failure, Handlers, Reply};
pub use held::HeldJob;
pub use job::Job;
pub use policy::Backoff;
pub use producer::{Producer, Push, Pushed};
pub use server::Server;
pub use shown::shown;
pub use stat::{ConsumerStat, Stat};
