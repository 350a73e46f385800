//! Reactors: threads that wait for completions of io_uring and for task work at once.
//!
//! A [`Reactor`] is one thread's ring. Its wait ends when an operation has completed, or when
//! another thread has added an item for it, which runs before the wait returns. That takes one
//! system call and no signal. Completions are processed when the thread asks for them and at no
//! other time (`IORING_SETUP_DEFER_TASKRUN`).
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use uwork::ring::{Reactor, TOKEN_MAX};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let client = std::thread::spawn(move || {
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"ping")?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer)?;
//!     Ok::<_, std::io::Error>(answer)
//! });
//!
//! # // Where io_uring is refused there is nothing to show.
//! # let Ok(_) = Reactor::builder().build() else { return Ok(()) };
//! let mut reactor = Reactor::builder().buffers(256, 4096).build()?;
//! reactor.accept_multi(&listener, TOKEN_MAX)?;
//! let mut connection = None;
//! 'serve: loop {
//!     // Task work for this thread runs in here.
//!     reactor.wait(None)?;
//!     while let Some(completion) = reactor.next() {
//!         if completion.token() == TOKEN_MAX {
//!             let accepted = completion.into_fd()?;
//!             reactor.recv_multi(&accepted, 1)?;
//!             connection = Some(accepted);
//!         } else if let (Some(bytes), Some(connection)) = (completion.into_buffer(), &connection) {
//!             // SAFETY: the bytes stay until they were submitted.
//!             unsafe { reactor.try_send(connection, &raw const bytes[..], 1)? };
//!             reactor.submit()?;
//!             // Dropping them gives the buffer back to the kernel.
//!             drop(bytes);
//!             break 'serve;
//!         }
//!     }
//! }
//! drop((connection, reactor));
//! assert_eq!(client.join().unwrap()?, "ping");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Requirements
//!
//! Linux 6.1, and a system that permits io_uring (`kernel.io_uring_disabled`, seccomp). Otherwise
//! [`Builder::build`] returns an error and the program uses another mechanism, for example epoll
//! with `task::notifier`. From Linux 6.13 on, threads that add task work
//! send a message to the ring; before that they write to an eventfd that the ring polls.

mod buffers;
mod builder;
mod completion;
mod reactor;

pub use buffers::Buffer;
pub use builder::Builder;
pub use completion::Completion;
pub use io_uring;
pub use reactor::{Reactor, TOKEN_MAX};
