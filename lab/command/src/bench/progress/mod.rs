//! `uwork-lab bench progress`: how late a ready item starts beside an item that sleeps or computes.
//!
//! - `timer-sleep`: a timer of 50 ms is armed on an unbound queue. Then an item is queued there
//!   that sleeps until the timer's item has run, for at most 2 s. The figure is the delay between
//!   the due time and the start of the timer's item.
//! - `timer-compute`: the same, with an item that computes instead of sleeping.
//! - `ready-after-wait`: on a per-CPU queue, an item waits 1 to 500 us in `blocking`, then computes
//!   until a second item has started, for at most 60 ms. The second item is queued on that CPU
//!   during the wait. The figure is the delay between its submission and its start.
//!
//! A variant consists of the tier, the number of CPUs and the number of idle workers. Tier and CPUs
//! are fixed for a process, so child processes measure each variant. A child restricts itself to
//! its CPUs before the engine starts.

mod child;
mod crew;
mod lateness;
mod plan;
mod ready;
mod report;
mod timer;

use std::process::ExitCode;

use uwork::topology::Machine;

use super::UserError;
use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::ChildArgs;
use super::options::{count_or, names_or_all};
use super::pipeline::{Output, Plan};
use super::uwork_pool::RUNNER;
use super::warning::Warning;
use lateness::Tries;
use plan::{CASES, CPUS, TIERS};

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// 10 tries of each variant, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: timer-sleep, timer-compute, ready-after-wait
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these tiers: declared, standby, events, sampling
    #[arg(long, value_name = "TIER", num_args = 1.., value_delimiter = ',')]
    tier: Vec<String>,
    /// Only with these numbers of CPUs: 1, 2
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',')]
    cpus: Vec<String>,
    /// Tries of each variant [default: 1000; --quick: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order()? {
        return child::run(&order).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let tiers = names_or_all("--tier", &args.tier, &TIERS)?;
    let default = if args.quick { 10 } else { plan::SAMPLES };
    let samples = count_or("--samples", &args.samples, 1..=100_000, default)?;
    let cpus = names_or_all("--cpus", &args.cpus, &CPUS.map(|(name, _)| name))?;
    let cpus = CPUS.into_iter().filter(|(name, _)| cpus.contains(name)).map(|(_, count)| count);
    let allowed = Machine::read().map_err(|error| UserError(error.to_string()))?.allowed.len();
    let (cpus, missing): (Vec<_>, Vec<_>) = cpus.partition(|&count| count <= allowed);
    if cpus.is_empty() {
        return Err(UserError(format!("--cpus: the process may use {allowed} CPU(s)")));
    }
    let groups = cases.into_iter().map(|case| group(case, &tiers, &cpus, samples)).collect();
    let warnings = missing.into_iter().map(Warning::FewCpus).collect();
    let plan = Plan::new("progress", groups).shown_by(report::table).warnings(warnings);
    plan.one_sample_suffices().run(&args.output)
}

fn group(case: &'static str, tiers: &[&str], cpus: &[usize], samples: usize) -> Group<Tries> {
    let contestants =
        plan::orders(case, tiers, cpus, samples).into_iter().map(|order| Contestant {
            names: Names { case, runner: RUNNER, variant: order.variant() },
            standing: None,
            measure: Box::new(move |number| order.carry_out(number)),
        });
    Group {
        title: case.to_owned(),
        contestants: contestants.collect(),
        samples: plan::children(samples),
        ratio_to: RatioTo::Nothing,
    }
}
