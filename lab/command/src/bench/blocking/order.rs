//! One sample, taken by a child process, because the tier is fixed for a process.

use std::process::Command;

use super::figures;
use super::uwork_jobs::DECLARED;
use crate::UserError;
use crate::bench::measured::{Measured, again};
use crate::bench::uwork_pool;

/// The case name of the busy process.
pub(super) const BURN: &str = "burn";

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) case: String,
    pub(super) runner: String,
    pub(super) variant: String,
    pub(super) quick: bool,
    pub(super) unprivileged: bool,
}

impl Order {
    /// The command that starts the child.
    pub(super) fn command(&self) -> Result<Command, UserError> {
        let mut command = again("blocking", self)?;
        let tier = if self.runner == uwork_pool::RUNNER { &self.variant } else { DECLARED };
        command.env("UWORK_BLOCKING", tier);
        Ok(command)
    }

    /// The command that starts a busy process beside the child.
    pub(super) fn burner(&self) -> Result<Command, UserError> {
        Order { case: BURN.to_owned(), ..self.clone() }.command()
    }

    /// Runs the child.
    pub(super) fn carry_out(&self) -> Result<Measured, UserError> {
        let Self { case, runner, variant, .. } = self;
        Measured::by(self.command()?, &format!("{runner} {variant} ({case})"), &figures::ALL)
    }
}
