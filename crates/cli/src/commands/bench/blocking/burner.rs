//! Another process that uses all CPUs.

use std::hint;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::thread;

use super::order::Order;
use crate::commands::UserError;
use crate::commands::bench::contestant::cpus;

/// Its name as a case.
pub(super) const CASE: &str = "burn";

/// Burns until dropped, or until this process is gone.
pub(super) struct Burner {
    process: Child,
    /// Its end is the burner's.
    stdin: Option<ChildStdin>,
}

impl Burner {
    /// Returns when it burns.
    pub(super) fn start(order: &Order) -> Result<Self, UserError> {
        let mut command = Order { case: CASE.to_owned(), ..order.clone() }.command()?;
        let failed =
            |error: io::Error| UserError(format!("the process that uses the CPUs: {error}"));
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdin = process.stdin.take();
        let mut stdout = process.stdout.take().expect("it is piped");
        let burner = Self { process, stdin };
        stdout.read_exact(&mut [0]).map_err(failed)?;
        Ok(burner)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.stdin = None;
        // Nothing can be done about an error, and nothing depends on it.
        let _ = self.process.wait();
    }
}

/// The burner itself.
pub(super) fn burn() -> Result<(), UserError> {
    for _ in 0..cpus() {
        thread::spawn(|| {
            loop {
                hint::spin_loop();
            }
        });
    }
    let said = io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush());
    let ended = said.and_then(|()| io::stdin().read_to_end(&mut Vec::new()));
    ended.map(|_| ()).map_err(|error| UserError(error.to_string()))
}
