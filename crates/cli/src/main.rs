//! The `uwork` command: topology, sum and sim; the bridge to Redis Streams; looking into processes.

// Both panic where a reader has closed its end, and escape nothing of what other processes have
// written. The ways out are `print`, `say!` and `complain!`.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(
    not(all(feature = "bridge", feature = "process", feature = "sim")),
    allow(dead_code, unused_macros, reason = "the commands share helpers")
)]

#[cfg(feature = "process")]
mod at_once;
#[cfg(feature = "process")]
mod below;
#[cfg(feature = "process")]
mod client;
mod commands;
#[cfg(feature = "process")]
mod exchange;
#[cfg(all(test, feature = "process"))]
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../uwork/tests/support/filter.rs"]
mod filter;
#[cfg(feature = "process")]
mod folder;
#[cfg(feature = "process")]
mod mounts;
#[cfg(feature = "process")]
mod no_socket;
#[cfg(feature = "process")]
mod peer;
mod printable;
#[cfg(feature = "process")]
mod socket_name;
#[cfg(feature = "process")]
mod sockets;

use std::io;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "bridge")]
use commands::bridge;
#[cfg(feature = "process")]
use commands::process;
#[cfg(feature = "sim")]
use commands::sim;
use commands::{UserError, about, report, sum, topology};

/// Linux workqueues in user space: show the machine, look into processes and tune them, checksum
/// files.
#[derive(Parser)]
#[command(name = "uwork", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Draw this machine (or a described machine) and the pods of each affinity scope.
    Topology(topology::Args),
    /// Checksum files with work items; the format is that of sha256sum.
    Sum(sum::Args),
    /// Run the engine on simulated machines: scripts, and random histories under checkers.
    #[cfg(feature = "sim")]
    Sim(sim::Args),
    /// Run jobs of Redis Streams as commands, add jobs, show the state of streams.
    #[cfg(feature = "bridge")]
    Bridge(Box<bridge::Args>),
    /// List the processes that use uwork, or the attributes of one of them.
    #[cfg(feature = "process")]
    Ls(process::LsArgs),
    /// Print the value of an attribute of a running process.
    #[cfg(feature = "process")]
    Get(process::GetArgs),
    /// Change an attribute of a running process.
    #[cfg(feature = "process")]
    Set(process::SetArgs),
    /// Print everything that a running process does: pools, workers, queues, items.
    #[cfg(feature = "process")]
    Dump(process::DumpArgs),
    /// Print the counters of a running process's queues at intervals.
    #[cfg(feature = "process")]
    Monitor(process::MonitorArgs),
    /// Show a running process on the whole screen: queues, pools on the topology, workers.
    #[cfg(feature = "process")]
    Top(process::TopArgs),
    /// Record when a running process's items are queued, start and end, for ui.perfetto.dev.
    #[cfg(feature = "process")]
    Trace(process::TraceArgs),
    /// Check the machine and the running processes, with a remedy for each finding.
    ///
    /// It looks twice, half a second apart or less. Where a queue does not move, it asks the threads in that
    /// queue's items for their call stacks by a signal, whose handler has SA_RESTART. Some system
    /// calls of those items return EINTR nevertheless, such as poll and nanosleep (signal(7)).
    ///
    /// A line is marked ok, LOOK, or ?? for what could not be seen, with the reason. The exit code is 1
    /// if any is LOOK, else 2 if any is ??, else 0. Names of functions come from /proc/PID/maps and the
    /// files there; lines of source files are left out if they are not found in 1.2 seconds.
    #[cfg(feature = "process")]
    Doctor(process::DoctorArgs),
    /// Turn the figures of benchmarks into a page with charts.
    Report(report::ReportArgs),
    /// Print the completions of this command for a shell.
    Completions(about::CompletionsArgs),
    /// Print the man page of this command, or of a subcommand.
    Man(about::ManArgs),
}

/// Prints the help, the version, or what is wrong with the command line, for which clap has the
/// code 2, as this program has for every user error.
fn told(mut told: clap::Error) -> Result<ExitCode, UserError> {
    if let Some(ContextValue::Strings(missing)) = told.get(ContextKind::InvalidArg)
        && told.kind() == ErrorKind::MissingRequiredArgument
        && missing.iter().any(|argument| argument == "<PATH>")
    {
        let tip =
            "`uwork ls` lists the processes, `uwork ls PID` the paths of a process's attributes";
        told.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let code = ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2));
    match told.print() {
        // Nothing can report that its reader has gone.
        Err(error) if !told.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            Err(UserError(format!("standard output: {error}")))
        }
        _ => Ok(code),
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => told(error),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            commands::complain_line(format_args!("uwork: {error}"));
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, UserError> {
    match command {
        Command::Topology(args) => topology::run(args),
        Command::Sum(args) => sum::run(args),
        #[cfg(feature = "sim")]
        Command::Sim(args) => sim::run(args),
        #[cfg(feature = "bridge")]
        Command::Bridge(args) => bridge::run(*args),
        #[cfg(feature = "process")]
        Command::Ls(args) => process::ls(args),
        #[cfg(feature = "process")]
        Command::Get(args) => process::get(args),
        #[cfg(feature = "process")]
        Command::Set(args) => process::set(args),
        #[cfg(feature = "process")]
        Command::Dump(args) => process::dump(args),
        #[cfg(feature = "process")]
        Command::Monitor(args) => process::monitor(args),
        #[cfg(feature = "process")]
        Command::Top(args) => process::top(&args),
        #[cfg(feature = "process")]
        Command::Trace(args) => process::trace(&args),
        #[cfg(feature = "process")]
        Command::Doctor(args) => process::doctor::run(args),
        Command::Report(args) => report::run(&args),
        Command::Completions(args) => about::completions(&args, Cli::command()),
        Command::Man(args) => about::man(&args, Cli::command()),
    }
}
