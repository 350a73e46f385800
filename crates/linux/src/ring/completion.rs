//! The outcome of an operation.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;

use super::buffers::Buffer;
use super::reactor::Names;
use crate::descriptor::Untaken;

/// An operation's outcome, or one of several of a multishot operation.
#[must_use = "it may hold a buffer or a new descriptor"]
pub struct Completion {
    token: u64,
    result: i32,
    flags: u32,
    buffer: Option<Buffer>,
    /// The accepted socket, while it has no other owner, and the names that it may have.
    socket: Option<(Untaken, Names)>,
}

impl Completion {
    pub(super) fn new(
        entry: &cqueue::Entry,
        token: u64,
        buffer: Option<Buffer>,
        socket: Option<(Untaken, Names)>,
    ) -> Completion {
        Completion { token, result: entry.result(), flags: entry.flags(), buffer, socket }
    }

    /// The token that was given when the operation was queued.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The operation's return value: a number of bytes, for example.
    ///
    /// # Errors
    /// The operation's error, as the system call of its name would return it. `ENOBUFS`: a receive
    /// found no buffer and has ended; queue it again once buffers were given back.
    pub fn result(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }

    /// Whether the same operation will complete again. If not, a multishot operation has ended.
    pub fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// Whether the socket had more data ready to receive.
    pub fn socket_has_more(&self) -> bool {
        cqueue::sock_nonempty(self.flags)
    }

    /// The received data, for [`Reactor::recv_multi`](super::Reactor::recv_multi). None at the end
    /// of the stream, or on an error.
    pub fn into_buffer(mut self) -> Option<Buffer> {
        self.buffer.take()
    }

    /// As [`Completion::into_buffer`], without consuming the completion.
    pub fn buffer(&self) -> Option<&[u8]> {
        self.buffer.as_deref()
    }

    /// The descriptor that was accepted, for
    /// [`Reactor::accept_multi`](super::Reactor::accept_multi).
    ///
    /// # Errors
    /// The accept's error; `InvalidInput` if the operation was not an accept; `EBADF` if the program
    /// has closed the descriptor since it was accepted.
    pub fn into_fd(mut self) -> io::Result<OwnedFd> {
        self.result()?;
        let (socket, _) = self.socket.take().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the operation was not an accept")
        })?;
        let number = socket.take().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        // SAFETY: an accept created it, and `take` makes this call its only owner.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some((socket, names)) = self.socket.take() {
            socket.close(|number| names.are_of(number));
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("token", &self.token)
            .field("result", &self.result)
            .field("more", &self.more())
            .finish_non_exhaustive()
    }
}
