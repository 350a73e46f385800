//! The command about itself: completions for shells, and man pages. Both come from the definitions
//! of the flags.

use std::fs;
use std::path::{Path, PathBuf};
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
    /// Write all pages into this folder, which exists.
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    all: Option<PathBuf>,
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
    if let Some(folder) = &args.all {
        return write_all(folder, &command);
    }
    let text = match &args.command {
        None => page("uwork", &command)?,
        Some(name) => {
            let Some(found) = command.find_subcommand(name) else {
                let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                return Err(UserError(format!(
                    "there is no command '{name}' (allowed: {})",
                    names.join(", ")
                )));
            };
            page(&format!("uwork-{name}"), found)?
        }
    };
    print(&String::from_utf8_lossy(&text))
}

/// Writes the page of the command and those of its subcommands, `uwork.1` and `uwork-NAME.1`.
fn write_all(folder: &Path, command: &Command) -> Result<ExitCode, UserError> {
    let write = |title: &str, command: &Command| {
        let path = folder.join(format!("{title}.1"));
        fs::write(&path, page(title, command)?)
            .map_err(|error| UserError(format!("{}: {error}", path.display())))
    };
    write("uwork", command)?;
    // clap's own `help` is left out.
    for subcommand in command.get_subcommands().filter(|found| found.get_name() != "help") {
        write(&format!("uwork-{}", subcommand.get_name()), subcommand)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, in the language of man(7).
fn page(title: &str, command: &Command) -> Result<Vec<u8>, UserError> {
    let version = concat!("uwork ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone())
        .title(title)
        // A page has no date of its own. An empty one would shift the next fields.
        .date("\"\"")
        .source(version)
        .manual("uwork");
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| UserError(error.to_string()))?;
    Ok(text)
}
