//! The replies to `HELP` of a command with subcommands, in the format of Redis.

use crate::command::table::{Command, row_of};
use crate::resp::reply;

/// A subcommand with its arguments, and its description.
type Line = (&'static str, &'static str);

const CLIENT: &[Line] = &[
    ("GETNAME", "The name of this connection."),
    ("ID", "The number of this connection."),
    ("INFO", "What is known of this connection."),
    ("LIST", "What is known of all connections."),
    ("NO-EVICT (ON|OFF)", "Nothing: no connection is ended for want of memory for others."),
    ("NO-TOUCH (ON|OFF)", "Nothing: keys are not kept by how they are used."),
    ("REPLY (ON|OFF|SKIP)", "Which replies this connection gets: all, none, all but the next."),
    ("SETINFO (LIB-NAME|LIB-VER) <text>", "Tells the client library, or its version."),
    ("SETNAME <name>", "Names this connection."),
];
const CONFIG: &[Line] = &[(
    "GET <pattern> [<pattern> ...]",
    "The settings whose names fit a pattern, and their values.",
)];
const COMMANDS: &[Line] = &[
    ("(no subcommand)", "All commands of this server."),
    ("COUNT", "How many commands there are."),
    ("DOCS [<command> ...]", "What the commands do."),
    ("INFO [<command> ...]", "How many arguments the commands take, and where their keys are."),
];
const HELP: Line = ("HELP", "Prints this help.");

/// Replies with the list of the command's subcommands.
pub(super) fn reply(command: Command, out: &mut Vec<u8>) {
    let lines = match command {
        Command::Client => CLIENT,
        Command::Config => CONFIG,
        _ => COMMANDS,
    };
    let name = row_of(command).name.to_uppercase();
    reply::array(out, 1 + 2 * (lines.len() + 1));
    let usage = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    reply::simple(out, &format!("{name} {usage}"));
    for (form, text) in lines.iter().chain([&HELP]) {
        reply::simple(out, form);
        reply::simple(out, &format!("    {text}"));
    }
}
