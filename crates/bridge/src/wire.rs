//! A connection to one server: batches of commands out, replies in; made again after a fault.

use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike, Value};

use crate::fault::{Error, Fault, Remedy};
use crate::scripts;

/// A reply that takes longer is a lost connection.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer within this time is unreachable.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The address of a server: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `rediss://` with the feature
/// `tls`, or `unix:///PATH`.
#[derive(Clone, Debug)]
pub struct Server {
    client: Client,
    #[cfg(feature = "tls")]
    certificates: Option<redis::TlsCertificates>,
}

impl Server {
    /// Reads an address.
    ///
    /// # Errors
    /// The address is not one, with an example of a valid one.
    pub fn new(url: &str) -> Result<Server, Error> {
        // A program that has chosen its cryptography before keeps it.
        #[cfg(feature = "tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(url).map_err(|error| {
            let hidden = url.rsplit_once('@').map_or(url, |(_, place)| place);
            let form = "redis://[USER:PASSWORD@]HOST[:PORT][/DB] or unix:///PATH";
            let tls = if cfg!(feature = "tls") {
                ", with TLS rediss://"
            } else {
                "; rediss:// needs the feature tls"
            };
            Error::config(format!("{hidden:?} is no address ({error}): allowed are {form}{tls}"))
        })?;
        Ok(Server {
            client,
            #[cfg(feature = "tls")]
            certificates: None,
        })
    }

    /// The certificates for `rediss://`: that of the authority, and the client's with its key, in
    /// PEM. Without them the system's authorities decide, and the client shows none.
    ///
    /// # Errors
    /// A certificate or key is not valid.
    #[cfg(feature = "tls")]
    pub fn certificates(
        self,
        authority: Option<Vec<u8>>,
        client: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Server, Error> {
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
        let info = self.client.get_connection_info().clone();
        let client = Client::build_with_tls(info, certificates.clone())
            .map_err(|error| Error::config(format!("certificates: {error}")))?;
        Ok(Server { client, certificates: Some(certificates) })
    }

    /// The address without user and password.
    pub(crate) fn name(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// The same user and settings at another address, as a cluster demands.
    fn moved_to(&mut self, host: String, port: u16) {
        let addr = match self.info().addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.info().clone().set_addr(addr);
        #[cfg(feature = "tls")]
        let opened = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        #[cfg(not(feature = "tls"))]
        let opened = Client::open(info);
        // The settings were valid before, and an address alone is always valid.
        if let Ok(client) = opened {
            self.client = client;
        }
    }
}

/// A connection that is made when it is needed.
pub(crate) struct Wire {
    server: Server,
    connection: Option<Connection>,
    /// How often a connection was made.
    connects: u64,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(server: Server) -> Wire {
        Wire { server, connection: None, connects: 0, buffer: Vec::new() }
    }

    pub(crate) fn name(&self) -> String {
        self.server.name()
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// Sends commands and returns their replies, error replies included. After a fault it is unknown
    /// which of the commands took effect.
    pub(crate) fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        self.ask_within(commands, REPLY_MAX)
    }

    /// As [`Wire::ask`], for a command that blocks on the server.
    pub(crate) fn ask_within(
        &mut self,
        commands: &[Cmd],
        limit: Duration,
    ) -> Result<Vec<Value>, Fault> {
        let answer = self.exchange(commands, limit);
        if let Err(fault) = &answer {
            match &fault.remedy {
                Remedy::Reconnect => self.connection = None,
                Remedy::Move(host, port) => {
                    self.connection = None;
                    self.server.moved_to(host.clone(), *port);
                }
                Remedy::Wait | Remedy::MakeGroup | Remedy::Report => {}
            }
        }
        answer
    }

    /// As [`Wire::ask`], for a single command whose error reply is a fault.
    pub(crate) fn ask_one(&mut self, command: Cmd) -> Result<Value, Fault> {
        let mut replies = self.ask(&[command])?;
        let reply = replies.pop().unwrap_or_default();
        Fault::in_reply(&reply, &self.name()).map_or(Ok(reply), Err)
    }

    fn exchange(&mut self, commands: &[Cmd], limit: Duration) -> Result<Vec<Value>, Fault> {
        if self.connection.is_none() {
            self.connection = Some(self.connect()?);
            self.connects += 1;
        }
        self.buffer.clear();
        commands.iter().for_each(|command| command.write_packed_command(&mut self.buffer));
        let name = self.server.name();
        // The connection was made above.
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let replies = connection
            .set_read_timeout(Some(limit))
            .and_then(|()| connection.req_packed_commands(&self.buffer, 0, commands.len()));
        let replies = replies.map_err(|error| {
            let mut fault = Fault::of_client(&error, &name);
            // Replies may still be on their way: this connection is of no further use.
            fault.remedy = Remedy::Reconnect;
            fault
        })?;
        // A buffer that has held a large payload is released.
        self.buffer.shrink_to(1 << 20);
        Fault::of_batch(&replies, &name).map_or(Ok(replies), Err)
    }

    fn connect(&self) -> Result<Connection, Fault> {
        let name = self.server.name();
        let fault = |error| Fault::of_client(&error, &name);
        let mut connection =
            self.server.client.get_connection_with_timeout(CONNECT_MAX).map_err(fault)?;
        connection.set_read_timeout(Some(REPLY_MAX)).map_err(fault)?;
        connection.set_write_timeout(Some(REPLY_MAX)).map_err(fault)?;
        let mut load = redis::pipe();
        scripts::texts().for_each(|text| {
            load.cmd("SCRIPT").arg("LOAD").arg(text);
        });
        let replies = connection
            .req_packed_commands(&load.get_packed_pipeline(), 0, load.len())
            .map_err(fault)?;
        match replies.iter().find_map(|reply| Fault::in_reply(reply, &name)) {
            Some(fault) => Err(fault),
            None => Ok(connection),
        }
    }
}
