//! The runners: how each is started, and where its unfinished jobs are on the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::child::{Order, Role};
use super::patience;
use crate::UserError;
use crate::bench::measured::again;

pub(super) const RUNNERS: [&str; 5] = ["uwork", "celery", "rq", "bullmq", "asynq"];
/// Only by name: the bare consumers are no peers.
pub(super) const BARE: [&str; 2] = ["sync", "async"];

/// A runner.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// Commands whose numbers add up to the jobs that are not done.
    left: &'static [&'static [&'static str]],
    /// The files of the peer in its folder.
    files: &'static [&'static str],
}

const PEERS: [Peer; 7] = [
    Peer { name: "uwork", left: &[&["XLEN", "jobs"]], files: &[] },
    Peer { name: "sync", left: &[&["XLEN", "jobs"]], files: &[] },
    Peer { name: "async", left: &[&["XLEN", "jobs"]], files: &[] },
    Peer {
        name: "celery",
        left: &[&["LLEN", "celery"], &["HLEN", "unacked"]],
        files: &["venv/bin/python", "celery_peer.py"],
    },
    Peer {
        name: "rq",
        left: &[&["LLEN", "rq:queue:default"], &["ZCARD", "rq:wip:default"]],
        files: &["venv/bin/python", "rq_peer.py"],
    },
    Peer {
        name: "bullmq",
        left: &[&["LLEN", "bull:q:wait"], &["LLEN", "bull:q:active"]],
        files: &["bullmq_peer.mjs", "node_modules/bullmq/package.json"],
    },
    Peer {
        name: "asynq",
        left: &[&["LLEN", "asynq:{default}:pending"], &["LLEN", "asynq:{default}:active"]],
        files: &["asynq_peer"],
    },
];

impl Peer {
    /// The runner of this name.
    pub(super) fn named(name: &str) -> Option<Peer> {
        PEERS.into_iter().find(|peer| peer.name == name)
    }

    /// Whether its files are in the folder.
    pub(super) fn is_installed(&self, folder: &Path) -> bool {
        self.files.iter().all(|file| folder.join(file).exists())
    }

    /// The command of its producer or consumer.
    pub(super) fn command(
        &self,
        folder: &Path,
        role: Role,
        case: &str,
        url: &str,
        jobs: usize,
    ) -> Result<Command, UserError> {
        let word = if role == Role::Push { "push" } else { "work" };
        let mut command = match self.name {
            "uwork" | "sync" | "async" => {
                let role = match (role, self.name) {
                    (Role::Work, "sync") => Role::BareSync,
                    (Role::Work, "async") => Role::BareAsync,
                    (role, _) => role,
                };
                let (case, url) = (case.to_owned(), url.to_owned());
                let patience = patience();
                return again("bridge", &Order { role, case, url, jobs, patience, task: None });
            }
            "bullmq" => {
                let mut command = Command::new("node");
                command.arg(self.files[0]);
                command
            }
            "asynq" => Command::new(folder.join(self.files[0])),
            _ => {
                let mut command = Command::new(folder.join(self.files[0]));
                command.arg(self.files[1]);
                command
            }
        };
        command.args([url, word, case, &jobs.to_string()]).current_dir(folder);
        Ok(command)
    }

    /// The number of jobs that are not done.
    pub(super) fn left(&self, connection: &mut redis::Connection) -> Result<usize, UserError> {
        let mut pipe = redis::pipe();
        for words in self.left {
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]);
            pipe.add_command(command);
        }
        let numbers: Result<Vec<usize>, _> = pipe.query(connection);
        let fail = |error| UserError(format!("{}: {error}", self.name));
        Ok(numbers.map_err(fail)?.into_iter().sum())
    }
}

/// Where `lab/peers/install.sh` puts the peers: beside the folder of this program.
pub(super) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("UWORK_PEERS") {
        return folder.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).unwrap_or(Path::new("target"));
    target.join("peers")
}
