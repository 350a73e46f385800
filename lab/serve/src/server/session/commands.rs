//! `COMMAND`: describes the commands.

use super::{help, is};
use crate::buffer::Buffer;
use crate::command::check::Refusal;
use crate::command::operation::OUT_OF_MEMORY;
use crate::command::table::{Command, Row, TABLE, find, row_of};
use crate::resp::Args;
use crate::resp::reply::{self, Version};

/// An upper bound for the description of one command, in bytes.
const ROW_MAX: usize = 256;

pub(super) fn reply(args: Args<'_>, version: Version, reply: &mut Buffer) {
    // A name is shorter than a description, and may be repeated.
    let rows = args.len().max(TABLE.len());
    if reply.make_room(rows.saturating_mul(ROW_MAX)).is_err() {
        return reply::error(&mut reply.bytes, OUT_OF_MEMORY);
    }
    let out = &mut reply.bytes;
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
        let rows: Vec<&Row> =
            if names.is_empty() { all().collect() } else { named().flatten().collect() };
        reply::map(out, version, rows.len());
        rows.into_iter().for_each(|row| document(row, version, out));
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
    reply::array(out, 10);
    reply::bulk(out, row.name.as_bytes());
    reply::integer(out, row.arity);
    reply::set(out, version, row.flags.len());
    row.flags.iter().for_each(|flag| reply::simple(out, flag));
    let (first, last, step) = row.keys;
    [first, last, step].into_iter().for_each(|place| reply::integer(out, place));
    // ACL categories, tips, key specifications and subcommands: all empty.
    (0..4).for_each(|_| reply::set(out, version, 0));
}

fn document(row: &Row, version: Version, out: &mut Vec<u8>) {
    reply::bulk(out, row.name.as_bytes());
    reply::map(out, version, 2);
    reply::bulk(out, b"summary");
    reply::bulk(out, row.summary.as_bytes());
    reply::bulk(out, b"arity");
    reply::integer(out, row.arity);
}
