//! Reactors: threads that wait for completions of io_uring and for [task work](crate::task) at once.
//!
//! A [`Reactor`] is one thread's ring. Its wait ends when an operation has completed or when another thread adds an
//! item for it, which then has run: with one system call, and without a signal. Completions are handled when the
//! thread asks for them and at no other time (`IORING_SETUP_DEFER_TASKRUN`).
//!
//! ```no_run
//! use std::net::TcpListener;
//! use uwork::ring::{Reactor, TOKEN_MAX};
//!
//! let listener = TcpListener::bind("127.0.0.1:7000")?;
//! let mut reactor = Reactor::builder().buffers(256, 4096).build()?;
//! reactor.accept_multi(&listener, TOKEN_MAX)?;
//! loop {
//!     // Task work for this thread runs in here.
//!     reactor.wait(None)?;
//!     while let Some(completion) = reactor.next() {
//!         if completion.token() == TOKEN_MAX {
//!             let connection = completion.into_fd()?;
//!             // ... reactor.recv_multi(&connection, its_token)?;
//! #           drop(connection);
//!         } else if let Some(bytes) = completion.into_buffer() {
//!             println!("{} bytes", bytes.len());
//!             // Dropping them gives the buffer back to the kernel.
//!         }
//!     }
//! }
//! # #[allow(unreachable_code)] Ok::<(), std::io::Error>(())
//! ```
//!
//! # What it needs
//!
//! Linux 6.1, and a system that allows io_uring (`kernel.io_uring_disabled`, seccomp): otherwise
//! [`Builder::build`] says so and the program falls back to what else it has, for example epoll with
//! [`task::notifier`](crate::task::notifier). From Linux 6.13 on, threads that add task work send a message to the
//! ring; before that they write to an eventfd, of which the ring has a poll.

mod buffers;
mod builder;
mod completion;
mod reactor;

pub use buffers::Buffer;
pub use builder::Builder;
pub use completion::Completion;
pub use io_uring;
pub use reactor::{Reactor, TOKEN_MAX};
