//! A busy process: it keeps CPUs busy while a benchmark measures something else.

use std::hint;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use crate::UserError;

/// A busy process. It runs until this value is dropped or this process ends.
pub(super) struct Burner {
    process: Child,
    /// The busy process ends when this pipe is closed.
    stdin: Option<ChildStdin>,
}

impl Burner {
    /// Starts the process by a command that calls [`burn`]; returns once it is busy.
    pub(super) fn start(mut command: Command) -> Result<Self, UserError> {
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

/// The main function of the busy process: as many threads that compute.
pub(super) fn burn(threads: usize) -> Result<(), UserError> {
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                hint::spin_loop();
            }
        });
    }
    let said = io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush());
    let ended = said.and_then(|()| io::stdin().read_to_end(&mut Vec::new()));
    ended.map(|_| ()).map_err(failed)
}

fn failed(error: io::Error) -> UserError {
    UserError(format!("the process that uses the CPUs: {error}"))
}
