//! Without the feature `tls`.

use std::convert::Infallible;
use std::io;

use crate::connection::{Bounded, Socket, Stream};
use crate::server::Server;

/// There are none.
pub(crate) type Certificates = Infallible;

/// An address with TLS is refused before.
pub(crate) fn wrap(server: &Server, _: &str, _: Bounded<Socket>) -> io::Result<Box<dyn Stream>> {
    match server.tls() {
        Some(&never) => match never {},
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "rediss:// needs the feature tls")),
    }
}
