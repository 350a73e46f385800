//! `uwork sim`: the engine on simulated machines.

mod bench;
mod calibrate;
mod check;
mod costs;
mod machines;
mod moving;
mod parallel;
mod power;
mod run;
mod scale;
mod seeds;
mod verify;

use std::process::ExitCode;

use super::UserError;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Play a script on a simulated machine, and check the run.
    Run(run::Args),
    /// Play random scripts, one for each seed, and check every run.
    Check(check::Args),
    /// Measure what this machine's instructions cost, for --costs.
    Calibrate(calibrate::Args),
    /// Compute the energy of periodic tasks with and without saved power.
    Power(power::Args),
    /// Repeat published experiments with the kernel's workqueues on simulated machines.
    Seeds(seeds::Args),
    /// Throughput, submission times, wakes and memory from 1 to 1,024 CPUs.
    Scale(scale::Args),
    /// Sojourn times of items that must move to another CPU, beside a perfect queue.
    Move(moving::Args),
    /// Throughput of small items, as `uwork-lab bench workqueue` measures it.
    Bench(bench::Args),
    /// List the machines that --machine knows by name.
    Machines,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Power(args) => power::run(&args),
        Command::Seeds(args) => seeds::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Move(args) => moving::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Machines => {
            machines::list()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
