//! The command line of `uwork serve`, checked.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use uwork_serve::{Config, Io, Notify, Receiver};

use super::super::UserError;

/// What `uwork serve --help` says below the options.
const DETAILS: &str = "\
Commands: PING, ECHO, GET, SET (EX, PX, NX, XX), DEL, EXISTS, INCR, INCRBY, EXPIRE (NX, XX, GT, LT),
TTL, MGET, MSET, DBSIZE, FLUSHALL, INFO, CONFIG GET, COMMAND, CLIENT, HELLO, SELECT, QUIT, and
DIGEST key, the SHA-256 of a value, which is computed on a work queue. RESP2, and RESP3 after
HELLO 3. Keys are in memory only.

BYTES are a number, or a number with k, m or g (1024, 1024 x 1024, ...).

SIGTERM and Ctrl-C stop the server: it accepts no more, answers what it has received, and exits with 0. A second
one ends it at once.";

/// Numbers are read as text, so that a bad one gets a line that says what is allowed.
#[derive(clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// The address to listen on, IPv4 or IPv6, or a name of this machine's loopback. Any other address has to be given
    /// as such: there are no passwords
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: String,
    /// The port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value = "6379", allow_hyphen_values = true)]
    port: String,
    /// Threads, each with a part of the keys [default: one for every second CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<String>,
    /// How threads are told of what was handed to them: light ends the wait that they are in, signal
    /// sends a signal
    #[arg(long, value_name = "HOW", default_value = "light")]
    notify: String,
    /// Who receives: shared, each thread for its own connections; dedicated, one thread for all
    #[arg(long, value_name = "WHO", default_value = "shared")]
    receiver: String,
    /// How threads wait for sockets: auto, with io_uring, or epoll where the system refuses that; epoll
    #[arg(long, value_name = "HOW", default_value = "auto")]
    io: String,
    /// The affinity scope of the queue for DIGEST
    #[arg(long, value_name = "SCOPE", default_value = "default")]
    scope: String,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    max_clients: String,
    /// The largest request
    #[arg(long, value_name = "BYTES", default_value = "64m", allow_hyphen_values = true)]
    max_request: String,
    /// Memory for keys, values, requests and replies
    #[arg(long, value_name = "BYTES", default_value = "1g", allow_hyphen_values = true)]
    max_memory: String,
    /// Closes connections of which nothing is received, and to which nothing is sent, for so long; 0 leaves them open
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_hyphen_values = true)]
    idle_timeout: String,
    /// How long answering what is in flight may take at the end
    #[arg(long, value_name = "SECONDS", default_value = "5", allow_hyphen_values = true)]
    drain_timeout: String,
    /// The system's send buffer of each connection [default: the system's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    send_buffer: Option<String>,
    /// The system's receive buffer of each connection [default: the system's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    receive_buffer: Option<String>,
}

const SECONDS: RangeInclusive<usize> = 0..=1_000_000;
/// A gibibyte, and not more than the system's own type holds.
const SOCKET_BUFFER: RangeInclusive<usize> = 4096..=1 << 30;

impl Args {
    /// The settings that they stand for.
    pub(super) fn config(&self) -> Result<Config, UserError> {
        let ip = match self.bind.parse() {
            Ok(ip) => ip,
            Err(_) => loopback_of(&self.bind)?,
        };
        let port = number("--port", &self.port, 0..=usize::from(u16::MAX))?;
        // Below 65536.
        let address = SocketAddr::new(ip, port as u16);
        let optional = |flag, text: &Option<String>| {
            text.as_ref().map(|text| bytes(flag, text, SOCKET_BUFFER)).transpose()
        };
        let default = Config::default();
        let threads = self.threads.as_ref();
        let threads = threads.map(|text| number("--threads", text, 1..=Config::THREADS_MAX));
        let idle = number("--idle-timeout", &self.idle_timeout, SECONDS)?;
        let drain = number("--drain-timeout", &self.drain_timeout, SECONDS)?;
        let scope = self.scope.parse();
        Ok(Config {
            address,
            threads: threads.transpose()?.unwrap_or(default.threads),
            notify: one_of(
                "--notify",
                &self.notify,
                &[("light", Notify::Light), ("signal", Notify::Signal)],
            )?,
            receiver: one_of(
                "--receiver",
                &self.receiver,
                &[("shared", Receiver::Shared), ("dedicated", Receiver::Dedicated)],
            )?,
            io: one_of("--io", &self.io, &[("auto", Io::Auto), ("epoll", Io::Epoll)])?,
            scope: scope.map_err(|error| UserError(format!("--scope: {error}")))?,
            clients_max: number("--max-clients", &self.max_clients, 1..=1_000_000)?,
            request_max: bytes("--max-request", &self.max_request, 1024..=1 << 30)?,
            memory_max: bytes("--max-memory", &self.max_memory, 1 << 20..=1 << 46)?,
            idle_max: (idle > 0).then(|| Duration::from_secs(idle as u64)),
            drain_max: Duration::from_secs(drain as u64),
            send_buffer: optional("--send-buffer", &self.send_buffer)?,
            receive_buffer: optional("--receive-buffer", &self.receive_buffer)?,
        })
    }
}

