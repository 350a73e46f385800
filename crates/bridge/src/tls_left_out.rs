//! Without the feature `tls`.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;

use crate::connection::{Bounded, Stream};
use crate::server::Server;

/// There are none.
pub(crate) type Certificates = Infallible;

/// An address with TLS is refused before.
pub(crate) fn wrap(server: &Server, _: &str, _: Bounded<TcpStream>) -> io::Result<Box<dyn Stream>> {
    match server.tls() {
        Some(&never) => match never {},
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "rediss:// needs the feature tls")),
    }
}
