//! The `uwork-lab` command: bench and serve.

mod bench;
#[cfg(feature = "all")]
mod serve;
mod user_error;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use user_error::UserError;

/// The laboratory of uwork: benchmarks beside other thread pools, and a server built on the
/// library.
#[derive(Parser)]
#[command(name = "uwork-lab", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a benchmark and print its table.
    Bench(bench::Args),
    /// Serve keys and values over RESP, the protocol of Redis.
    #[cfg(feature = "all")]
    Serve(serve::Args),
}

fn main() -> ExitCode {
    // clap exits with 2 on a bad command line, as this program does for every user error.
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        #[cfg(feature = "all")]
        Command::Serve(args) => serve::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("uwork-lab: {error}");
            ExitCode::from(2)
        }
    }
}
