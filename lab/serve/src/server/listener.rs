//! The listening socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::config::Config;

/// Maximum number of connections that wait to be accepted; the kernel may have a lower limit.
pub(crate) const BACKLOG: i32 = 4096;

/// Opens a listening socket. Accepted connections inherit the options that are set here.
pub(crate) fn listen(config: &Config) -> io::Result<OwnedFd> {
    let family = match config.address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Replies are written whole, so delaying small packets has no benefit.
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    if let Some(size) = config.send_buffer {
        sockopt::set_socket_send_buffer_size(&socket, size)?;
    }
    if let Some(size) = config.receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, size)?;
    }
    rustix::net::bind(&socket, &config.address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The address that the socket is bound to.
pub(crate) fn address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(io::Error::from)
}
