//! `uwork ls`: the processes, or the attributes of one of them.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::UserError;
use super::attribute::Attribute;
use super::named::command_of;
use crate::client::{Client, Failure, fact, is_alive, remove_if_stale, remove_unnamed, sockets};
use crate::commands::json::line;

/// A process that can be looked into.
struct Listed {
    process: u32,
    command: String,
    socket: PathBuf,
    /// The answer to `status`, or why there is none.
    status: Result<String, String>,
}

/// The processes that live, as a table or as JSON. Removes the files of ended ones.
pub(super) fn processes(as_json: bool) -> String {
    remove_unnamed();
    let found = sockets().into_iter().filter(|(_, path)| !remove_if_stale(path));
    let listed = found.map(|(process, socket)| {
        let status = Client::open_listed(&socket).and_then(|mut client| {
            client.ask("status").map_err(|failure| UserError::from(failure).0)
        });
        Listed { process, command: command_of(process), socket, status }
    });
    // A process that has ended meanwhile is no row either.
    let lives = |listed: &Listed| {
        listed.status.is_ok() || is_alive(listed.process) && !remove_if_stale(&listed.socket)
    };
    let listed = listed.filter(lives);
    if as_json {
        return listed.map(|listed| line(&object(&listed))).collect();
    }
    let mut text = format!(
        "{:>8} {:<16} {:>7} {:>7} {:<10} {}\n",
        "PID", "COMMAND", "QUEUES", "WORKERS", "TIER", "SOCKET"
    );
    listed.for_each(|listed| row(&mut text, &listed));
    text
}

fn row(text: &mut String, listed: &Listed) {
    let Listed { process, command, socket, status } = listed;
    let socket = socket.display();
    // Writing to a string does not fail.
    let _ = match status {
        Ok(status) => writeln!(
            text,
            "{process:>8} {command:<16} {:>7} {:>7} {:<10} {socket}",
            fact(status, "queues"),
            fact(status, "workers"),
            fact(status, "blocking_tier"),
        ),
        Err(reason) => writeln!(text, "{process:>8} {command:<16} {socket}: {reason}"),
    };
}

fn object(listed: &Listed) -> Value {
    let mut object = json!({
        "pid": listed.process,
        "command": listed.command,
        "socket": listed.socket.display().to_string(),
    });
    match &listed.status {
        Ok(status) => {
            for name in ["queues", "workers"] {
                object[name] = fact(status, name).parse::<u64>().ok().into();
            }
            object["tier"] = fact(status, "blocking_tier").into();
        }
        Err(reason) => object["error"] = reason.as_str().into(),
    }
    object
}

/// Every attribute below `path`, with its value: `rw` or `ro`, the path, the value. As JSON the same
/// as `uwork get --json`.
pub(super) fn tree(client: &mut Client, path: &str, as_json: bool) -> Result<String, UserError> {
    let mut text = String::new();
    let root = path.trim_matches('/');
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match client.ask(&format!("list {folder}")) {
            Ok(entries) => entries,
            // A queue may be destroyed meanwhile.
            Err(Failure::Refused(refused)) if refused.code == "not-found" && folder != root => {
                continue;
            }
            Err(Failure::Refused(refused)) if refused.code == "wrong-kind" => {
                return match as_json {
                    true => Ok(Attribute::ask(client, &folder)?.line()),
                    false => Ok(client.ask(&format!("get {folder}"))?),
                };
            }
            Err(failure) => return Err(failure.into()),
        };
        let below = |name: &str| {
            if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
        };
        for (kind, name) in entries.lines().filter_map(|line| line.split_once('\t')) {
            let path = below(name);
            match kind {
                "dir" => folders.push(path),
                _ if as_json => match Attribute::ask(client, &path) {
                    Ok(attribute) => text += &attribute.line(),
                    Err(Failure::Refused(_)) => {}
                    Err(gone) => return Err(gone.into()),
                },
                _ => {
                    let value = match client.ask(&format!("get {path}")) {
                        Err(Failure::Refused(_)) => String::new(),
                        answer => answer?,
                    };
                    let _ = writeln!(text, "{kind}  {path:<48} {}", value.trim_end());
                }
            }
        }
    }
    Ok(text)
}
