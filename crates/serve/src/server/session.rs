//! What a connection is, and the commands that are about it or about the server.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::config::{Config, Receiver};
use super::dispatch::Flow;
use super::help;
use super::shared::Shared;
use crate::command::check::{Refusal, SHOWN_MAX, cut};
use crate::command::glob;
use crate::command::operation::NOT_A_NUMBER;
use crate::command::table::{Command, Row, TABLE, find, row_of};
use crate::resp::reply::{self, Version};
use crate::resp::{Args, number};

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) version: Version,
    name: String,
    library: [String; 2],
}

impl Session {
    pub(crate) fn new(id: u64, address: Option<SocketAddr>) -> Self {
        let version = Version::default();
        Self { id, address, version, name: String::new(), library: Default::default() }
    }
}

/// Bytes of a name at most.
const NAME_MAX: usize = 1024;
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// More than a command takes in a reply of `COMMAND`.
const ROW_MAX: usize = 160;
/// More than the length and the ends of lines take.
const AROUND: usize = 32;

/// Bytes that the reply may have, if that goes by the request; others are short.
pub(crate) fn room(command: Command, args: Args<'_>) -> usize {
    match command {
        Command::Ping | Command::Echo => args.iter().map(<[u8]>::len).sum::<usize>() + AROUND,
        Command::Commands => args.len() * ROW_MAX,
        _ => 0,
    }
}

