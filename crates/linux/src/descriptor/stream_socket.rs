//! A connection of a crate above this one: as every descriptor that stays open, with a check before each
//! use.

use std::io::{Error, ErrorKind};
use std::os::fd::BorrowedFd;

use super::{Expected, OwnDescriptor};

/// A stream socket. Closed when it is dropped, unless the program has done so, and in a forked child.
#[derive(Debug)]
pub struct StreamSocket(OwnDescriptor);

impl StreamSocket {
    /// A socket of this family (`AF_INET`, ...) that is not connected.
    ///
    /// # Errors
    /// The system's; `EBADF` if the program has closed the descriptor at once.
    pub fn open(family: libc::c_int) -> Result<StreamSocket, Error> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: numbers only.
        let open = || unsafe { libc::socket(family, kind, 0) };
        OwnDescriptor::open(Expected::Socket, open).map(StreamSocket)
    }

    /// The descriptor, for a use right now. One system call.
    ///
    /// # Errors
    /// `NotConnected` if the program has closed it, and in a forked child.
    pub fn get(&self) -> Result<BorrowedFd<'_>, Error> {
        let text = "the program has closed the connection's descriptor";
        let number = self.0.get().ok_or_else(|| Error::new(ErrorKind::NotConnected, text))?;
        // SAFETY: the number is the socket's. The library closes it after the borrow.
        Ok(unsafe { BorrowedFd::borrow_raw(number) })
    }
}
