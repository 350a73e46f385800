//! `CLIENT`: what is known of the connection, and what the client says of itself.

use super::{BAD_NAME, Session, help, is, printable};
use crate::command::check::{Refusal, SHOWN_MAX, cut};
use crate::command::table::Command;
use crate::resp::Args;
use crate::resp::reply;

pub(super) fn reply(args: Args<'_>, session: &mut Session, out: &mut Vec<u8>) {
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
