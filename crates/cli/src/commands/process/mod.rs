//! The commands that look into a running process and change its attributes: ls, get, set, dump,
//! monitor, trace, doctor.

pub(crate) mod doctor;
mod list;
mod monitor;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use super::{UserError, print};
use crate::client::Client;

/// The command line of `uwork ls`.
#[derive(clap::Args)]
pub(crate) struct LsArgs {
    /// A process, by its number or by the path of its socket. Without it: all processes.
    #[arg(value_name = "PID")]
    process: Option<String>,

    /// The part of the attribute tree to list.
    #[arg(value_name = "PATH", default_value = "")]
    path: String,
}

/// The command line of `uwork get`.
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The attribute's path in the tree, as `uwork ls PID` lists it.
    #[arg(value_name = "PATH")]
    path: String,

    /// Describe the attribute: type, unit and permitted values.
    #[arg(long)]
    describe: bool,
}

/// The command line of `uwork set`.
#[derive(clap::Args)]
pub(crate) struct SetArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The attribute's path in the tree, as `uwork ls PID` lists it.
    #[arg(value_name = "PATH")]
    path: String,

    /// The new value.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
}

/// The command line of `uwork dump`.
#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// Print it as JSON; the program needs the feature `serde` of the library.
    #[arg(long)]
    json: bool,
}

/// The command line of `uwork monitor`.
#[derive(clap::Args)]
pub(crate) struct MonitorArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// Seconds between two tables; 0 prints a single one.
    #[arg(short, long, value_name = "SEC", default_value = "1")]
    interval: String,

    /// Print so many tables, then end.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,

    /// Show the queues whose names match any of these regular expressions.
    #[arg(value_name = "REGEX")]
    names: Vec<String>,
}

/// The command line of `uwork trace`.
#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The file to write: JSON trace events, which ui.perfetto.dev opens.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// How long to record, in seconds.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// The command line of `uwork doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Processes, by their numbers or by the paths of their sockets. Without any: all processes.
    #[arg(value_name = "PID")]
    processes: Vec<String>,
}

/// Runs `uwork ls`.
pub(crate) fn ls(args: LsArgs) -> Result<ExitCode, UserError> {
    match args.process {
        None => print(&list::processes()),
        Some(process) => print(&list::tree(&mut Client::connect(&process)?, &args.path)?),
    }
}

/// Runs `uwork get`.
pub(crate) fn get(args: GetArgs) -> Result<ExitCode, UserError> {
    let verb = if args.describe { "describe" } else { "get" };
    print(&Client::connect(&args.process)?.ask(&format!("{verb} {}", args.path))?)
}

/// Runs `uwork set`.
pub(crate) fn set(args: SetArgs) -> Result<ExitCode, UserError> {
    let request = format!("set {} {}", args.path, args.value);
    print(&Client::connect(&args.process)?.ask(&request)?)
}

/// Runs `uwork dump`.
pub(crate) fn dump(args: DumpArgs) -> Result<ExitCode, UserError> {
    let request = if args.json { "dump json" } else { "dump" };
    print(&Client::connect(&args.process)?.ask(request)?)
}

/// Runs `uwork monitor`.
pub(crate) fn monitor(args: MonitorArgs) -> Result<ExitCode, UserError> {
    monitor::run(&args)
}

/// Runs `uwork trace`.
pub(crate) fn trace(args: &TraceArgs) -> Result<ExitCode, UserError> {
    trace::run(args)
}
