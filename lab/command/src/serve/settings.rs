//! The command line of `uwork-lab serve`, checked.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use uwork_serve::{Config, ForeignKeys, Io, Notify, Receiver, Replies, Spares};

use crate::UserError;

/// What `uwork-lab serve --help` says below the options.
const DETAILS: &str = "\
Commands: PING, ECHO, GET, SET (EX, PX, NX, XX), DEL, EXISTS, INCR, INCRBY, EXPIRE (NX, XX, GT, LT),
TTL, MGET, MSET, DBSIZE, FLUSHALL, INFO, CONFIG GET, COMMAND, CLIENT, HELLO, SELECT, QUIT, and
DIGEST key, the SHA-256 of a value, which is computed on a work queue. RESP2, and RESP3 after
HELLO 3. Keys are in memory only.

BYTES are a number, or a number with k, m or g (1024, 1024 x 1024, ...).

SIGTERM and Ctrl-C stop the server: it accepts no more connections, answers the requests that it has
received, and exits with 0. A second signal ends it at once.";

/// Numbers are read as text, so that the message for a bad number states the allowed range.
#[derive(clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// The address to listen on: an IPv4 or IPv6 address, or a name of the loopback interface such
    /// as localhost. An address that is not loopback must be given as a number, because there are
    /// no passwords
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: String,
    /// The port; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value = "6379", allow_hyphen_values = true)]
    port: String,
    /// Server threads; each owns a share of the keys [default: half the number of CPUs]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<String>,
    /// How a thread is notified of a hand-over: light ends the wait that the thread has declared,
    /// signal sends a signal
    #[arg(long, value_name = "HOW", default_value = "light")]
    notify: String,
    /// Which thread receives requests: shared, each thread for its own connections; dedicated, one
    /// extra thread for all connections
    #[arg(long, value_name = "HOW", default_value = "shared")]
    receiver: String,
    /// What becomes of a request for a key that another thread owns: in-place, the receiving thread
    /// executes it under a lock of the owner's keys; handed-over, the owner executes it [default:
    /// in-place; with --receiver dedicated: handed-over]
    #[arg(long, value_name = "HOW")]
    foreign_keys: Option<String>,
    /// How replies reach a client with --receiver dedicated: combined, the threads with keys send
    /// them and combine their parts; locked, they send them under a lock; returned, the receiver
    /// sends them [default: combined]
    #[arg(long, value_name = "HOW")]
    replies: Option<String>,
    /// What becomes of the memory that served a request: kept, threads reuse it; freed, threads free
    /// it
    #[arg(long, value_name = "HOW", default_value = "kept")]
    spares: String,
    /// How threads wait for sockets: auto uses io_uring, or epoll if the system refuses io_uring;
    /// epoll always uses epoll
    #[arg(long, value_name = "HOW", default_value = "auto")]
    io: String,
    /// The affinity scope of the queue that runs DIGEST
    #[arg(long, value_name = "SCOPE", default_value = "default")]
    scope: String,
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    max_clients: String,
    /// Maximum size of a request
    #[arg(long, value_name = "BYTES", default_value = "64m", allow_hyphen_values = true)]
    max_request: String,
    /// Maximum memory for keys, values, requests and replies
    #[arg(long, value_name = "BYTES", default_value = "1g", allow_hyphen_values = true)]
    max_memory: String,
    /// Close a connection after this many seconds without traffic in either direction; 0 disables
    /// the timeout
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_hyphen_values = true)]
    idle_timeout: String,
    /// Maximum time to answer requests in flight when the server stops
    #[arg(long, value_name = "SECONDS", default_value = "5", allow_hyphen_values = true)]
    drain_timeout: String,
    /// Size of each connection's send buffer in the kernel [default: the system's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    send_buffer: Option<String>,
    /// Size of each connection's receive buffer in the kernel [default: the system's]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    receive_buffer: Option<String>,
}

const SECONDS: RangeInclusive<usize> = 0..=1_000_000;
/// From 4 KiB to 1 GiB. The upper bound fits the kernel's type, an int.
const SOCKET_BUFFER: RangeInclusive<usize> = 4096..=1 << 30;

