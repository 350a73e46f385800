//! `uwork topology`.
use std::process::ExitCode;

use super::UserError;

/// The command line of `uwork topology`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: Args) -> Result<ExitCode, UserError> {
    Err(UserError("not in this build".to_owned()))
}
