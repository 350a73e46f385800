//! The `uwork` command: topology, sum and sim.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Linux workqueues in user space: show the machine, checksum files.
#[derive(Parser)]
#[command(name = "uwork", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Draw this machine (or a described machine) and the pods of each affinity scope.
    Topology(commands::topology::Args),
    /// Checksum files with work items; the format is that of sha256sum.
    Sum(commands::sum::Args),
    /// Run the engine on simulated machines: scripts, and random histories under checkers.
    Sim(commands::sim::Args),
}

fn main() -> ExitCode {
    // clap exits with 2 on a bad command line, as this program does for every user error.
    let outcome = match Cli::parse().command {
        Command::Topology(args) => commands::topology::run(args),
        Command::Sum(args) => commands::sum::run(args),
        Command::Sim(args) => commands::sim::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("uwork: {error}");
            ExitCode::from(2)
        }
    }
}
