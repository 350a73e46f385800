//! `uwork-lab bench power`: periodic tasks on an otherwise idle machine: how often CPUs wake for
//! them, what that costs, and how late the tasks are.
//!
//! | case | tasks |
//! |---|---|
//! | `periodic` | 200 with periods from 20 ms to 1 s (log-uniform), random phases, 20 us of work each |
//! | `audio` | one of 10 ms, one of 40 ms, and eight of 250 ms to 1 s |
//! | `idle` | none: 200 queues, nothing armed |
//! | `awake` | one of 10 ms, beside an item that keeps one CPU awake; only uwork |
//! | `cold` | those of `periodic`, each sums 32 or 256 KiB of its own instead; only uwork |
//!
//! A task may be late by a quarter of its period, and must not be early. All runners get the same
//! tasks, from a fixed seed. A child process takes each sample, so that none inherits threads.
//!
//! The variants of uwork are `performance` (per-CPU queues, as power-efficient ones are by default)
//! and `efficient` (the same queues while power is saved). A figure that the machine cannot give is
//! left out and named below the table.

mod child;
mod figures;
mod runners;
mod system;
mod tasks;

use std::process::ExitCode;

use uwork_rivals::{Standing, periodic};

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::measured::{ChildArgs, Measured, again};
use super::options::{count_or, names, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::{UserError, uwork_pool};

const CASES: [&str; 5] = ["periodic", "audio", IDLE, AWAKE, COLD];
const IDLE: &str = "idle";
const AWAKE: &str = "awake";
const COLD: &str = "cold";
const EFFICIENT: &str = "efficient";
const VARIANTS: [&str; 2] = ["performance", EFFICIENT];
const COLD_VARIANTS: [&str; 4] =
    ["performance 32 KiB", "efficient 32 KiB", "performance 256 KiB", "efficient 256 KiB"];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Runs of one second, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: periodic, audio, idle, awake, cold
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners: uwork, tokio, async-io, timerfd, threads
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Duration of each sample in seconds [default: 30; --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// Runs of each runner; the median is reported [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    case: String,
    runner: String,
    variant: String,
    seconds: u64,
}

impl Order {
    fn carry_out(&self) -> Result<Measured, UserError> {
        let Self { case, runner, variant, .. } = self;
        let space = if variant.is_empty() { "" } else { " " };
        let name = format!("{runner}{space}{variant} ({case})");
        Measured::by(again("power", self)?, &name, &figures::all())
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order()? {
        return child::run(&order).map(|()| ExitCode::SUCCESS);
    }
    let mut known = vec![uwork_pool::RUNNER];
    known.extend(periodic::RUNNERS);
    names("--runner", &args.runner, &known)?;
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let default = if args.quick { 1 } else { 30 };
    let seconds = count_or("--seconds", &args.seconds, 1..=3_600, default)? as u64;
    let samples = samples_or(&args.samples, 1)?;
    let chosen = |runner: &str| args.runner.is_empty() || args.runner.iter().any(|r| r == runner);
    let group = |&case: &&'static str| Group {
        title: format!("{case}: {}  (CPUs {}, {seconds} s)", tasks::about(case), cpus()),
        contestants: runners_of(case)
            .into_iter()
            .filter(|&(runner, _)| chosen(runner))
            .map(|names| contestant(case, names, seconds))
            .collect(),
        samples,
        ratio_to: RatioTo::Nothing,
    };
    let groups = cases.iter().map(group).filter(|group| !group.contestants.is_empty());
    let groups: Vec<_> = groups.collect();
    if groups.is_empty() {
        return Err(UserError("these cases have no such runner: awake and cold have uwork".into()));
    }
    Plan::new("power", groups).below(figures::below).one_sample_suffices().run(&args.output)
}

/// The runners of a case, with their variants.
fn runners_of(case: &str) -> Vec<(&'static str, &'static str)> {
    let variants: &[&'static str] = if case == COLD { &COLD_VARIANTS } else { &VARIANTS };
    let own = variants.iter().map(|&variant| (uwork_pool::RUNNER, variant));
    let rivals = periodic::RUNNERS.into_iter().map(|rival| (rival, ""));
    match case {
        AWAKE | COLD => own.collect(),
        _ => own.chain(rivals).collect(),
    }
}

fn contestant(
    case: &'static str,
    (runner, variant): (&'static str, &'static str),
    seconds: u64,
) -> Contestant<Measured> {
    let order = Order {
        case: case.to_owned(),
        runner: runner.to_owned(),
        variant: variant.to_owned(),
        seconds,
    };
    Contestant {
        names: Names { case, runner, variant: variant.to_owned() },
        standing: (runner != uwork_pool::RUNNER).then_some(Standing::Pool),
        measure: Box::new(move |_| order.carry_out()),
    }
}
