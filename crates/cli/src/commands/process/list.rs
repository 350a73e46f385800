//! `uwork ls`: the processes, or the attributes of one of them.

use std::fmt::Write as _;
use std::fs;

use super::UserError;
use crate::client::{Client, Failure, fact, remove_if_stale, sockets};

/// A table of the processes that can be looked into. Removes the files of ended ones.
pub(super) fn processes() -> String {
    let mut text = format!(
        "{:>8} {:<16} {:>7} {:>7} {:<10} {}\n",
        "PID", "COMMAND", "QUEUES", "WORKERS", "TIER", "SOCKET"
    );
    for (process, path) in sockets() {
        if remove_if_stale(&path) {
            continue;
        }
        let status =
            Client::open(&path).map_err(|error| error.to_string()).and_then(|mut client| {
                client.ask("status").map_err(|failure| UserError::from(failure).0)
            });
        let command = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let command = command.trim_end();
        let _ = match status {
            Ok(status) => writeln!(
                text,
                "{process:>8} {command:<16} {:>7} {:>7} {:<10} {}",
                fact(&status, "queues"),
                fact(&status, "workers"),
                fact(&status, "blocking_tier"),
                path.display()
            ),
            Err(reason) => {
                writeln!(text, "{process:>8} {command:<16} {}: {reason}", path.display())
            }
        };
    }
    text
}

/// Every attribute below `path`, with its value: `rw` or `ro`, the path, the value.
pub(super) fn tree(client: &mut Client, path: &str) -> Result<String, UserError> {
    let mut text = String::new();
    let mut folders = vec![path.trim_matches('/').to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match client.ask(&format!("list {folder}")) {
            Ok(entries) => entries,
            // A queue may be destroyed meanwhile.
            Err(Failure::Refused(refused)) if refused.code == "not-found" && folder != path => {
                continue;
            }
            Err(Failure::Refused(refused)) if refused.code == "wrong-kind" => {
                return Ok(client.ask(&format!("get {folder}"))?);
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
                _ => {
                    let value = client.ask(&format!("get {path}")).unwrap_or_default();
                    let _ = writeln!(text, "{kind}  {path:<48} {}", value.trim_end());
                }
            }
        }
    }
    Ok(text)
}
