//! Another process that keeps all CPUs busy.

use std::hint;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::thread;

use super::order::Order;
use crate::UserError;
use crate::bench::contestant::cpus;

/// Its case name in an order.
pub(super) const CASE: &str = "burn";

/// A busy process. It runs until this value is dropped or this process ends.
pub(super) struct Burner {
    process: Child,
    /// The busy process ends when this pipe is closed.
    stdin: Option<ChildStdin>,
}

impl Burner {
    /// Starts the process; returns once it is busy.
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
        // An error has no consequence here.
        let _ = self.process.wait();
    }
}

/// The main function of the busy process.
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
