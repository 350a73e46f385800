//! One module per subcommand; each has `Args` and `run`.

pub(crate) mod about;
pub(crate) mod bridge;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod scope;
pub(crate) mod signals;
pub(crate) mod sim;
pub(crate) mod sum;
pub(crate) mod topology;

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// A user error: one line that states what is wrong and which values are allowed. The exit code is
/// 2.
#[derive(Debug)]
pub(crate) struct UserError(pub(crate) String);

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<ExitCode, UserError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(UserError(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
