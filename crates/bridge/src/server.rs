//! The address of a server: where it is, the user and password, the certificates.

#[cfg(feature = "tls")]
use std::path::Path;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo};

use crate::fault::Error;

/// The forms of an address, for errors.
const FORMS: &str = if cfg!(feature = "tls") {
    "redis://[USER:PASSWORD@]HOST[:PORT][/DB], the same with rediss:// for TLS, or unix:///PATH"
} else {
    "redis://[USER:PASSWORD@]HOST[:PORT][/DB] or unix:///PATH; rediss:// needs the feature tls"
};

/// The address of a server: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `rediss://` with the feature
/// `tls`, or `unix:///PATH`.
#[derive(Clone, Debug)]
pub struct Server {
    client: Client,
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
    patience: u32,
}

impl Server {
    /// Reads an address.
    ///
    /// # Errors
    /// The address is not one, with an example of a valid one. `#insecure` is refused: a connection
    /// without a check of the server's certificate protects nothing.
    pub fn new(url: &str) -> Result<Server, Error> {
        // A program that has chosen its cryptography before keeps it.
        #[cfg(feature = "tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hidden = url.rsplit_once('@').map_or(url, |(_, place)| place);
        let client = Client::open(url).map_err(|error| {
            Error::config(format!("{hidden:?} is no address ({error}): allowed are {FORMS}"))
        })?;
        let addr = client.get_connection_info().addr();
        if matches!(addr, ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::config(format!(
                "{hidden:?}: #insecure is refused; give the certificate of the server's authority"
            )));
        }
        let mut server = Server {
            client,
            #[cfg(feature = "tls")]
            certificates: None,
            patience: 1,
        };
        // The client's name would cost each connection two replies, each with its own time limit.
        let settings = server.info().redis_settings().clone().set_skip_set_lib_name();
        let info = server.info().clone().set_redis_settings(settings);
        server.open(info);
        Ok(server)
    }

    /// Replaces the address's password, so that a command line need not have it. The user is the
    /// address's, or the server's `default`.
    #[must_use]
    pub fn password(mut self, password: &str) -> Server {
        let settings = self.info().redis_settings().clone().set_password(password);
        let info = self.info().clone().set_redis_settings(settings);
        self.open(info);
        self
    }

    /// Multiplies the time limits of exchanges with the server: 5 s for a connection, 10 s for a
    /// reply, and those of a start and a stop. For machines so busy that a server that works exceeds
    /// them. Zero counts as 1, which is the default.
    #[must_use]
    pub fn patience(self, factor: u32) -> Server {
        Server { patience: factor.max(1), ..self }
    }

    /// A time limit, multiplied as [`Server::patience`] says.
    pub(crate) fn limit(&self, limit: Duration) -> Duration {
        limit.saturating_mul(self.patience)
    }

    /// The certificates for `rediss://`: that of the authority, and the client's with its key, in
    /// PEM. Without them the system's authorities decide, and the client shows none.
    ///
    /// # Errors
    /// A certificate or key is not valid, or the address is not `rediss://`.
    #[cfg(feature = "tls")]
    pub fn certificates(
        mut self,
        authority: Option<Vec<u8>>,
        client: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Server, Error> {
        if !matches!(self.info().addr(), ConnectionAddr::TcpTls { .. }) {
            let name = self.name();
            let text = format!("{name}: certificates are for addresses that begin with rediss://");
            return Err(Error::config(text));
        }
        // Text without any certificate would pass as an authority that signs nothing.
        let marker = b"-----BEGIN CERTIFICATE-----";
        let has_marker = |pem: &Vec<u8>| pem.windows(marker.len()).any(|part| part == marker);
        if authority.as_ref().is_some_and(|pem| !has_marker(pem)) {
            let text = "certificates: the authority's is not in PEM: -----BEGIN CERTIFICATE-----";
            return Err(Error::config(text));
        }
        let client_tls = client
            .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        let certificates = redis::TlsCertificates { client_tls, root_cert: authority };
        self.client = Client::build_with_tls(self.info().clone(), certificates.clone())
            .map_err(|error| Error::config(format!("certificates: {error}")))?;
        self.certificates = Some(certificates);
        Ok(self)
    }

    /// As [`Server::certificates`], from files. Without any file it changes nothing.
    ///
    /// # Errors
    /// As [`Server::certificates`]; a file cannot be read; a certificate without its key, or a key
    /// without its certificate.
    #[cfg(feature = "tls")]
    pub fn certificate_files(
        self,
        authority: Option<&Path>,
        certificate: Option<&Path>,
        key: Option<&Path>,
    ) -> Result<Server, Error> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| {
                Error::config(format!("certificates: {}: {error}", path.display()))
            })
        };
        let client = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => {
                let text = "certificates: the client's certificate and its key are given together";
                return Err(Error::config(text));
            }
        };
        match authority.map(read).transpose()? {
            None if client.is_none() => Ok(self),
            authority => self.certificates(authority, client),
        }
    }

    /// The address without user and password.
    pub(crate) fn name(&self) -> String {
        self.info().addr().to_string()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// The same user and settings at another address, as a cluster demands. An empty host is that of
    /// the node that has named the address.
    pub(crate) fn moved_to(&mut self, host: &str, port: u16) {
        let host = match self.info().addr() {
            _ if !host.is_empty() => host.to_owned(),
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        };
        let addr = match self.info().addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.open(self.info().clone().set_addr(addr));
    }

    /// A client with these settings and the same certificates.
    fn open(&mut self, info: ConnectionInfo) {
        #[cfg(feature = "tls")]
        let opened = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        #[cfg(not(feature = "tls"))]
        let opened = Client::open(info);
        // The settings were valid before, and a new address or password alone is always valid.
        if let Ok(client) = opened {
            self.client = client;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_multiplies_the_time_limits_and_remains_after_a_move() {
        let server = Server::new("redis://10.0.0.5:7000").unwrap();
        let limit = Duration::from_secs(10);
        assert_eq!(server.limit(limit), limit);
        let mut patient = server.patience(3);
        patient.moved_to("10.0.0.6", 7001);
        assert_eq!(patient.limit(limit), 3 * limit);
        assert_eq!(patient.patience(0).limit(limit), limit);
    }

    #[test]
    fn a_move_without_a_host_changes_the_port_alone() {
        let mut server = Server::new("redis://me:secret@10.0.0.5:7000").unwrap();
        server.moved_to("", 7001);
        assert_eq!(server.name(), "10.0.0.5:7001");
        server.moved_to("10.0.0.6", 7002);
        assert_eq!(server.name(), "10.0.0.6:7002");
        assert_eq!(server.info().redis_settings().username(), Some("me"));
    }
}
