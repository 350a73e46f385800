//! A connected socket. The program may close every descriptor, and its next file may get the number of
//! this one: each use looks whether the number is still the socket's, and a close too.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix};
use uwork::foreign::StreamSocket;

use super::Stream;

pub(crate) struct Socket(StreamSocket);

impl Socket {
    pub(super) fn to_address(address: SocketAddr, limit: Duration) -> io::Result<Socket> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = connected(family, &address, limit)?;
        set_tcp_nodelay(socket.get()?, true)?;
        Ok(Socket(socket))
    }

    pub(super) fn to_path(path: &Path, limit: Duration) -> io::Result<Socket> {
        connected(AddressFamily::UNIX, &SocketAddrUnix::new(path)?, limit).map(Socket)
    }

    /// The longest wait of a read or write from now on.
    pub(super) fn set_slice(&self, slice: Duration) -> io::Result<()> {
        set_socket_timeout(self.0.get()?, Timeout::Recv, Some(slice))?;
        Ok(set_socket_timeout(self.0.get()?, Timeout::Send, Some(slice))?)
    }
}

/// Connects within `limit`: the system's limit for a write is one for a connection, too.
fn connected(
    family: AddressFamily,
    address: &impl SocketAddrArg,
    limit: Duration,
) -> io::Result<StreamSocket> {
    let socket = StreamSocket::open(family.as_raw().into())?;
    let late = || io::Error::new(ErrorKind::TimedOut, format!("no connection in {limit:?}"));
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(late());
        }
        set_socket_timeout(socket.get()?, Timeout::Send, Some(left))?;
        match rustix::net::connect(socket.get()?, address) {
            // The connection goes on.
            Err(Errno::INTR) => {}
            // Of a path with a full queue; of a host that does not answer.
            Err(Errno::AGAIN | Errno::INPROGRESS) => return Err(late()),
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(socket),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(self.0.get()?, bytes, RecvFlags::empty())?;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0.get()?, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Socket {
    fn is_closed(&self) -> bool {
        self.0.get().is_err()
    }
}
