//! Tests in processes that the command looks into, and bounded waits.

use std::time::Duration;

use uwork::{Queue, control};

use crate::support::child::alone_with;
use crate::support::guard::Guard;

/// How long the process may make no progress in one wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Runs `body` in a process of its own, with a folder of its own for its socket. Neither other tests
/// nor other processes of this machine change its state or its list of processes.
#[track_caller]
pub(crate) fn observed(test: &str, body: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let prepare = |command: &mut std::process::Command| {
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("UWORK_CONTROL");
    };
    alone_with(test, prepare, body);
}

/// A queue of this process in the tree, and the process's number. Returns when the socket is open.
#[track_caller]
pub(crate) fn looked_at(name: &str) -> (Queue, String) {
    let queue = Queue::builder(name).sysfs().build().unwrap();
    until(|| control::socket(), |_| true);
    (queue, std::process::id().to_string())
}

/// Calls `turn` until its value is as wanted. Panics with the last one if that is a hang.
#[track_caller]
pub(crate) fn until<T, E: std::fmt::Debug>(
    mut turn: impl FnMut() -> Result<T, E>,
    is_wanted: impl Fn(&T) -> bool,
) -> T
where
    T: std::fmt::Debug,
{
    let mut guard = Guard::new(WAIT_MAX);
    loop {
        let found = turn();
        match found {
            Ok(found) if is_wanted(&found) => return found,
            found => {
                if let Err(hang) = guard.poll() {
                    panic!("{hang}: {found:#?}");
                }
            }
        }
        std::thread::yield_now();
    }
}
