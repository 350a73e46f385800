//! `CLIENT`: queries and changes the session of a connection.

use super::{BAD_NAME, Replies, Session, help, is, printable};
use crate::buffer::Buffer;
use crate::command::check::{Refusal, SHOWN_MAX, cut};
use crate::command::operation::{OUT_OF_MEMORY, SYNTAX};
use crate::command::table::Command;
use crate::resp::Args;
use crate::resp::reply;
use crate::server::shared::Shared;

/// The subcommands, and the number of their arguments.
const OWN: [(&str, usize); 10] = [
    ("getname", 0),
    ("help", 0),
    ("id", 0),
    ("info", 0),
    ("list", 0),
    ("no-evict", 1),
    ("no-touch", 1),
    ("reply", 1),
    ("setinfo", 2),
    ("setname", 1),
];

pub(super) fn reply(args: Args<'_>, shared: &Shared, session: &mut Session, reply: &mut Buffer) {
    let out = &mut reply.bytes;
    let Some((name, takes)) = OWN.into_iter().find(|(name, _)| is(args.at(1), name)) else {
        return Refusal::Subcommand(Command::Client, args.at(1)).reply(out);
    };
    let args = args.from(2);
    match name {
        // Redis accepts filters here; none is supported.
        "list" if !args.is_empty() => reply::error(out, SYNTAX),
        _ if args.len() != takes => Refusal::SubcommandArguments(Command::Client, name).reply(out),
        "getname" => match session.name.as_str() {
            "" => reply::null(out, session.version),
            name => reply::bulk(out, name.as_bytes()),
        },
        "help" => help::reply(Command::Client, out),
        "id" => reply::integer(out, session.id as i64),
        "info" => {
            let text = session.described(shared.now());
            reply::verbatim(out, session.version, &text);
        }
        "list" => list(shared, session, reply),
        "reply" => set_replies(args.at(0), session, out),
        "setinfo" => set_info(args.at(0), args.at(1), session, out),
        "setname" => match printable(args.at(0)) {
            Some(name) => {
                session.name = name;
                reply::simple(out, "OK");
            }
            None => reply::error(out, BAD_NAME),
        },
        // This server never evicts clients, and never evicts keys by their use, so both settings
        // have no effect.
        _ if is(args.at(0), "on") || is(args.at(0), "off") => reply::simple(out, "OK"),
        _ => reply::error(out, SYNTAX),
    }
    shared.roster.note(session);
}

fn list(shared: &Shared, session: &Session, reply: &mut Buffer) {
    let text = shared.roster.described(shared.now());
    match reply.make_room(text.len() + reply::AROUND) {
        Ok(()) => reply::verbatim(&mut reply.bytes, session.version, &text),
        Err(_) => reply::error(&mut reply.bytes, OUT_OF_MEMORY),
    }
}

fn set_replies(which: &[u8], session: &mut Session, out: &mut Vec<u8>) {
    if is(which, "on") {
        session.replies = Replies::On;
        reply::simple(out, "OK");
    } else if is(which, "off") {
        session.replies = Replies::Off;
    } else if !is(which, "skip") {
        reply::error(out, SYNTAX);
    } else if session.replies != Replies::Off {
        session.replies = Replies::SkipNext;
    }
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
