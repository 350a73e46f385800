//! One sample, taken by a child process: the tier is chosen once for a process.

use std::io;
use std::process::{Command, Stdio};

use super::figures::Measured;
use super::uwork_jobs::DECLARED;
use crate::commands::UserError;
use crate::commands::bench::uwork_pool;

/// What a child is to measure.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) case: String,
    pub(super) runner: String,
    pub(super) variant: String,
    pub(super) quick: bool,
    pub(super) unprivileged: bool,
}

impl Order {
    /// What the hidden option has.
    pub(super) fn parse(text: &str) -> Result<Self, UserError> {
        serde_json::from_str(text).map_err(|error| {
            UserError(format!("--order '{text}': {error}; it is for uwork's own use"))
        })
    }

    /// The child that carries it out.
    pub(super) fn command(&self) -> Result<Command, UserError> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        let order = serde_json::to_string(self).expect("plain text and flags");
        command.args(["bench", "blocking", "--order", &order]);
        let tier = if self.runner == uwork_pool::RUNNER { &self.variant } else { DECLARED };
        command.env("UWORK_BLOCKING", tier);
        Ok(command)
    }

    /// Has it carried out.
    pub(super) fn carry_out(&self) -> Result<Measured, UserError> {
        let output =
            self.command()?.stdin(Stdio::null()).output().map_err(|error| failed(&error))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let Self { case, runner, variant, .. } = self;
            let status = output.status;
            let last = said.lines().last().unwrap_or("it said nothing");
            return Err(UserError(format!("{runner} {variant} ({case}): {status}: {last}")));
        }
        Measured::parse(&String::from_utf8_lossy(&output.stdout), &said)
    }
}

fn failed(error: &io::Error) -> UserError {
    UserError(format!("uwork cannot start itself again, as each sample needs: {error}"))
}
