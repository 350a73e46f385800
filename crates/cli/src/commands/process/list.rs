//! `uwork ls`: the processes, or the attributes of one of them.

use std::fmt::Write as _;
use std::fs;

use super::UserError;
use crate::client::{Client, Failure, fact, remove_if_stale, remove_unnamed, sockets};

/// A table of the processes that can be looked into. Removes the files of ended ones.
pub(super) fn processes() -> String {
    let mut text = format!(
        "{:>8} {:<16} {:>7} {:>7} {:<10} {}\n",
        "PID", "COMMAND", "QUEUES", "WORKERS", "TIER", "SOCKET"
    );
    remove_unnamed();
    for (process, path) in sockets() {
        if remove_if_stale(&path) {
            continue;
        }
        let status = Client::open_listed(&path).and_then(|mut client| {
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
