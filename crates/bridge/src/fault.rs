//! What can go wrong between the bridge and a server, and which of it passes by itself.

use std::{fmt, io};

use redis::Value;

use crate::dead::Settled;
use crate::nodes::Address;

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
    pushed: usize,
    settled: Settled,
}

impl Error {
    pub(crate) fn config(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, text)
    }

    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into(), pushed: 0, settled: Settled::default() }
    }

    /// The error of a call that ended after the server had settled dead letters.
    pub(crate) fn after_letters(self, settled: Settled) -> Error {
        Error { settled, ..self }
    }

    /// How many dead letters a failed replay or removal is known to have settled. If a connection was
    /// cut, there may be more of them.
    pub fn settled(&self) -> Settled {
        self.settled
    }

    /// The error of a push that ended after a server had taken jobs.
    pub(crate) fn after(self, pushed: usize) -> Error {
        Error { pushed, ..self }
    }

    /// How many jobs of a failed push the servers are known to have. If a connection was cut, they may
    /// have more of them.
    pub fn pushed(&self) -> usize {
        self.pushed
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
    /// Connect to this address. A [`Wire`](crate::wire::Wire) does it by itself.
    Move(String, u16),
    /// Create the consumer group.
    MakeGroup,
    /// Send the command again, after a delay.
    Wait,
    /// Nothing the bridge can do: report it, and try again after a long delay.
    Report,
}

/// A failed exchange: with which server, what it asks for, and the error to report.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) address: String,
    pub(crate) remedy: Remedy,
    pub(crate) error: Error,
}

impl Fault {
    /// From an error of the connection.
    pub(crate) fn of_connection(error: &io::Error, address: &str) -> Fault {
        let error = Error::new(ErrorKind::Unreachable, format!("{address}: {error}"));
        Fault { address: address.to_owned(), remedy: Remedy::Reconnect, error }
    }

    /// No server was asked.
    pub(crate) fn of_silence(address: &str) -> Fault {
        let error = Error::new(ErrorKind::Unreachable, format!("{address}: no server answers"));
        Fault { address: address.to_owned(), remedy: Remedy::Reconnect, error }
    }

    /// From a server without functions that the scripts need.
    pub(crate) fn of_version(version: &str, address: &str) -> Fault {
        let text = format!("{address}: the server is Redis {version}: 7.0 or newer is needed");
        let error = Error::new(ErrorKind::Refused, text);
        Fault { address: address.to_owned(), remedy: Remedy::Report, error }
    }

    /// From a replica, which has named its master.
    pub(crate) fn of_replica(host: &str, port: u16, address: &str) -> Fault {
        let said = format!("READONLY a replica of {host}:{port}");
        let fault = Fault::of_reply("READONLY", &said, address);
        Fault { remedy: Remedy::Move(host.to_owned(), port), ..fault }
    }

    /// From the reply to a login. A server without users has no code for its refusal.
    pub(crate) fn of_login(reply: &Value, address: &str) -> Option<Fault> {
        let fault = Fault::in_reply(reply, address)?;
        let Value::ServerError(error) = reply else { return Some(fault) };
        Some(match fault.error.kind {
            ErrorKind::Refused => {
                let said = format!("{} {}", error.code(), error.details().unwrap_or_default());
                Fault::of_reply("WRONGPASS", &said, address)
            }
            _ => fault,
        })
    }