/// The address of a name, IPv4 where there are several. What a name stands for can change, so that only an address
/// opens the server to others.
fn loopback_of(name: &str) -> Result<IpAddr, UserError> {
    let wrong = |what: String| UserError(format!("--bind '{name}': {what}"));
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        wrong(format!(
            "an IPv4 or IPv6 address, or a name of loopback such as localhost is allowed ({error})"
        ))
    })?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    let loopback = found.iter().filter(|ip| ip.is_loopback());
    let first = loopback.min_by_key(|ip| ip.is_ipv6()).copied();
    first.ok_or_else(|| {
        let addresses: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        wrong(format!(
            "that is {}, not loopback, where others can reach a server without passwords; if that is wanted, give \
             the address itself",
            addresses.join(" and ")
        ))
    })
}

fn one_of<T: Copy>(flag: &str, text: &str, allowed: &[(&str, T)]) -> Result<T, UserError> {
    let found = allowed.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
        UserError(format!("{flag} '{text}': {} are allowed", names.join(" and ")))
    })
}

fn number(flag: &str, text: &str, allowed: RangeInclusive<usize>) -> Result<usize, UserError> {
    text.parse().ok().filter(|value| allowed.contains(value)).ok_or_else(|| {
        let (from, to) = (allowed.start(), allowed.end());
        UserError(format!("{flag} '{text}': a number from {from} to {to} is allowed"))
    })
}

fn bytes(flag: &str, text: &str, allowed: RangeInclusive<usize>) -> Result<usize, UserError> {
    // As in 16m and 16mb.
    let short = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let (digits, shift) = match short.as_bytes().last() {
        Some(b'k' | b'K') => (&short[..short.len() - 1], 10),
        Some(b'm' | b'M') => (&short[..short.len() - 1], 20),
        Some(b'g' | b'G') => (&short[..short.len() - 1], 30),
        _ => (text, 0),
    };
    let value = digits.parse::<usize>().ok().and_then(|value| value.checked_mul(1 << shift));
    value.filter(|value| allowed.contains(value)).ok_or_else(|| {
        let (from, to) = (allowed.start(), allowed.end());
        UserError(format!(
            "{flag} '{text}': {from} to {to} bytes are allowed, also as in 64k, 16m, 1g"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn config(flags: &[&str]) -> Result<Config, String> {
        let line = Line::try_parse_from([&["serve"], flags].concat()).unwrap();
        line.args.config().map_err(|UserError(text)| text)
    }

    #[test]
    fn without_flags_it_listens_on_loopback() {
        let config = config(&[]).unwrap();
        assert_eq!(config.address.to_string(), "127.0.0.1:6379");
        assert_eq!((config.request_max, config.memory_max), (64 << 20, 1 << 30));
        assert_eq!((config.idle_max, config.io), (None, Io::Auto));
    }

    #[test]
    fn a_bad_value_is_answered_with_what_is_allowed() {
        for (flags, error) in [
            (["--port", "65536"], "--port '65536': a number from 0 to 65535 is allowed"),
            (["--port", "-1"], "--port '-1': a number from 0 to 65535 is allowed"),
            (["--threads", "0"], "--threads '0': a number from 1 to 256 is allowed"),
            (["--notify", "loud"], "--notify 'loud': light and signal are allowed"),
            (["--io", "poll"], "--io 'poll': auto and epoll are allowed"),
            (["--receiver", "me"], "--receiver 'me': shared and dedicated are allowed"),
            (
                ["--max-request", "2g"],
                "--max-request '2g': 1024 to 1073741824 bytes are allowed, also as in 64k, 16m, 1g",
            ),
            (
                ["--max-memory", "99999999999999999999g"],
                "--max-memory '99999999999999999999g': 1048576 to 70368744177664 bytes are allowed, \
                 also as in 64k, 16m, 1g",
            ),
        ] {
            assert_eq!(config(&flags).unwrap_err(), error);
        }
        assert!(config(&["--scope", "moon"]).unwrap_err().starts_with("--scope: "));
    }

    #[test]
    fn a_name_is_one_of_loopback() {
        for (bind, ip) in [
            ("localhost", "127.0.0.1"),
            ("127.0.0.2", "127.0.0.2"),
            ("::1", "::1"),
            ("0.0.0.0", "0.0.0.0"),
        ] {
            assert_eq!(config(&["--bind", bind]).unwrap().address.ip().to_string(), ip);
        }
        // The resolver takes it for an address that a mere address is not written as.
        let refused = config(&["--bind", "0xc0000201"]).unwrap_err();
        let start = "--bind '0xc0000201': that is 192.0.2.1, not loopback, ";
        assert!(refused.starts_with(start), "{refused}");
        let unknown = config(&["--bind", "no such name"]).unwrap_err();
        let start = "--bind 'no such name': an IPv4 or IPv6 address, or a name of loopback ";
        assert!(unknown.starts_with(start), "{unknown}");
    }

    #[test]
    fn bytes_may_have_a_unit() {
        for (request, buffer) in [("16k", "1M"), ("16kb", "1MB")] {
            let config = config(&["--max-request", request, "--send-buffer", buffer]).unwrap();
            assert_eq!((config.request_max, config.send_buffer), (16 << 10, Some(1 << 20)));
        }
    }
}
