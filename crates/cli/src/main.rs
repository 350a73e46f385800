//! The `uwork` command: topology, sum, serve and bench.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Linux workqueues in user space: show the machine, run benchmarks, checksum files, serve keys.
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
    /// Serve keys and values over RESP, the protocol of Redis.
    Serve(commands::serve::Args),
    /// Run a benchmark and print its table.
    Bench(commands::bench::Args),
}

fn main() -> ExitCode {
    // clap exits with 2 on a bad command line, as this program does for every user error.
    let outcome = match Cli::parse().command {
        Command::Topology(args) => commands::topology::run(args),
        Command::Sum(args) => commands::sum::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Bench(args) => commands::bench::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("uwork: {error}");
            ExitCode::from(2)
        }
    }
}