impl Args {
    /// The server configuration that these options describe.
    pub(crate) fn config(&self) -> Result<Config, UserError> {
        let ip = match self.bind.parse() {
            Ok(ip) => ip,
            Err(_) => loopback_of(&self.bind)?,
        };
        let port = number("--port", &self.port, 0..=usize::from(u16::MAX))?;
        // `number` has checked that the port is at most 65535.
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
            foreign_keys: self.foreign_keys()?,
            replies: self.replies()?,
            spares: one_of(
                "--spares",
                &self.spares,
                &[("kept", Spares::Kept), ("freed", Spares::Freed)],
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

    fn foreign_keys(&self) -> Result<ForeignKeys, UserError> {
        let Some(text) = &self.foreign_keys else { return Ok(ForeignKeys::default()) };
        let allowed =
            [("in-place", ForeignKeys::InPlace), ("handed-over", ForeignKeys::HandedOver)];
        let foreign_keys = one_of("--foreign-keys", text, &allowed)?;
        if foreign_keys == ForeignKeys::InPlace && self.receiver != "shared" {
            return Err(UserError(format!(
                "--foreign-keys '{text}': only with --receiver shared; a dedicated one executes nothing"
            )));
        }
        Ok(foreign_keys)
    }

    fn replies(&self) -> Result<Replies, UserError> {
        let Some(text) = &self.replies else { return Ok(Replies::default()) };
        let allowed = [
            ("combined", Replies::Combined),
            ("locked", Replies::Locked),
            ("returned", Replies::Returned),
        ];
        let replies = one_of("--replies", text, &allowed)?;
        if self.receiver == "shared" {
            return Err(UserError(format!(
                "--replies '{text}': only with --receiver dedicated; otherwise one thread sends them"
            )));
        }
        Ok(replies)
    }
}

/// Resolves a name, preferring IPv4. The result must be loopback: name resolution can change over
/// time, so only a numeric address may open the server to other machines.
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
        UserError(format!("{flag} '{text}': {} are allowed", list(&names)))
    })
}

fn list(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.join(""),
    }
}

fn number(flag: &str, text: &str, allowed: RangeInclusive<usize>) -> Result<usize, UserError> {
    text.parse().ok().filter(|value| allowed.contains(value)).ok_or_else(|| {
        let (from, to) = (allowed.start(), allowed.end());
        UserError(format!("{flag} '{text}': a number from {from} to {to} is allowed"))
    })
}

fn bytes(flag: &str, text: &str, allowed: RangeInclusive<usize>) -> Result<usize, UserError> {
    // Accepts both 16m and 16mb.
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
            (["--replies", "lost"], "--replies 'lost': combined, locked and returned are allowed"),
            (
                ["--replies", "locked"],
                "--replies 'locked': only with --receiver dedicated; otherwise one thread sends them",
            ),
            (
                ["--foreign-keys", "lost"],
                "--foreign-keys 'lost': in-place and handed-over are allowed",
            ),
            (["--spares", "sold"], "--spares 'sold': kept and freed are allowed"),
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
    fn parts_are_selected_by_name() {
        let default = config(&["--receiver", "dedicated"]).unwrap();
        assert_eq!((default.replies, default.spares), (Replies::Combined, Spares::Kept));
        for (name, replies) in [
            ("combined", Replies::Combined),
            ("locked", Replies::Locked),
            ("returned", Replies::Returned),
        ] {
            let flags = ["--receiver", "dedicated", "--replies", name, "--spares", "freed"];
            let config = config(&flags).unwrap();
            assert_eq!((config.replies, config.spares), (replies, Spares::Freed));
        }
    }

    #[test]
    fn a_dedicated_receiver_executes_nothing_in_place() {
        let handed_over = ["--receiver", "dedicated", "--foreign-keys", "handed-over"];
        assert_eq!(config(&handed_over).unwrap().foreign_keys, ForeignKeys::HandedOver);
        let in_place = ["--receiver", "dedicated", "--foreign-keys", "in-place"];
        assert_eq!(
            config(&in_place).unwrap_err(),
            "--foreign-keys 'in-place': only with --receiver shared; a dedicated one executes nothing"
        );
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
        // The resolver accepts this text as an address, although `IpAddr` does not parse it.
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
