//! What can go wrong between the bridge and a server, and which of it passes by itself.

use std::fmt;

use redis::{RedisError, Value};

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration is not valid.
    Config,
    /// The server does not answer, or the connection was cut. Passes by itself.
    Unreachable,
    /// The server refuses for now: LOADING, OOM, READONLY, CLUSTERDOWN and the like. Passes by
    /// itself.
    Busy,
    /// The server refuses the user: a missing or wrong password, or a rule of its ACL.
    Denied,
    /// The key is not a stream, the command does not exist, or another answer that stays the same.
    Refused,
}

/// An error in one line, which says what was wrong and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn config(text: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Config, text: text.into() }
    }

    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// What a failed exchange with the server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Connect again, after a delay.
    Reconnect,
    /// Connect to this address.
    Move(String, u16),
    /// Create the consumer group.
    MakeGroup,
    /// Send the command again, after a delay.
    Wait,
    /// Nothing the bridge can do: report it, and try again after a long delay.
    Report,
}

/// A failed exchange: what it asks for, and the error to report.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) remedy: Remedy,
    pub(crate) error: Error,
}

impl Fault {
    /// From an error of the client: of the connection or of the login.
    pub(crate) fn of_client(error: &RedisError, address: &str) -> Fault {
        if let Some(code) = error.code() {
            let reply = format!("{code} {}", error.detail().unwrap_or_default());
            return Fault::of_reply(code, &reply, address);
        }
        // The login's failure has no code of its own.
        let text = error.to_string();
        for code in ["WRONGPASS", "NOAUTH", "NOPERM", "LOADING"] {
            if text.contains(code) {
                return Fault::of_reply(code, &text, address);
            }
        }
        if error.kind() == redis::ErrorKind::AuthenticationFailed {
            return Fault::of_reply("WRONGPASS", &text, address);
        }
        let text = format!("{address}: {text}");
        Fault { remedy: Remedy::Reconnect, error: Error::new(ErrorKind::Unreachable, text) }
    }

    /// From an error reply.
    pub(crate) fn of_reply(code: &str, reply: &str, address: &str) -> Fault {
        let (remedy, kind, advice) = match code {
            "LOADING" | "TRYAGAIN" | "BUSY" => (Remedy::Wait, ErrorKind::Busy, ""),
            "OOM" => (Remedy::Wait, ErrorKind::Busy, "; raise maxmemory, or shorten the stream"),
            // The role of the node has changed, and its address may lead elsewhere now.
            "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED" | "NOREPLICAS" => {
                (Remedy::Reconnect, ErrorKind::Busy, "")
            }
            // A restart empties the server's list of scripts; a connection loads them.
            "NOSCRIPT" => (Remedy::Reconnect, ErrorKind::Busy, ""),
            "MOVED" | "ASK" => {
                let place = reply.rsplit(' ').next().and_then(|place| place.rsplit_once(':'));
                let to = place.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
                let remedy = to.map_or(Remedy::Wait, |(host, port)| Remedy::Move(host, port));
                (remedy, ErrorKind::Busy, "")
            }
            "NOGROUP" => (Remedy::MakeGroup, ErrorKind::Busy, ""),
            "NOAUTH" => (
                Remedy::Report,
                ErrorKind::Denied,
                "; give redis://USER:PASSWORD@HOST, or the option --password-file",
            ),
            "WRONGPASS" => (Remedy::Report, ErrorKind::Denied, "; check user and password"),
            "NOPERM" => (Remedy::Report, ErrorKind::Denied, "; docs/bridge.md has the ACL rules"),
            "WRONGTYPE" => {
                (Remedy::Report, ErrorKind::Refused, "; choose another name for the stream")
            }
            "CROSSSLOT" => (
                Remedy::Report,
                ErrorKind::Refused,
                "; give streams that are read together a common {tag}",
            ),
            _ => (Remedy::Report, ErrorKind::Refused, ""),
        };
        let text = format!("{address}: the server says: {}{advice}", reply.trim());
        Fault { remedy, error: Error::new(kind, text) }
    }

    /// The fault of an error reply that concerns the node or the connection, so that no other reply
    /// of the batch is worth reading.
    pub(crate) fn of_batch(replies: &[Value], address: &str) -> Option<Fault> {
        replies.iter().find_map(|reply| {
            let fault = Fault::in_reply(reply, address)?;
            let concerns_node = matches!(fault.remedy, Remedy::Reconnect | Remedy::Move(..))
                || fault.error.kind == ErrorKind::Denied;
            concerns_node.then_some(fault)
        })
    }

    /// The fault of an error reply.
    pub(crate) fn in_reply(reply: &Value, address: &str) -> Option<Fault> {
        let Value::ServerError(error) = reply else { return None };
        let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
        Some(Fault::of_reply(error.code(), &text, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reply: &str) -> (Remedy, ErrorKind) {
        let fault = Fault::of_reply(reply.split(' ').next().unwrap(), reply, "host:6379");
        assert!(!fault.error.text.contains('\n'));
        (fault.remedy, fault.error.kind)
    }

    #[test]
    fn each_refusal_of_a_server_has_a_remedy() {
        assert_eq!(of("LOADING Redis is loading"), (Remedy::Wait, ErrorKind::Busy));
        assert_eq!(of("OOM command not allowed"), (Remedy::Wait, ErrorKind::Busy));
        assert_eq!(of("READONLY You can't write"), (Remedy::Reconnect, ErrorKind::Busy));
        let moved = Remedy::Move("10.0.0.7".to_owned(), 7001);
        assert_eq!(of("MOVED 3999 10.0.0.7:7001"), (moved, ErrorKind::Busy));
        let moved = Remedy::Move("fd00::1".to_owned(), 7001);
        assert_eq!(of("MOVED 3999 fd00::1:7001"), (moved, ErrorKind::Busy));
        assert_eq!(of("NOGROUP No such key"), (Remedy::MakeGroup, ErrorKind::Busy));
        assert_eq!(of("NOAUTH Authentication required."), (Remedy::Report, ErrorKind::Denied));
        assert_eq!(of("WRONGPASS invalid"), (Remedy::Report, ErrorKind::Denied));
        assert_eq!(of("WRONGTYPE Operation against"), (Remedy::Report, ErrorKind::Refused));
        assert_eq!(of("ERR unknown command"), (Remedy::Report, ErrorKind::Refused));
    }
}
