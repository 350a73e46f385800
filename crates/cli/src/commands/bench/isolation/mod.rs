//! `uwork bench isolation`: what a thread that must not be disturbed notices when others drain all batches, mode by
//! mode: seed 001's test of an isolated CPU.
//!
//! A real-time thread that has a CPU for itself fills its batch, and then does nothing but read the clock: whatever
//! runs there instead leaves a gap. Another CPU calls `drain_all` every 10 ms. In the case `once` the batch is
//! filled once, so that later drains find nothing; in `steady` the thread adds an item whenever its batch is empty,
//! so that every drain has to reach it.
//!
//! The mode is chosen once for a process, so each sample is taken by a child of its own.

mod child;
mod loner;

use std::path::PathBuf;
use std::process::ExitCode;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{Measured, again, order};
use super::options::{count, names_or_all};
use super::summary::{Metric, RATE};
use super::{UserError, measure_and_report, uwork_pool};

const fn metric(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    Metric { name, unit, title, decimals: 1 }
}

const GAP_MAX: Metric = metric("gap_max_us", "us", "gap max us");
const GAPS: Metric = metric("gaps_over_50us", "gaps", "gaps > 50 us");
const SWITCHES: Metric = metric("switches", "switches", "switches");
const VOLUNTARY: Metric = metric("switches_voluntary", "switches", "voluntary");
const INVOLUNTARY: Metric = metric("switches_involuntary", "switches", "involuntary");
const DRAIN_P50: Metric = metric("drain_p50_us", "us", "drain p50 us");
const DRAIN_P99: Metric = metric("drain_p99_us", "us", "p99 us");
const DRAIN_MAX: Metric = metric("drain_max_us", "us", "max us");
const DRAINS: Metric = metric("drains", "calls", "drains");
/// Calls that returned only because the thread had ended.
const STUCK: Metric = metric("drains_stuck", "calls", "stuck");
/// In the order of the table.
const METRICS: [Metric; 11] = [
    RATE,
    GAP_MAX,
    GAPS,
    SWITCHES,
    VOLUNTARY,
    INVOLUNTARY,
    DRAIN_P50,
    DRAIN_P99,
    DRAIN_MAX,
    DRAINS,
    STUCK,
];

const CASES: [&str; 2] = ["once", "steady"];
const MODES: [&str; 3] = ["mode0", "mode1", "mode2"];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Two seconds instead of twenty, for a look
    #[arg(long)]
    quick: bool,
    /// Only these cases: once (the batch is filled once), steady (again after each drain)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these modes: mode0, mode1, mode2
    #[arg(long, value_name = "MODE", num_args = 1.., value_delimiter = ',')]
    mode: Vec<String>,
    /// How long each sample takes [default: 20; --quick: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// Runs of each mode, of which the median counts [default: 1]
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
    mode: String,
    seconds: usize,
}

impl Order {
    fn carry_out(&self) -> Result<Measured, UserError> {
        let Self { case, mode, .. } = self;
        let mut command = again("isolation", self)?;
        command.env("UWORK_PWLOCKS", mode.trim_start_matches("mode"));
        Measured::by(command, &format!("{} {mode} ({case})", uwork_pool::RUNNER), &METRICS)
    }
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(text) = &args.order {
        return child::run(&order(text)?).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let modes = names_or_all("--mode", &args.mode, &MODES)?;
    let given = |flag, text: &Option<String>, range, default| match text {
        Some(text) => count(flag, text, range),
        None => Ok(default),
    };
    let seconds = given("--seconds", &args.seconds, 1..=3_600, if args.quick { 2 } else { 20 })?;
    let samples = given("--samples", &args.samples, 1..=1_000, 1)?;
    let groups = cases.iter().map(|case| group(case, &modes, seconds, samples)).collect();
    measure_and_report("isolation", groups, args.json.as_deref(), Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

fn group(
    case: &'static str,
    modes: &[&'static str],
    seconds: usize,
    samples: usize,
) -> Group<Measured> {
    let contestants = modes.iter().map(|mode| {
        let order = Order { case: case.to_owned(), mode: (*mode).to_owned(), seconds };
        Contestant {
            names: Names { case, runner: uwork_pool::RUNNER, variant: (*mode).to_owned() },
            standing: None,
            measure: Box::new(move || order.carry_out()),
        }
    });
    Group {
        title: format!(
            "{case}: a thread alone on its CPU reads the clock (items), another CPU drains all batches every \
             {} ms for {seconds} s  (samples {samples})",
            child::EVERY.as_millis()
        ),
        contestants: contestants.collect(),
        samples,
        ratio_to: RatioTo::Variant("mode1"),
    }
}
