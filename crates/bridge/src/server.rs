//! The address of a server: where it is, the user and password, the certificates.

#[cfg(feature = "tls")]
use std::path::Path;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::fault::Error;
use crate::nodes::Place;
use crate::tls;

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
    info: ConnectionInfo,
    certificates: Option<tls::Certificates>,
    patience: u32,
    /// With the other servers of a consumer or producer.
    place: Option<Place>,
    /// The name of its connections.
    client: Option<String>,
}

/// The name of a consumer's connections: a server takes no blank and no control character.
pub(crate) fn client_name(consumer: &str) -> String {
    consumer.bytes().map(|byte| if byte.is_ascii_graphic() { byte as char } else { '_' }).collect()
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
        let info = url.into_connection_info().map_err(|error| {
            Error::config(format!("{hidden:?} is no address ({error}): allowed are {FORMS}"))
        })?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(Error::config(format!(
                "{hidden:?}: #insecure is refused; give the certificate of the server's authority"
            )));
        }
        Ok(Server { info, certificates: None, patience: 1, place: None, client: None })
    }

    /// Replaces the address's password, so that a command line need not have it. The user is the
    /// address's, or the server's `default`.
    #[must_use]
    pub fn password(mut self, password: &str) -> Server {
        let settings = self.info.redis_settings().clone().set_password(password);
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Multiplies the time limits of exchanges with the server: 5 s for a connection, 10 s for a
    /// reply or for a connection and its first reply, and those of a start and a stop. For machines
    /// so busy that a server that works exceeds them. Zero counts as 1, which is the default.
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
        if !matches!(self.addr(), ConnectionAddr::TcpTls { .. }) {
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
        let client =
            client.as_ref().map(|(certificate, key)| (certificate.as_slice(), key.as_slice()));
        let certificates = tls::certificates(authority.as_deref(), client)
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
        self.addr().to_string()
    }

    pub(crate) fn addr(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The host; empty for a path.
    pub(crate) fn host(&self) -> String {
        match self.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => String::new(),
        }
    }

    /// User, password and database.
    pub(crate) fn login(&self) -> &RedisConnectionInfo {
        self.info.redis_settings()
    }

    pub(crate) fn tls(&self) -> Option<&tls::Certificates> {
        self.certificates.as_ref()
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    pub(crate) fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Names the connections after a consumer.
    pub(crate) fn of_consumer(self, consumer: &str) -> Server {
        Server { client: Some(client_name(consumer)), ..self }
    }

    pub(crate) fn with_place(self, place: Place) -> Server {
        Server { place: Some(place), ..self }
    }

    /// The same user and settings at another address, as a cluster demands. An empty host is that of
    /// the node that has named the address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Server {
        let host = match self.addr() {
            _ if !host.is_empty() => host.to_owned(),
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        };
        let addr = match self.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Server { info: self.info.clone().set_addr(addr), ..self.clone() }
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
        let patient = server.patience(3).at("10.0.0.6", 7001);
        assert_eq!(patient.limit(limit), 3 * limit);
        assert_eq!(patient.patience(0).limit(limit), limit);
    }

    #[test]
    fn a_move_without_a_host_changes_the_port_alone() {
        let server = Server::new("redis://me:secret@10.0.0.5:7000").unwrap();
        assert_eq!(server.at("", 7001).name(), "10.0.0.5:7001");
        let moved = server.at("10.0.0.6", 7002);
        assert_eq!(moved.name(), "10.0.0.6:7002");
        assert_eq!(moved.login().username(), Some("me"));
    }
}
