//! `uwork ls`: the processes, or the attributes of one of them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::UserError;
use super::attribute::Attribute;
use super::named::command_of;
use super::top::columns::cut;
use crate::client::{
    Client, Entry, Failure, Found, at_once, bounds_in_a_list, fact, one_of_each, remove_if_stale,
    sockets_without_unnamed, state_of,
};
use crate::commands::json::line;
use crate::exchange::{Bounds, Fault};
use crate::printable::in_a_line;

/// The most cells of a command, of a tier, and of a state. A line that a terminal wraps could be taken for another
/// process.
const COMMAND_MAX: usize = 16;
const TIER_MAX: usize = 10;
const STATE_MAX: usize = 60;
/// The shortest time for a process. Where threads are refused, the time is over before the last of many
/// silent ones is asked, and each that answers is seen.
const TIME_MIN: Duration = Duration::from_millis(20);
/// The paths in a tree that are kept, and their bytes.
const PATHS_MAX: usize = 100_000;
const PATHS_BYTES_MAX: usize = 16 << 20;

/// The characters of a text of a process that are kept: a user may have thousands of sockets.
const TEXT_MAX: usize = 200;

/// A row of the list: what a process says of itself, or the state of one that does not answer.
struct Listed {
    process: u32,
    command: String,
    status: Result<Status, String>,
    socket: PathBuf,
    owner: u32,
}

/// What a process says of itself.
struct Status {
    queues: u64,
    workers: Option<u64>,
    tier: String,
}

impl Status {
    /// What the list has of an answer to `status`. None: it does not say how many queues there are.
    fn of(answer: &str) -> Option<Status> {
        let (queues, workers) = (count(answer, "queues")?, count(answer, "workers"));
        Some(Status { queues, workers, tier: start_of(fact(answer, "blocking_tier")) })
    }
}

