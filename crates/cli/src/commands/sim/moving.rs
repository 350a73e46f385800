//! `uwork sim move`: items whose submitters keep their CPUs busy, beside a perfect queue.

use std::process::ExitCode;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_sim::costs::open::{OpenLoop, OpenOutcome, run as play, wake_ns};
use uwork_sim::costs::{Costs, TYPICAL};
use uwork_sim::plan::{Mix, percentile};
use uwork_sim::setup::US;

use super::machines::{of_size, pods, sizes};
use super::parallel::in_order;
use super::{UserError, costs};
use crate::commands::progress::Progress;
use crate::commands::{print, written};

/// The ratio of sojourn times to those of the perfect queue that passes.
const PASSES: f64 = 1.5;
/// The percentiles that are compared.
const PERCENTILES: [usize; 3] = [50, 90, 99];
/// The rate, in percent of what the producers can submit, and of what the other CPUs can run.
const RATE_PERCENT: u64 = 60;
/// Items that each producer submits without a pause, for what it can submit.
const PROBES: usize = 500;

/// The items, by the time that they compute.
const MIXES: [(&str, Mix); 4] = [
    ("1us", Mix::alike(US)),
    ("20us", Mix::alike(20 * US)),
    ("100us", Mix::UNIFORM),
    ("bimodal", Mix::BIMODAL),
];

#[derive(clap::Args)]
pub(super) struct Args {
    /// What instructions cost: the path of a file of `uwork sim calibrate`, or `typical`
    #[arg(long, value_name = "COSTS", default_value = TYPICAL)]
    costs: String,
    /// Only machines with at least this many CPUs.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=1024))]
    from: u16,
    /// Only machines with at most this many CPUs.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(2..=1024))]
    cpus: u16,
    /// The scope of the queue.
    #[arg(
        long,
        value_name = "SCOPE",
        value_parser = crate::commands::scope::parser(),
        default_value = "default"
    )]
    scope: AffinityScopeChoice,
    /// Items of a row. The first fifth of them do not count: threads start.
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    items: u32,
    /// The seed of the arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Which CPUs have producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loaded {
    /// One CPU.
    One,
    /// All CPUs of every other pod; half of the CPUs, if there is a single pod.
    Half,
}

impl Loaded {
    const ALL: [Loaded; 2] = [Loaded::One, Loaded::Half];

    fn name(self) -> &'static str {
        match self {
            Loaded::One => "one",
            Loaded::Half => "half",
        }
    }

    fn cpus(self, pods: &[CpuSet]) -> Vec<u32> {
        match (self, pods) {
            (Loaded::One, _) => pods.iter().filter_map(CpuSet::first).take(1).collect(),
            (Loaded::Half, [only]) => only.iter().take(only.len() / 2).collect(),
            (Loaded::Half, _) => pods.iter().step_by(2).flat_map(CpuSet::iter).collect(),
        }
    }
}

/// A row of the table.
struct Case {
    loaded: Loaded,
    cpus: usize,
    name: &'static str,
    mix: Mix,
}

fn measure(args: &Args, figures: &Costs, case: &Case) -> Result<OpenOutcome, UserError> {
    let (machine, mix) = (of_size(case.cpus)?, case.mix);
    let producers = case.loaded.cpus(&pods(&machine, args.scope));
    let (count, servers) = (producers.len(), machine.online().len() - producers.len());
    let (scope, seed, items) = (args.scope, args.seed, PROBES * count);
    let probe = OpenLoop { producers, mix, gap_ns: 0, items, scope, seed };
    let probed = play(&machine, figures, &probe).map_err(UserError)?;
    // Of each producer.
    let submitting_ns = probed.elapsed_ns * count as u64 / probed.sojourns_ns.len() as u64;
    let running_ns = mix.mean_ns() * count as u64 / servers as u64;
    let gap_ns = submitting_ns.max(running_ns) * 100 / RATE_PERCENT;
    let load = OpenLoop { gap_ns, items: args.items as usize, ..probe };
    play(&machine, figures, &load).map_err(UserError)
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let figures = costs::read(&args.costs)?;
    let sizes = sizes(args.from, args.cpus);
    let mut titles = format!(
        "simulated: producers compute between their submissions, so every item must move; {} items, scope \
         {}, {RATE_PERCENT} % of what the producers can submit and the other CPUs can run\n\
         costs: {}; x: over a perfect queue on the other CPUs, with a wake of {:.1} us where one idles\n\
         {:<8} {:>5} {:<8} {:>9} {:>7} {:>5}",
        args.items,
        args.scope,
        figures.source,
        wake_ns(&figures) as f64 / 1e3,
        "load",
        "CPUs",
        "items",
        "items/s",
        "enq p50",
        "enq %"
    );
    for percent in PERCENTILES {
        titles += &format!(" {:>8} {:>6}", format!("p{percent} us"), "x");
    }
    titles += &format!(" {:>10} {:>11}\n", "wakes/item", "futile/item");
    if !written(&titles)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut cases = Vec::new();
    for loaded in Loaded::ALL {
        for &cpus in &sizes {
            cases.extend(MIXES.map(|(name, mix)| Case { loaded, cpus, name, mix }));
        }
    }
    let progress = Progress::new(Some(cases.len()));
    let measure = |case: &Case| {
        progress.begin(format!("{}, {} CPUs, {}", case.loaded.name(), case.cpus, case.name));
        let row = row(case, &measure(args, &figures, case)?);
        progress.done();
        Ok(row)
    };
    let mut all_pass = true;
    let show = |(row, passes): (String, bool)| {
        all_pass &= passes;
        progress.suspend(|| written(&row))
    };
    if !in_order(&cases, measure, show)? {
        return Ok(ExitCode::SUCCESS);
    }
    drop(progress);
    print(&format!("ok: at most {PASSES} x the sojourn times of the perfect queue\n"))?;
    Ok(if all_pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The line of an outcome, and whether it passes.
fn row(case: &Case, outcome: &OpenOutcome) -> (String, bool) {
    let items = outcome.sojourns_ns.len().max(1) as f64;
    let rate = items * 1e9 / outcome.elapsed_ns.max(1) as f64;
    let mut row = format!(
        "{:<8} {:>5} {:<8} {rate:>9.0} {:>7} {:>5.0}",
        case.loaded.name(),
        case.cpus,
        case.name,
        percentile(&outcome.submissions_ns, 50),
        outcome.submitting * 100.0
    );
    let mut passes = true;
    for percent in PERCENTILES {
        let ns = |times: &[u64]| percentile(times, percent) as f64;
        let (ours, best) = (ns(&outcome.sojourns_ns), ns(&outcome.perfect_ns));
        let ratio = ours / best.max(1.0);
        passes &= ratio <= PASSES;
        row += &format!(" {:>8.1} {ratio:>6.2}", ours / 1e3);
    }
    let (wakes, futile) = (outcome.wakes as f64 / items, outcome.futile as f64 / items);
    row += &format!(" {wakes:>10.2} {futile:>11.2} {}\n", if passes { "ok" } else { "above" });
    (row, passes)
}
