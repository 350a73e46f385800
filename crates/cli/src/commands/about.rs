//! The command about itself: completions for shells, and man pages. Both come from the definitions
//! of the flags.

use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use super::{UserError, print};

/// The command line of `uwork completions`.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The command line of `uwork man`.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The subcommand; without it: the page of the command itself.
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Runs `uwork completions`.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<ExitCode, UserError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "uwork", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Runs `uwork man`.
pub(crate) fn man(args: &ManArgs, mut command: Command) -> Result<ExitCode, UserError> {
    command.build();
    let page = match &args.command {
        None => clap_mangen::Man::new(command),
        Some(name) => {
            let Some(found) = command.find_subcommand(name) else {
                let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                return Err(UserError(format!(
                    "there is no command '{name}' (allowed: {})",
                    names.join(", ")
                )));
            };
            clap_mangen::Man::new(found.clone()).title(format!("uwork-{name}"))
        }
    };
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| UserError(error.to_string()))?;
    print(&String::from_utf8_lossy(&text))
}