    /// From an error reply.
    pub(crate) fn of_reply(code: &str, reply: &str, address: &str) -> Fault {
        let (remedy, kind, advice) = match code {
            // ASK: the slot is on its way to another node, and its end is a MOVED.
            "LOADING" | "TRYAGAIN" | "BUSY" | "ASK" => (Remedy::Wait, ErrorKind::Busy, ""),
            "MISCONF" => (Remedy::Wait, ErrorKind::Busy, "; its log or snapshot cannot be written"),
            "OOM" => (Remedy::Wait, ErrorKind::Busy, "; raise maxmemory, or shorten the stream"),
            // The role of the node has changed, and its address may lead elsewhere now.
            "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED" | "NOREPLICAS" => {
                (Remedy::Reconnect, ErrorKind::Busy, "")
            }
            // A restart empties the server's list of scripts; a connection loads them.
            "NOSCRIPT" => (Remedy::Reconnect, ErrorKind::Busy, ""),
            "MOVED" => {
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
            "DENIED" => (Remedy::Report, ErrorKind::Denied, ""),
            "ERR" if reply.contains("max number of clients reached") => {
                (Remedy::Reconnect, ErrorKind::Busy, "; raise its maxclients")
            }
            "NOPERM" => (Remedy::Report, ErrorKind::Denied, ACL_ADVICE),
            // Inside a script the refusal has no code of its own.
            "ERR"
                if reply.contains("The user executing the script can't")
                    || reply.contains("ACL failure in script") =>
            {
                (Remedy::Report, ErrorKind::Denied, ACL_ADVICE)
            }
            "WRONGTYPE" => (Remedy::Report, ErrorKind::Refused, TYPE_ADVICE),
            "CROSSSLOT" => (
                Remedy::Report,
                ErrorKind::Refused,
                "; give streams that are read together a common {tag}",
            ),
            _ => (Remedy::Report, ErrorKind::Refused, ""),
        };
        let said = without_script(reply.trim());
        let text = format!("{address}: the server says: {said}{advice}");
        Fault { address: address.to_owned(), remedy, error: Error::new(kind, text) }
    }

    /// The fault of an error reply that concerns the node, so that no other reply of the batch is
    /// worth reading.
    pub(crate) fn of_batch(replies: &[Value], address: &str) -> Option<Fault> {
        replies.iter().find_map(|reply| {
            let fault = Fault::in_reply(reply, address)?;
            (fault.remedy == Remedy::Reconnect).then_some(fault)
        })
    }

    /// The fault of an error reply.
    pub(crate) fn in_reply(reply: &Value, address: &str) -> Option<Fault> {
        let Value::ServerError(error) = reply else { return None };
        let (code, details) = (error.code(), error.details().unwrap_or_default());
        if let (REFUSED, Some((_, said))) = (code, details.split_once(": ")) {
            let code = said.split(' ').next().unwrap_or_default();
            let fault = Fault::of_reply(code, said, address);
            // The command is named where it is what must be mended.
            let named = || Fault::of_reply(code, details, address);
            return Some(if fault.passes() { fault } else { named() });
        }
        Some(Fault::of_reply(code, &format!("{code} {details}"), address))
    }

    /// The text of a reply that refuses a command of the handler for a reason of the command's own,
    /// so that the attempt has failed.
    pub(crate) fn of_effect(reply: &Value) -> Option<String> {
        let Value::ServerError(error) = reply else { return None };
        (error.code() == EFFECT).then(|| error.details().unwrap_or_default().to_owned())
    }

    /// The target of a redirection, which had no effect.
    pub(crate) fn target(&self) -> Option<Address> {
        match &self.remedy {
            Remedy::Move(host, port) => Some((host.clone(), *port)),
            _ => None,
        }
    }

    /// Whether it is a state of the server that passes by itself.
    fn passes(&self) -> bool {
        self.error.kind == ErrorKind::Busy
            && matches!(self.remedy, Remedy::Wait | Remedy::Reconnect)
    }
}

/// The codes that the script of effects puts before a command and its refusal.
const EFFECT: &str = "EFFECT";
const REFUSED: &str = "REFUSED";

/// The reply without what the server adds to the error of a script: ` script: SHA, on
/// @user_script:LINE.` A fault that several scripts meet is one fault.
fn without_script(reply: &str) -> &str {
    match reply.rsplit_once(" script: ") {
        Some((said, place)) if place.contains(", on @user_script:") => said,
        _ => reply,
    }
}

/// For a key of another type: the reply does not name the key.
const TYPE_ADVICE: &str = "; rename the key of another type: the stream, or its :delayed, :dead, \
                           :stats or :results; or choose another name for the stream";
/// For a user without the rights that the bridge needs.
const ACL_ADVICE: &str = "; docs/bridge.md has the ACL rules";

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
        assert_eq!(of("ASK 3999 10.0.0.7:7001"), (Remedy::Wait, ErrorKind::Busy));
        let moved = Remedy::Move(String::new(), 7001);
        assert_eq!(of("MOVED 3999 :7001"), (moved, ErrorKind::Busy), "the host stays");
        let moved = Remedy::Move("fd00::1".to_owned(), 7001);
        assert_eq!(of("MOVED 3999 fd00::1:7001"), (moved, ErrorKind::Busy));
        assert_eq!(of("NOGROUP No such key"), (Remedy::MakeGroup, ErrorKind::Busy));
        assert_eq!(of("NOAUTH Authentication required."), (Remedy::Report, ErrorKind::Denied));
        assert_eq!(of("WRONGPASS invalid"), (Remedy::Report, ErrorKind::Denied));
        assert_eq!(of("WRONGTYPE Operation against"), (Remedy::Report, ErrorKind::Refused));
        assert_eq!(of("ERR unknown command"), (Remedy::Report, ErrorKind::Refused));
        let in_script = "ERR The user executing the script can't run this command or subcommand";
        assert_eq!(of(in_script), (Remedy::Report, ErrorKind::Denied));
    }

    #[test]
    fn an_effect_that_meets_a_state_of_the_server_is_no_failed_attempt() {
        let reply = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        let own = reply("-EFFECT INCRBY: ERR value is not an integer\r\n");
        assert_eq!(Fault::of_effect(&own).unwrap(), "INCRBY: ERR value is not an integer");
        for state in ["OOM command not allowed", "READONLY You can't write", "MISCONF Errors"] {
            let state = reply(&format!("-REFUSED SET: {state}\r\n"));
            assert_eq!(Fault::of_effect(&state), None);
            assert!(Fault::in_reply(&state, "host").unwrap().passes());
        }
        assert_eq!(Fault::of_effect(&reply("-OOM command not allowed\r\n")), None);
    }

    #[test]
    fn a_right_or_a_place_that_is_refused_is_named_with_its_command() {
        let of = |text: &str| {
            let reply = redis::parse_redis_value(text.as_bytes()).unwrap();
            assert_eq!(Fault::of_effect(&reply), None);
            Fault::in_reply(&reply, "host").unwrap().error
        };
        let denied = of("-REFUSED INCRBY: ERR The user executing the script can't run this\r\n");
        assert_eq!(denied.kind, ErrorKind::Denied);
        assert!(denied.text.contains("says: INCRBY: ERR The user"), "{denied}");
        assert!(denied.text.ends_with(ACL_ADVICE), "{denied}");
        let of_type = of("-REFUSED XADD: WRONGTYPE Operation against a key\r\n");
        assert!(of_type.text.contains("XADD: WRONGTYPE") && of_type.text.ends_with(TYPE_ADVICE));
    }

    #[test]
    fn a_wrong_type_has_one_text_in_and_outside_of_scripts() {
        let line = |reply: &str| Fault::of_reply("WRONGTYPE", reply, "host").error.to_string();
        let direct = line("WRONGTYPE Operation against a key");
        assert!(direct.contains("a key; rename the key of another type: the stream, or its :del"));
        assert!(direct.ends_with("another name for the stream"), "{direct}");
        let in_script = "WRONGTYPE Operation against a key script: 1f, on @user_script:7.";
        assert_eq!(line(in_script), direct);
    }
}
