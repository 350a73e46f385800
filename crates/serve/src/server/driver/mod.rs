//! How a thread waits for sockets and moves bytes; what the bytes mean is not known here.

pub(crate) mod epoll;
pub(crate) mod ring;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Names a connection to its driver, and stays its name until [`Event::Gone`].
pub(crate) type Token = usize;

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A new connection.
    Accepted(OwnedFd),
    /// Connections cannot be accepted at present; [`Driver::accept`] tries again.
    NotAccepted(#[allow(dead_code, reason = "for whoever prints the event")] io::Error),
    /// Bytes have arrived: they are in [`Driver::bytes`] until the next call of [`Driver::next`].
    Received(Token),
    /// The other side sends no more.
    Ended(Token),
    /// So many bytes of what was given to be sent are gone; none where it can be tried again.
    Sent(Token, usize),
    /// The connection is broken.
    Broken(Token),
    /// Nothing of the connection is left in the driver.
    Gone(Token),
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes are gone.
    Now(usize),
    /// [`Event::Sent`] will tell.
    Later,
}

/// Waits for sockets. Everything is told by events, in the order in which it happened to a connection.
pub(crate) trait Driver {
    /// Its name, for people.
    const NAME: &'static str;

    /// Accepts connections, from now on or again.
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<()>;

    /// Accepts no more.
    fn refuse(&mut self, listener: BorrowedFd<'_>);

    /// Starts to receive.
    fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Receives no more until `resume`; what is on its way may still come.
    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Receives again.
    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends the bytes. Unless that `is_awaited`, [`Event::Sent`] may come with the next event of another kind only,
    /// as long as all is sent.
    ///
    /// # Safety
    /// After [`Sent::Later`] the bytes stay where and what they are until [`Event::Sent`] or
    /// [`Event::Gone`].
    unsafe fn send(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        is_awaited: bool,
    ) -> io::Result<Sent>;

    /// Ends everything that goes on for the connection. [`Event::Gone`] is the last event of it.
    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Waits until something has happened, the thread has been told of something, or the time is
    /// over.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()>;

    /// What has happened next, without waiting.
    fn next(&mut self) -> Option<Event>;

    /// What was received with the last event.
    fn bytes(&self) -> &[u8];
}
