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
    /// The subcommand, such as `ls` or `bridge run`; without it: the page of the command itself.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
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
        return write_all(folder, "uwork", &command).map(|()| ExitCode::SUCCESS);
    }
    let (mut title, mut command) = ("uwork".to_owned(), &command);
    for name in &args.command {
        let Some(found) = subcommands(command).find(|found| found.get_name() == name) else {
            let names: Vec<&str> = subcommands(command).map(Command::get_name).collect();
            let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(UserError(format!("there is no command '{name}' (allowed: {allowed})")));
        };
        title = format!("{title}-{name}");
        command = found;
    }
    print(&String::from_utf8_lossy(&page(&title, command)?))
}

/// The subcommands, but for clap's own `help`.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|found| found.get_name() != "help")
}

/// Writes the page of the command and those of all its subcommands: `uwork.1`, `uwork-bridge.1`,
/// `uwork-bridge-run.1`.
fn write_all(folder: &Path, title: &str, command: &Command) -> Result<(), UserError> {
    let path = folder.join(format!("{title}.1"));
    fs::write(&path, page(title, command)?)
        .map_err(|error| UserError(format!("{}: {error}", path.display())))?;
    subcommands(command).try_for_each(|subcommand| {
        write_all(folder, &format!("{title}-{}", subcommand.get_name()), subcommand)
    })
}

/// The page of a command, in the language of man(7).
fn page(title: &str, command: &Command) -> Result<Vec<u8>, UserError> {
    let version = concat!("uwork ", env!("CARGO_PKG_VERSION"));
    let mut command = command.clone();
    if command.find_subcommand("help").is_some() {
        command = command.mut_subcommand("help", |help| help.hide(true));
    }
    let page = clap_mangen::Man::new(command)
        .title(title)
        // A page has no date of its own. An empty one would shift the next fields.
        .date("\"\"")
        .source(version)
        .manual("uwork");
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| UserError(error.to_string()))?;
    Ok(text)
}
