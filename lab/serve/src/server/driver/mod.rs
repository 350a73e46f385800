//! How a thread waits for sockets and moves bytes. The drivers do not interpret the bytes.

pub(crate) mod epoll;
pub(crate) mod ring;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Identifies a connection to its driver until [`Event::Gone`].
pub(crate) type Token = usize;

/// An event of a driver.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new connection.
    Accepted(OwnedFd),
    /// Connections cannot be accepted at present; [`Driver::accept`] retries.
    NotAccepted(#[allow(dead_code, reason = "shown by Debug")] io::Error),
    /// Bytes have arrived; [`Driver::bytes`] returns them until the next call of [`Driver::next`].
    Received(Token),
    /// The peer has closed its direction.
    Ended(Token),
    /// This many of the bytes passed to `send` were sent; 0 if the caller should try again.
    Sent(Token, usize),
    /// The connection is broken.
    Broken(Token),
    /// The driver holds no more reference to the connection.
    Gone(Token),
}

/// The outcome of `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// This many bytes were sent.
    Now(usize),
    /// [`Event::Sent`] will report the outcome.
    Later,
}

/// Waits for sockets. Reports everything as events, in order for each connection.
pub(crate) trait Driver {
    /// The driver's name, shown to users.
    const NAME: &'static str;

    /// Starts or restarts to accept connections.
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<()>;

    /// Stops accepting connections.
    fn refuse(&mut self, listener: BorrowedFd<'_>);

    /// Starts to receive.
    fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Pauses receiving until `resume`; bytes in flight may still arrive.
    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Receives again.
    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends the bytes. If `is_awaited` is false and all bytes are sent, [`Event::Sent`] may be
    /// delayed until another event occurs.
    ///
    /// # Safety
    /// After [`Sent::Later`] the bytes must neither move nor change until [`Event::Sent`] or
    /// [`Event::Gone`].
    unsafe fn send(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        is_awaited: bool,
    ) -> io::Result<Sent>;

    /// Ends all operations of the connection. [`Event::Gone`] is its last event.
    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Waits for an event, a notification of the thread, or the end of `most`, whichever comes
    /// first.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()>;

    /// The next event, without waiting.
    fn next(&mut self) -> Option<Event>;

    /// The bytes received with the last event.
    fn bytes(&self) -> &[u8];
}
