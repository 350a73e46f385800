//! TLS on a connection: the certificates, and the handshake.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::connection::{Bounded, Socket, Stream};
use crate::server::Server;

/// The certificates of an address.
pub(crate) type Certificates = Arc<ClientConfig>;

/// Reads certificates in PEM: that of the authority, without it those of the system; and the client's
/// with its key.
pub(crate) fn certificates(
    authority: Option<&[u8]>,
    client: Option<(&[u8], &[u8])>,
) -> io::Result<Certificates> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = authority {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
    } else {
        let mut found = rustls_native_certs::load_native_certs();
        if let Some(error) = found.errors.pop() {
            return Err(io::Error::other(error));
        }
        for certificate in found.certs {
            roots.add(certificate).map_err(io::Error::other)?;
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>();
            let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
            let chain = chain.map_err(io::Error::other)?;
            config.with_client_auth_cert(chain, key).map_err(io::Error::other)?
        }
    };
    Ok(Arc::new(config))
}

/// TLS on a socket. The handshake goes with the first bytes.
pub(crate) fn wrap(
    server: &Server,
    host: &str,
    tcp: Bounded<Socket>,
) -> io::Result<Box<dyn Stream>> {
    let certificates = match server.tls() {
        Some(certificates) => certificates.clone(),
        None => certificates(None, None)?,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let client = ClientConnection::new(certificates, name).map_err(io::Error::other)?;
    Ok(Box::new(Tls(StreamOwned::new(client, tcp))))
}

/// TLS on a socket, whose errors say why the server has closed it.
struct Tls(StreamOwned<ClientConnection, Bounded<Socket>>);

impl Tls {
    /// A server that refuses the client's certificate says so in an alert, and closes the connection.
    /// A write that comes later fails before the alert is read.
    fn reason(&mut self, error: io::Error) -> io::Error {
        if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            return error;
        }
        let StreamOwned { conn, sock } = &mut self.0;
        while conn.read_tls(sock).is_ok_and(|bytes| bytes > 0) {
            if let Err(alert) = conn.process_new_packets() {
                return io::Error::new(io::ErrorKind::InvalidData, alert);
            }
        }
        error
    }
}

impl Read for Tls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes).map_err(|error| self.reason(error))
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| self.reason(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| self.reason(error))
    }
}

impl Stream for Tls {
    fn is_over(&self) -> bool {
        self.0.sock.is_over()
    }
}