/// Replies to a command that is about no key. For what [`room`] asks for, room is made.
pub(crate) fn reply(
    command: Command,
    args: Args<'_>,
    shared: &Shared,
    session: &mut Session,
    out: &mut Vec<u8>,
) -> Flow {
    match command {
        Command::Ping if args.len() == 2 => reply::bulk(out, args.at(1)),
        Command::Ping => reply::simple(out, "PONG"),
        Command::Echo => reply::bulk(out, args.at(1)),
        // There are no more keys than fit into memory.
        Command::Dbsize => reply::integer(out, shared.keys() as i64),
        Command::Info => super::info::reply(args.from(1), shared, session.version, out),
        Command::Config => config(args, shared, session.version, out),
        Command::Commands => commands(args, session.version, out),
        Command::Client => client(args, session, out),
        Command::Select => select(args.at(1), out),
        Command::Hello => hello(args.from(1), session, out),
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
            // There is one user, without a password.
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

/// There is one database.
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

fn client(args: Args<'_>, session: &mut Session, out: &mut Vec<u8>) {
    let (name, given) = (args.at(1), args.len() - 2);
    let wrong = |name| Refusal::SubcommandArguments(Command::Client, name);
    let refusal = if is(name, "id") && given == 0 {
        return reply::integer(out, session.id as i64);
    } else if is(name, "id") {
        wrong("id")
    } else if is(name, "getname") && given == 0 {
        return match session.name.as_str() {
            "" => reply::null(out, session.version),
            name => reply::bulk(out, name.as_bytes()),
        };
    } else if is(name, "getname") {
        wrong("getname")
    } else if is(name, "setname") && given == 1 {
        return match printable(args.at(2)) {
            Some(name) => {
                session.name = name;
                reply::simple(out, "OK");
            }
            None => reply::error(out, BAD_NAME),
        };
    } else if is(name, "setname") {
        wrong("setname")
    } else if is(name, "setinfo") && given == 2 {
        return set_info(args.at(2), args.at(3), session, out);
    } else if is(name, "setinfo") {
        wrong("setinfo")
    } else if is(name, "info") && given == 0 {
        return reply::verbatim(out, session.version, &described(session));
    } else if is(name, "info") {
        wrong("info")
    } else if is(name, "help") && given == 0 {
        return help::reply(Command::Client, out);
    } else if is(name, "help") {
        wrong("help")
    } else {
        Refusal::Subcommand(Command::Client, name)
    };
    refusal.reply(out);
}

fn set_info(option: &[u8], value: &[u8], session: &mut Session, out: &mut Vec<u8>) {
    let [name, version] = &mut session.library;
    let (of, what) = match option {
        option if is(option, "lib-name") => (name, "lib-name"),
        option if is(option, "lib-ver") => (version, "lib-ver"),
        option => {
            let option = cut(option, SHOWN_MAX);
            return reply::error_of(out, &[b"ERR Unrecognized option '", option, b"'"]);
        }
    };
    match printable(value) {
        Some(text) => {
            *of = text;
            reply::simple(out, "OK");
        }
        None => reply::error(
            out,
            format_args!("ERR {what} cannot contain spaces, newlines or special characters."),
        ),
    }
}

fn described(session: &Session) -> String {
    let Session { id, address, version, name, library: [library, library_version] } = session;
    let address = address.map_or(String::new(), |address| address.to_string());
    format!(
        "id={id} addr={address} name={name} resp={} lib-name={library} lib-ver={library_version}\n",
        version.number()
    )
}

fn config(args: Args<'_>, shared: &Shared, version: Version, out: &mut Vec<u8>) {
    let wrong = |name| Refusal::SubcommandArguments(Command::Config, name);
    match args.at(1) {
        name if is(name, "get") && args.len() > 2 => {}
        name if is(name, "get") => return wrong("get").reply(out),
        name if is(name, "help") && args.len() == 2 => return help::reply(Command::Config, out),
        name if is(name, "help") => return wrong("help").reply(out),
        name => return Refusal::Subcommand(Command::Config, name).reply(out),
    }
    let settings = settings(&shared.config, shared.port);
    let patterns = args.from(2);
    // A name that was given in full is given back as it was written.
    let named = |name: &'static str| {
        let fits = |pattern: &&[u8]| match glob::is_pattern(pattern) {
            true => glob::matches(pattern, name.as_bytes()),
            false => is(pattern, name),
        };
        let pattern = patterns.iter().find(fits)?;
        Some(if glob::is_pattern(pattern) { name.as_bytes() } else { pattern })
    };
    let found = || settings.iter().filter_map(|(name, value)| Some((named(name)?, value)));
    reply::map(out, version, found().count());
    for (name, value) in found() {
        reply::bulk(out, name);
        reply::bulk(out, value.as_bytes());
    }
}

/// Under the names that Redis has for them, where it has one.
fn settings(config: &Config, port: u16) -> Vec<(&'static str, String)> {
    let bytes = |size: Option<usize>| size.unwrap_or(0).to_string();
    let receiver = match config.receiver {
        Receiver::Shared => "shared",
        Receiver::Dedicated => "dedicated",
    };
    vec![
        ("appendonly", "no".to_owned()),
        ("bind", config.address.ip().to_string()),
        ("databases", "1".to_owned()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", config.memory_max.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", config.request_max.to_string()),
        ("receive-buffer", bytes(config.receive_buffer)),
        ("receiver", receiver.to_owned()),
        ("save", String::new()),
        ("send-buffer", bytes(config.send_buffer)),
        ("timeout", config.idle_max.map_or(0, |time| time.as_secs()).to_string()),
    ]
}

fn commands(args: Args<'_>, version: Version, out: &mut Vec<u8>) {
    let all = || TABLE.iter();
    let Some(name) = args.from(1).iter().next() else {
        reply::array(out, TABLE.len());
        return all().for_each(|row| describe(row, version, out));
    };
    let names = args.from(2);
    let named = || names.iter().map(|name| find(name).map(row_of));
    if is(name, "count") && names.is_empty() {
        reply::integer(out, TABLE.len() as i64);
    } else if is(name, "info") && names.is_empty() {
        reply::array(out, TABLE.len());
        all().for_each(|row| describe(row, version, out));
    } else if is(name, "info") {
        reply::array(out, names.len());
        for row in named() {
            match row {
                Some(row) => describe(row, version, out),
                None => reply::null(out, version),
            }
        }
    } else if is(name, "docs") {
        if names.is_empty() {
            reply::map(out, version, TABLE.len());
            all().for_each(|row| document(row, version, out));
        } else {
            reply::map(out, version, named().flatten().count());
            named().flatten().for_each(|row| document(row, version, out));
        }
    } else if is(name, "help") && names.is_empty() {
        help::reply(Command::Commands, out);
    } else if is(name, "count") {
        Refusal::SubcommandArguments(Command::Commands, "count").reply(out);
    } else if is(name, "help") {
        Refusal::SubcommandArguments(Command::Commands, "help").reply(out);
    } else {
        Refusal::Subcommand(Command::Commands, name).reply(out);
    }
}

fn describe(row: &Row, version: Version, out: &mut Vec<u8>) {
    reply::array(out, 6);
    reply::bulk(out, row.name.as_bytes());
    reply::integer(out, row.arity);
    reply::set(out, version, row.flags.len());
    row.flags.iter().for_each(|flag| reply::simple(out, flag));
    let (first, last, step) = row.keys;
    [first, last, step].into_iter().for_each(|place| reply::integer(out, place));
}

fn document(row: &Row, version: Version, out: &mut Vec<u8>) {
    reply::bulk(out, row.name.as_bytes());
    reply::map(out, version, 2);
    reply::bulk(out, b"summary");
    reply::bulk(out, row.summary.as_bytes());
    reply::bulk(out, b"arity");
    reply::integer(out, row.arity);
}

/// Appends a line of `INFO`.
pub(super) fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}:{value}\r\n");
}

/// A counter as it is now.
pub(super) fn now(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_takes_more_in_a_reply_than_is_thought() {
        for (row, version) in TABLE.iter().zip([Version::Resp2, Version::Resp3].into_iter().cycle())
        {
            for write in [describe, document] {
                let mut out = Vec::new();
                write(row, version, &mut out);
                assert!(out.len() <= ROW_MAX, "{}: {}", row.name, out.len());
            }
        }
    }
}
