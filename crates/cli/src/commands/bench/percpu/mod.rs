//! `uwork bench percpu`: what per-CPU locks and caches cost on one's own CPU, mode by mode, beside a bare free list
//! and other allocators.
//!
//! - `lock`: a free list in each CPU's part; one object is taken or put under `lock_local`. One thread.
//! - `alloc`: 9,000,000 allocations of 64 bytes that are kept, as in seed 001's kernel module. One thread.
//! - `write`: the same, and the first word of each object is written: fresh memory is paid for.
//! - `pair`: an object is allocated and freed, over and over. One thread.
//! - `threads4`: four threads that allocate, and free what the next one has allocated.
//!
//! `mode0+c` goes through the C interface, with a call for each step, as programs that are linked with the library do.
//!
//! The mode is chosen once for a process, so each sample is taken by a child of its own. The single
//! threads stay on one CPU.

mod allocators;
mod child;
mod cycles;
mod lists;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use uwork_rivals::Standing;

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::measured::{Measured, again, order};
use super::options::{count, names_or_all};
use super::summary::{CPU, Metric, RATE};
use super::{UserError, measure_and_report, uwork_pool};

const CYCLES: Metric =
    Metric { name: "cycles_per_op", unit: "cycles", title: "cycles", decimals: 2 };
const NANOS: Metric = Metric { name: "ns_per_op", unit: "ns", title: "ns", decimals: 2 };
/// In the order of the table.
const METRICS: [Metric; 4] = [RATE, CYCLES, NANOS, CPU];

const CASES: [&str; 5] = ["lock", "alloc", "write", "pair", "threads4"];
const MODES: [&str; 3] = ["mode0", "mode1", "mode2"];
/// Behind a mode: through the C interface.
const C: &str = "+c";
/// What that is measured by, in the cases of one thread.
const THROUGH_C: [&str; 4] = ["mode0", "mode1", "mode2", "mode0+c"];
const BARE: &str = "bare";
const THREAD_LOCAL: &str = "thread-local";
const RUNNERS: [&str; 6] =
    [uwork_pool::RUNNER, BARE, THREAD_LOCAL, "glibc", "mimalloc", "jemalloc"];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Smaller sizes and fewer samples, for a look
    #[arg(long)]
    quick: bool,
    /// Only these cases: lock, alloc, write, pair, threads4
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners: uwork, bare, thread-local, glibc, mimalloc, jemalloc
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Runs of each runner, of which the median counts [default: 5; --quick: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    /// Also write the figures to FILE, as a JSON array of flat records
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take one sample and print it; for uwork's own use
    #[arg(long, hide = true, value_name = "JSON")]
    order: Option<String>,
}

/// What a child is to measure.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    case: String,
    runner: String,
    variant: String,
    quick: bool,
}

impl Order {
    fn carry_out(&self) -> Result<Measured, UserError> {
        let mut command = again("percpu", self)?;
        if let Some(number) = self.variant.strip_prefix("mode") {
            command.env("UWORK_PWLOCKS", number.trim_end_matches(C));
        }
        let Self { case, runner, variant, .. } = self;
        Measured::by(command, &format!("{runner} {variant} ({case})"), &METRICS)
    }
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(text) = &args.order {
        return child::run(&order(text)?).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let runners = names_or_all("--runner", &args.runner, &RUNNERS)?;
    let samples = match &args.samples {
        Some(text) => count("--samples", text, 1..=1_000)?,
        None if args.quick => 3,
        None => 5,
    };
    let groups = cases.iter().map(|case| group(case, &runners, samples, args.quick)).collect();
    measure_and_report("percpu", groups, args.json.as_deref(), Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

fn group(
    case: &'static str,
    runners: &[&'static str],
    samples: usize,
    quick: bool,
) -> Group<Measured> {
    let takes_part = |runner: &&str| match case {
        "lock" => [uwork_pool::RUNNER, BARE].contains(runner),
        // Right for one thread only.
        "threads4" => ![BARE, THREAD_LOCAL].contains(runner),
        _ => true,
    };
    let mut contestants = Vec::new();
    for &runner in runners.iter().filter(|runner| takes_part(runner)) {
        let variants: &[&str] = match (runner, case) {
            (uwork_pool::RUNNER, "lock" | "pair") => &THROUGH_C,
            (uwork_pool::RUNNER, _) => &MODES,
            _ => &[""],
        };
        let standing = match runner {
            uwork_pool::RUNNER => None,
            BARE | THREAD_LOCAL => Some(Standing::Shape),
            _ => Some(Standing::Pool),
        };
        contestants.extend(variants.iter().map(|variant| {
            let order = Order {
                case: case.to_owned(),
                runner: runner.to_owned(),
                variant: (*variant).to_owned(),
                quick,
            };
            Contestant {
                names: Names { case, runner, variant: (*variant).to_owned() },
                standing,
                measure: Box::new(move || order.carry_out()),
            }
        }));
    }
    let ratio_to = match case {
        "lock" => RatioTo::Variant(""),
        _ => RatioTo::FastestRival,
    };
    Group { title: title(case, samples, quick), contestants, samples, ratio_to }
}

fn title(case: &str, samples: usize, quick: bool) -> String {
    let kept = allocators::kept(quick);
    let what = match case {
        "lock" => "an object off or on the free list of this CPU, under its lock".to_owned(),
        "alloc" => format!("{kept} allocations of 64 bytes, kept"),
        "write" => format!("{kept} allocations of 64 bytes, kept and written to"),
        "pair" => "an allocation of 64 bytes and its release".to_owned(),
        _ => "four threads, each of which frees what another has allocated".to_owned(),
    };
    format!("{case}: {what}  (CPUs {}, samples {samples})", cpus())
}
