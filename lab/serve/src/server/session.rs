//! The session of a connection, and the commands that concern a connection or the server.

mod client;
mod commands;
mod settings;

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::dispatch::Flow;
use super::help;
use super::shared::Shared;
use crate::buffer::Buffer;
use crate::command::check::{SHOWN_MAX, cut};
use crate::command::operation::{NOT_A_NUMBER, bulk};
use crate::command::table::Command;
use crate::resp::reply::{self, Version};
use crate::resp::{Args, number};

/// The properties of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) version: Version,
    /// The time of the connection, in milliseconds of `Shared::now`.
    since: u64,
    replies: Replies,
    name: String,
    library: [String; 2],
}

/// Which replies the client wants (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    /// All.
    On,
    /// None.
    Off,
    /// All except the next one. This request itself gets no reply either.
    SkipNext,
    /// All except this one.
    Skip,
}

impl Session {
    pub(crate) fn new(id: u64, address: Option<SocketAddr>, since: u64) -> Self {
        let (version, replies) = (Version::default(), Replies::On);
        Self {
            id,
            address,
            version,
            since,
            replies,
            name: String::new(),
            library: Default::default(),
        }
    }

    /// Whether the client does not want the reply to the current request.
    #[inline]
    pub(crate) fn is_mute(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// Moves on to the next request.
    #[inline]
    pub(crate) fn go_on(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            replies => replies,
        };
    }

    /// A line in the format of Redis.
    pub(crate) fn described(&self, now: u64) -> String {
        let Self { id, name, library: [library, library_version], .. } = self;
        let address = self.address.map_or(String::new(), |address| address.to_string());
        let (age, version) = ((now - self.since) / 1000, self.version.number());
        format!(
            "id={id} addr={address} name={name} age={age} flags=N db=0 user=default resp={version} \
             lib-name={library} lib-ver={library_version}\n"
        )
    }
}

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 1024;
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Replies to a command that concerns no key.
pub(crate) fn reply(
    command: Command,
    args: Args<'_>,
    shared: &Shared,
    session: &mut Session,
    reply: &mut Buffer,
) -> Flow {
    let out = &mut reply.bytes;
    match command {
        Command::Ping if args.len() == 1 => reply::simple(out, "PONG"),
        Command::Ping | Command::Echo => bulk(reply, args.at(1)),
        // The keys fit into memory, so their number fits into an `i64`.
        Command::Dbsize => reply::integer(out, shared.keys() as i64),
        Command::Info => super::info::reply(args.from(1), shared, session.version, out),
        Command::Config => settings::reply(args, shared, session.version, out),
        Command::Commands => commands::reply(args, session.version, reply),
        Command::Client => client::reply(args, shared, session, reply),
        Command::Select => select(args.at(1), out),
        Command::Hello => {
            hello(args.from(1), session, out);
            shared.roster.note(session);
        }
        Command::Quit => {
            reply::simple(out, "OK");
            return Flow::Close;
        }
        _ => unreachable!("commands on keys are operations"),
    }
    Flow::Next
}

fn is(arg: &[u8], name: &str) -> bool {
    arg.eq_ignore_ascii_case(name.as_bytes())
}

fn hello(args: Args<'_>, session: &mut Session, out: &mut Vec<u8>) {
    let mut version = session.version;
    if let Some(wanted) = args.iter().next() {
        version = match number::parse(wanted) {
            Some(2) => Version::Resp2,
            Some(3) => Version::Resp3,
            Some(_) => return reply::error(out, "NOPROTO unsupported protocol version"),
            None => {
                let wrong = "ERR Protocol version is not an integer or out of range";
                return reply::error(out, wrong);
            }
        };
    }
    let mut name = None;
    let mut at = 1;
    while at < args.len() {
        let (option, left) = (args.at(at), args.len() - at - 1);
        if is(option, "auth") && left >= 2 {
            // There is a single user, without a password.
            if args.at(at + 1) != b"default" {
                let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
                return reply::error(out, wrong);
            }
            at += 3;
        } else if is(option, "setname") && left >= 1 {
            match printable(args.at(at + 1)) {
                Some(text) => name = Some(text),
                None => return reply::error(out, BAD_NAME),
            }
            at += 2;
        } else {
            let option = cut(option, SHOWN_MAX);
            return reply::error_of(out, &[b"ERR Syntax error in HELLO option '", option, b"'"]);
        }
    }
    session.version = version;
    session.name = name.unwrap_or(std::mem::take(&mut session.name));
    reply::map(out, version, 7);
    let text = |out: &mut Vec<u8>, key: &str, value: &str| {
        reply::bulk(out, key.as_bytes());
        reply::bulk(out, value.as_bytes());
    };
    text(out, "server", "uwork");
    text(out, "version", env!("CARGO_PKG_VERSION"));
    reply::bulk(out, b"proto");
    reply::integer(out, version.number());
    reply::bulk(out, b"id");
    reply::integer(out, session.id as i64);
    text(out, "mode", "standalone");
    text(out, "role", "master");
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

/// There is a single database.
fn select(index: &[u8], out: &mut Vec<u8>) {
    match number::parse(index).map(i32::try_from) {
        Some(Ok(0)) => reply::simple(out, "OK"),
        Some(Ok(_)) => reply::error(out, "ERR DB index is out of range"),
        Some(Err(_)) => {
            let (from, to) = (i32::MIN, i32::MAX);
            let wrong =
                format_args!("ERR value is out of range, value must between {from} and {to}");
            reply::error(out, wrong);
        }
        None => reply::error(out, NOT_A_NUMBER),
    }
}

fn printable(name: &[u8]) -> Option<String> {
    let fits = name.len() <= NAME_MAX && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(name).into_owned())
}

/// Appends a line of `INFO`.
pub(super) fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}:{value}\r\n");
}

/// The current value of a counter.
pub(super) fn now(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