/// As much of a text as is kept.
fn start_of(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

/// The processes that live, as a table or as JSON. Removes the files of ended ones.
pub(super) fn processes(as_json: bool) -> String {
    let listed = listed();
    if as_json {
        return listed.iter().map(|listed| line(&object(listed))).collect();
    }
    let mut text = format!(
        "{:>8} {:<16} {:>7} {:>7} {:<10} {}\n",
        "PID", "COMMAND", "QUEUES", "WORKERS", "TIER", "SOCKET"
    );
    for Listed { process, command, status, socket, .. } in listed {
        let about = match status {
            Ok(Status { queues, workers, tier }) => {
                let workers = workers.map_or(String::from("?"), |it| it.to_string());
                format!("{queues:>7} {workers:>7} {:<10}", cut(&tier, TIER_MAX))
            }
            Err(state) => format!("{:<26}", cut(&state, STATE_MAX)),
        };
        let command = cut(&command, COMMAND_MAX);
        let socket = in_a_line(&socket.display().to_string());
        let _ = writeln!(text, "{process:>8} {command:<COMMAND_MAX$} {about} {socket}");
    }
    text
}

fn object(listed: &Listed) -> Value {
    let mut object = json!({
        "pid": listed.process,
        "command": listed.command,
        "socket": listed.socket.display().to_string(),
    });
    match &listed.status {
        Ok(status) => {
            object["queues"] = status.queues.into();
            object["workers"] = status.workers.into();
            object["tier"] = status.tier.as_str().into();
        }
        Err(state) => object["error"] = state.as_str().into(),
    }
    object
}

fn count(status: &str, name: &str) -> Option<u64> {
    fact(status, name).parse().ok()
}

/// The processes that live. All are asked at the same time.
fn listed() -> Vec<Listed> {
    // The look is a part of their time.
    let bounds = bounds_in_a_list();
    let Found { sockets, left_out } = sockets_without_unnamed();
    left_out.into_iter().for_each(|why| complain!("uwork: {why}"));
    let rows = at_once(
        &sockets,
        |entry| entry.owner,
        |entry, share| {
            let Entry { process, ref path, owner } = *entry;
            let status =
                match bounds.shared(share, TIME_MIN).and_then(|bounds| status(entry, bounds)) {
                    Ok(status) => Ok(status),
                    Err(Fault::Ended) => {
                        remove_if_stale(path);
                        return None;
                    }
                    Err(fault) => Err(start_of(&state_of(&fault, process)?)),
                };
            let command = match process {
                // It has no number here.
                0 => String::from("-"),
                process => command_of(process)?,
            };
            Some(Listed { process, command, status, socket: path.clone(), owner })
        },
    );
    let rows = rows.into_iter().flatten().collect();
    one_of_each(rows, |row: &Listed| (row.process, row.owner, row.status.is_err()))
}

/// The answer of a process to `status`.
fn status(entry: &Entry, bounds: Bounds) -> Result<Status, Fault> {
    match Client::open_listed(entry, bounds)?.ask_once("status")? {
        Ok(answer) => Status::of(&answer)
            .ok_or_else(|| Fault::Malformed("does not say how many queues it has".to_owned())),
        Err(refused) => Err(Fault::Refused(refused.reason)),
    }
}

/// Every attribute below `path`, with its value: `rw` or `ro`, the path, the value. As JSON it is
/// the same as by `uwork get --json`. The requests for a level of the tree, and those for all
/// values, are sent together.
pub(super) fn tree(client: &mut Client, path: &str, as_json: bool) -> Result<String, UserError> {
    let root = path.trim_matches('/');
    let (mut folders, mut attributes) = (vec![root.to_owned()], Vec::new());
    let (mut left, mut left_bytes) = (PATHS_MAX, PATHS_BYTES_MAX);
    while !folders.is_empty() {
        let lists = folders.iter().map(|folder| format!("list {folder}")).collect::<Vec<_>>();
        let answers = client.ask_all(&lists);
        for (folder, entries) in std::mem::take(&mut folders).iter().zip(answers) {
            let entries = match entries {
                Ok(entries) => entries,
                // A queue may be destroyed meanwhile.
                Err(Failure::Refused(refused)) if refused.code == "not-found" && folder != root => {
                    continue;
                }
                Err(Failure::Refused(refused))
                    if refused.code == "wrong-kind" && folder == root =>
                {
                    return match as_json {
                        true => Ok(Attribute::ask(client, folder)?.line()),
                        false => Ok(client.ask(&format!("get {folder}"))?),
                    };
                }
                Err(failure) => return Err(failure.into()),
            };
            for (kind, name) in entries.lines().filter_map(|line| line.split_once('\t')) {
                let below =
                    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                let rest = left.checked_sub(1).zip(left_bytes.checked_sub(below.len()));
                (left, left_bytes) = rest.ok_or_else(|| {
                    let process = client.process();
                    UserError(format!("process {process} has too many attributes: give a PATH"))
                })?;
                match kind {
                    "dir" => folders.push(below),
                    _ => attributes.push((below, kind.to_owned())),
                }
            }
        }
    }
    attributes.sort();
    let mut text = String::new();
    if as_json {
        let paths = attributes.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>();
        for attribute in Attribute::ask_all(client, &paths) {
            match attribute {
                Ok(attribute) => text += &attribute.line(),
                Err(Failure::Refused(_)) => {}
                Err(gone) => return Err(gone.into()),
            }
        }
        return Ok(text);
    }
    let gets = attributes.iter().map(|(path, _)| format!("get {path}")).collect::<Vec<_>>();
    for ((path, kind), value) in attributes.iter().zip(client.ask_all(&gets)) {
        let value = match value {
            Err(Failure::Refused(_)) => String::new(),
            answer => answer?,
        };
        let _ = writeln!(text, "{kind}  {path:<48} {}", value.trim_end());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: hundreds of megabytes, as the answers of thousands of sockets are kept to the end.
    #[test]
    fn little_is_kept_of_an_answer() {
        let long = "\u{202e}".repeat(20_000);
        let status = Status::of(&format!("queues\t7\nblocking_tier\t{long}\nother\t{long}\n"));
        let status = status.unwrap();
        assert_eq!((status.queues, status.workers), (7, None));
        assert_eq!(status.tier, start_of(&long));
        assert!(status.tier.capacity() <= 8 * TEXT_MAX, "{}", status.tier.capacity());
        assert!(Status::of("workers\t7\n").is_none());
    }
}
