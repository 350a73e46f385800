//! The command about itself: completions for shells, and man pages. Both come from the definitions
//! of the flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, Command};
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
    /// The subcommand, as in `uwork man bridge run`; without it: the page of the command itself.
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
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<ExitCode, UserError> {
    // The pages leave out clap's own `help`.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    if let Some(folder) = &args.all {
        return write_all(folder, "uwork", &command);
    }
    let (mut title, mut found) = ("uwork".to_owned(), &command);
    for name in &args.command {
        let Some(subcommand) = found.find_subcommand(name) else {
            let names: Vec<&str> = found.get_subcommands().map(Command::get_name).collect();
            let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(UserError(format!("there is no command '{name}' (allowed: {allowed})")));
        };
        (title, found) = (format!("{title}-{name}"), subcommand);
    }
    print(&String::from_utf8_lossy(&page(&title, found)?))
}

/// Writes the page of the command and those of its subcommands at every depth: `uwork.1`,
/// `uwork-bridge.1`, `uwork-bridge-run.1`.
fn write_all(folder: &Path, title: &str, command: &Command) -> Result<ExitCode, UserError> {
    let path = folder.join(format!("{title}.1"));
    fs::write(&path, page(title, command)?)
        .map_err(|error| UserError(format!("{}: {error}", path.display())))?;
    for subcommand in command.get_subcommands() {
        write_all(folder, &format!("{title}-{}", subcommand.get_name()), subcommand)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, in the language of man(7).
fn page(title: &str, command: &Command) -> Result<Vec<u8>, UserError> {
    let version = concat!("uwork ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone().override_usage(synopsis(command)))
        .title(title)
        // A page has no date of its own. An empty one would shift the next fields.
        .date("\"\"")
        .source(version)
        .manual("uwork");
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| UserError(error.to_string()))?;
    Ok(text)
}

/// The usage lines, with the names of values, and `...` where several are accepted. Arguments are
/// last, and required options before them: `--exec` takes the rest of its line.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let is_own = |arg: &&Arg| !["help", "version"].contains(&arg.get_id().as_str());
    let mut own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    own.sort_by_key(|arg| (arg.is_positional(), !arg.is_positional() && arg.is_required_set()));
    let mut arguments = String::new();
    for arg in own {
        let mut text = arg.to_string();
        if matches!(arg.get_action(), ArgAction::Append) && !text.ends_with("...") {
            text.push_str("...");
        }
        let is_bare = arg.is_required_set() || arg.is_positional();
        arguments += &if is_bare { format!(" {text}") } else { format!(" [{text}]") };
    }
    match (command.has_subcommands(), arguments.is_empty()) {
        (false, _) => name.to_owned() + &arguments,
        (true, true) => format!("{name} <COMMAND>"),
        (true, false) => format!("{name}{arguments}\n{name} <COMMAND>"),
    }
}
