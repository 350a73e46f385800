//! Addresses of the loopback interface that belong to their owner while it lives.
//!
//! A port that was free a moment ago may belong to any process now. This socket is bound to its
//! port and never listens, so the kernel assigns the port neither to a socket that asks for a free
//! one nor to the local end of a connection, and refuses connections to it. A server that is told
//! the port and sets SO_REUSEADDR, as redis-server and `uwork-lab serve` do, can listen on it, end,
//! and listen on it again.
//!
//! Only the standard library and libc are used: several crates include this file by its path.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A reserved address. Its port is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Address {
    _socket: OwnedFd,
    port: u16,
}

impl Address {
    pub(crate) fn reserve() -> io::Result<Address> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: the call has no preconditions.
        let socket = ok(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let on: libc::c_int = 1;
        let of_int = size_of::<libc::c_int>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
        // SAFETY: the socket is open, and the option is an int of this size.
        ok(unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), of_int)
        })?;
        let mut address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
            sin_zero: [0; 8],
        };
        let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        // SAFETY: the socket is open, and the address is live and of this size.
        ok(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        // SAFETY: as above, and the kernel writes at most `len` bytes.
        ok(unsafe {
            libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len)
        })?;
        Ok(Address { _socket: socket, port: u16::from_be(address.sin_port) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn socket(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

fn ok(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}
