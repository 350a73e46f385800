//! `uwork-lab bench blocking`: items that block, usually undeclared, among items that compute.
//!
//! - `sleep`, `pipe`, `lock`, `fault` and `mixed`: rate, CPU time and threads of such a mixture. In
//!   addition, on one CPU or one worker, the time from the start of a block to the start of the
//!   next item.
//! - `sleep-busy`: as `sleep`, while another process keeps all CPUs busy. Only for uwork.
//! - `burst`: many items that sleep, on a queue with a limit. Only for pools that replace blocked
//!   items.
//! - `flood` and `busy`: the cost of detection without any blocks, and whether detection mistakes
//!   preemption for a block. Only for uwork.
//!
//! The variants of uwork are its detection tiers. In `declared`, items declare their blocks; in
//! `standby`, `events` and `sampling`, they do not. The tier is fixed when a process starts, so a separate
//! child process takes each sample.

mod burst;
mod cases;
mod child;
mod figures;
mod flood;
mod latency;
mod obstacles;
mod order;
mod tally;
mod threads;
mod throughput;
mod uwork_jobs;

use std::process::ExitCode;

use uwork_rivals::Standing;
use uwork_rivals::jobs::{JobRival, job_rivals};

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::measured::{ChildArgs, Measured};
use super::options::{names, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::warning::Warning;
use super::{UserError, privilege, uwork_pool};
use obstacles::{Kind, check_faults};
use order::Order;

/// Floods differ by a few per cent only, so they need more samples.
const FLOOD_FACTOR: usize = 5;

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also run the other pools
    #[arg(long)]
    rivals: bool,
    /// Smaller sizes and one sample, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: sleep, pipe, lock, fault, mixed (blocking items among short items),
    /// sleep-busy (sleep beside a busy process), burst (many sleeping items, at most 256 at a time),
    /// flood and busy (no blocking items)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Only these detection tiers of uwork: declared, standby, events, sampling
    #[arg(long, value_name = "TIER", num_args = 1.., value_delimiter = ',')]
    tier: Vec<String>,
    /// Runs of each runner; the median is reported. The flood has five times as many [default: 3;
    /// --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    /// Measure as user 65534 (nobody); for root
    #[arg(long)]
    unprivileged: bool,
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
    let (selection, warnings) = Selection::check(&args)?;
    Plan::new("blocking", selection.groups()).warnings(warnings).run(&args.output)
}

/// The validated selection of cases and runners.
struct Selection {
    cases: Vec<&'static str>,
    /// The tiers of uwork; empty if uwork does not take part.
    tiers: Vec<&'static str>,
    rivals: Vec<JobRival>,
    samples: usize,
    quick: bool,
    unprivileged: bool,
}

impl Selection {
    fn check(args: &Args) -> Result<(Self, Vec<Warning>), UserError> {
        let rivals = job_rivals();
        let mut runners = vec![uwork_pool::RUNNER];
        runners.extend(rivals.iter().map(|rival| rival.runner));
        runners.dedup();
        let runners = names("--runner", &args.runner, &runners)?;
        let wanted =
            |runner| if args.runner.is_empty() { args.rivals } else { runners.contains(&runner) };
        let mut cases = names_or_all("--case", &args.case, &cases::ALL)?;
        let tiers = names_or_all("--tier", &args.tier, &uwork_jobs::TIERS)?;
        let samples = samples_or(&args.samples, if args.quick { 1 } else { 3 })?;
        privilege::check(args.unprivileged)?;
        let mut warnings = Vec::new();
        if cases.iter().any(|case| cases::kinds(case).contains(&Kind::Fault))
            && let Err(error) = check_faults()
        {
            cases.retain(|case| *case != "fault");
            if cases.is_empty() {
                return Err(UserError(format!("--case fault: userfaultfd: {error}")));
            }
            warnings.push(Warning::NoFaults(error.to_string()));
        }
        let own = args.runner.is_empty() || runners.contains(&uwork_pool::RUNNER);
        let selection = Self {
            cases,
            tiers: if own { tiers } else { Vec::new() },
            rivals: rivals.into_iter().filter(|rival| wanted(rival.runner)).collect(),
            samples,
            quick: args.quick,
            unprivileged: args.unprivileged,
        };
        Ok((selection, warnings))
    }

    fn groups(&self) -> Vec<Group<Measured>> {
        self.cases.iter().map(|case| self.group(case)).collect()
    }

    fn group(&self, case: &'static str) -> Group<Measured> {
        let only_uwork = case == "flood" || cases::is_busy(case);
        let mut contestants = Vec::new();
        let own = self.tiers.iter();
        contestants.extend(own.map(|tier| self.contestant(case, uwork_pool::RUNNER, tier, None)));
        let rivals = self.rivals.iter().filter(|rival| {
            // Other pools would run the sleeping items one after another on each thread, which
            // takes minutes.
            !only_uwork && (case != "burst" || rival.replaces_blocked)
        });
        let pool = Some(Standing::Pool);
        contestants
            .extend(rivals.map(|rival| self.contestant(case, rival.runner, rival.variant, pool)));
        let samples = self.samples * if case == "flood" { FLOOD_FACTOR } else { 1 };
        Group {
            title: self.title(case, samples),
            contestants,
            samples,
            ratio_to: match case {
                "sleep-busy" => RatioTo::Variant(uwork_jobs::SAMPLING),
                _ if only_uwork => RatioTo::Variant(uwork_jobs::DECLARED),
                _ => RatioTo::FastestRival,
            },
        }
    }

    fn contestant(
        &self,
        case: &'static str,
        runner: &'static str,
        variant: &'static str,
        standing: Option<Standing>,
    ) -> Contestant<Measured> {
        let order = Order {
            case: case.to_owned(),
            runner: runner.to_owned(),
            variant: variant.to_owned(),
            quick: self.quick,
            unprivileged: self.unprivileged,
        };
        Contestant {
            names: Names { case, runner, variant: variant.to_owned() },
            standing,
            measure: Box::new(move |_| order.carry_out()),
        }
    }

    fn title(&self, case: &str, samples: usize) -> String {
        let user = match (privilege::is_root(), self.unprivileged) {
            (true, false) => "as root",
            (true, true) => "as nobody",
            (false, _) => "unprivileged",
        };
        format!(
            "{case}: {}  (CPUs {}, samples {samples}, {user})",
            cases::about(case, self.quick),
            cpus()
        )
    }
}
