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

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use uwork::topology::Machine;

use super::UserError;
use super::measured::order;
use super::options::{count_or, names_or_all};
use super::record::{Record, Target};
use super::summary::Metric;
use super::uwork_pool::RUNNER;
use super::warning::{MachineTime, Warning, other_load};
use lateness::Tries;
use plan::{CASES, CPUS, Order, TIERS};

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// 10 tries of each variant, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: timer-sleep, timer-compute, ready-after-wait
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these tiers: declared, events, sampling
    #[arg(long, value_name = "TIER", num_args = 1.., value_delimiter = ',')]
    tier: Vec<String>,
    /// Only with these numbers of CPUs: 1, 2
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',')]
    cpus: Vec<String>,
    /// Tries of each variant [default: 1000; --quick: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    /// Also write the figures to FILE, as a JSON array of flat records
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure one variant and print its tries; for internal use
    #[arg(long, hide = true, value_name = "JSON")]
    order: Option<String>,
}

/// The figures of a variant.
struct Row {
    order: Order,
    tries: Tries,
}

impl Row {
    fn value(&self, wanted: Metric) -> f64 {
        let mut metrics = self.tries.metrics().into_iter();
        metrics.find(|(metric, _)| metric.name == wanted.name).map_or(f64::NAN, |(_, value)| value)
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(text) = &args.order {
        return child::run(&order(text)?).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let tiers = names_or_all("--tier", &args.tier, &TIERS)?;
    let samples = count_or(
        "--samples",
        &args.samples,
        1..=100_000,
        if args.quick { 10 } else { plan::SAMPLES },
    )?;
    let cpus = names_or_all("--cpus", &args.cpus, &CPUS.map(|(name, _)| name))?;
    let cpus = CPUS.into_iter().filter(|(name, _)| cpus.contains(name)).map(|(_, count)| count);
    let allowed = Machine::read().map_err(|error| UserError(error.to_string()))?.allowed.len();
    let (cpus, missing): (Vec<_>, Vec<_>) = cpus.partition(|&count| count <= allowed);
    if cpus.is_empty() {
        return Err(UserError(format!("--cpus: the process may use {allowed} CPU(s)")));
    }
    let json = args.json.as_deref().map(Target::check).transpose()?;

    let (before, start) = (MachineTime::now(), Instant::now());
    let mut rows = Vec::new();
    for case in cases {
        rows.extend(measure(case, plan::orders(case, &tiers, &cpus, samples))?);
    }
    warn(&rows, &missing, &before, start);
    let variants: Vec<String> = rows.iter().map(|row| row.order.variant()).collect();
    let records: Vec<Record<'_>> = rows.iter().zip(&variants).flat_map(records).collect();
    json.map_or(Ok(()), |target| target.write(&records)).map(|()| ExitCode::SUCCESS)
}

/// Measures the variants of a case, and prints each row of its table when it is known.
fn measure(case: &'static str, orders: Vec<Order>) -> Result<Vec<Row>, UserError> {
    print!("{}", report::head(case));
    let mut rows = Vec::with_capacity(orders.len());
    for order in orders {
        let tries = order.carry_out()?;
        let row = Row { order, tries };
        print!("{}", report::line(&row));
        rows.push(row);
    }
    print!("{}", report::foot(&rows));
    Ok(rows)
}

fn records<'a>((row, variant): (&Row, &'a String)) -> Vec<Record<'a>> {
    let case = row.order.case_name();
    let metrics = row.tries.metrics().into_iter();
    metrics
        .map(|(metric, value)| {
            Record::single("progress", case, RUNNER, variant, (metric.name, metric.unit), value)
        })
        .collect()
}

fn warn(rows: &[Row], missing: &[usize], before: &MachineTime, start: Instant) {
    let mut warnings = Vec::new();
    if cfg!(debug_assertions) {
        warnings.push(Warning::DebugBuild);
    }
    warnings.extend(other_load(before, start.elapsed()));
    let mut seen = BTreeSet::new();
    for (row, line) in rows.iter().flat_map(|row| row.tries.said.iter().map(move |l| (row, l))) {
        if seen.insert(line) {
            warnings.push(Warning::Said { who: row.order.spoken(), line: line.clone() });
        }
    }
    for count in missing {
        eprintln!("warning: the variants on {count} CPUs are left out: the process may use fewer");
    }
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}
