//! `uwork-lab bench isolation`: how drains of all bundles disturb a thread that must not be disturbed,
//! in each mode. It is seed 001's test of an isolated CPU.
//!
//! A real-time thread that is alone on a CPU fills its bundle, and then only reads the clock: any
//! other activity on that CPU shows as a gap between readings. Another CPU calls `drain_all` every
//! 10 ms.
//!
//! - `once`: the bundle is filled once, so later drains find it empty
//! - `steady`: the thread adds an item whenever its bundle is empty, so every drain has to reach it
//! - `cache`: the thread allocates and frees an object after each reading, and the other CPU calls
//!   `Cache::flush_all`
//!
//! In `undisturbed` there are no drains: its gaps come from other sources.
//!
//! A switch counts as *caused* if the thread gave up its CPU, or if threads of this program ran
//! before it returned. Switches by other programs and the kernel are counted too, but are not
//! attributed to the library; the table names them.
//!
//! The mode is fixed for a process, so a separate child process takes each sample.

mod child;
mod loner;
mod switches;

use std::process::ExitCode;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::legend::{self, Word};
use super::measured::{ChildArgs, Measured, again};
use super::options::{count_or, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::{Metric, RATE};
use super::{UserError, privilege, uwork_pool};

/// A time, or a count.
const fn metric(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    let is_time = matches!(unit.as_bytes(), b"us");
    Metric { name, unit, title, decimals: if is_time { 1 } else { 0 } }
}

const GAP_MAX: Metric = metric("gap_max_us", "us", "gap max us");
const GAPS: Metric = metric("gaps_over_50us", "gaps", "gaps > 50 us");
const SWITCHES: Metric = metric("switches", "switches", "switches");
/// The switches that this program caused.
const CAUSED: Metric = metric("switches_caused", "switches", "caused");
const VOLUNTARY: Metric = metric("switches_voluntary", "switches", "voluntary");
const INVOLUNTARY: Metric = metric("switches_involuntary", "switches", "involuntary");
const DRAIN_P50: Metric = metric("drain_p50_us", "us", "drain p50 us");
const DRAIN_P99: Metric = metric("drain_p99_us", "us", "p99 us");
const DRAIN_MAX: Metric = metric("drain_max_us", "us", "max us");
const DRAINS: Metric = metric("drains", "calls", "drains");
/// Drains that returned only because the thread had ended.
const STUCK: Metric = metric("drains_stuck", "calls", "stuck");
/// 1 if the thread ran under `SCHED_FIFO`, 0 if that was refused.
const REAL_TIME: Metric = metric("real_time", "flag", "FIFO");
/// All metrics, in table order.
const METRICS: [Metric; 13] = [
    RATE,
    GAP_MAX,
    GAPS,
    SWITCHES,
    CAUSED,
    VOLUNTARY,
    INVOLUNTARY,
    DRAIN_P50,
    DRAIN_P99,
    DRAIN_MAX,
    DRAINS,
    STUCK,
    REAL_TIME,
];

const CASES: [&str; 3] = ["once", "steady", "cache"];
const UNDISTURBED: &str = "undisturbed";
const MODES: [&str; 4] = [UNDISTURBED, "mode0", "mode1", "mode2"];

/// Explanations of the words in the tables.
const WORDS: [Word; 9] = [
    ("gap max us", "the longest time between two readings of the clock, whatever the reason"),
    (
        "switches",
        "how often the thread lost its CPU: it gave the CPU up (voluntary), or was preempted (involuntary)",
    ),
    (
        "caused",
        "switches in which the thread gave its CPU up, or a thread of the same program took it",
    ),
    ("stuck", "drains that returned only because the thread had ended"),
    ("FIFO", "1 if the thread was real-time (SCHED_FIFO), 0 if the system refused that"),
    (UNDISTURBED, "no drains"),
    ("mode0", "a drain reaches the thread's CPU with a worker of that CPU"),
    ("mode1", "a drain reaches the thread's CPU from its own CPU, with an ordinary lock"),
    (
        "mode2",
        "a drain reaches the thread's CPU with membarrier(2), which interrupts that CPU for a microsecond",
    ),
];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Two seconds instead of twenty, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: once (the bundle is filled once), steady (after each drain), cache (a cache
    /// in use)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these modes: undisturbed (no drains), mode0, mode1, mode2
    #[arg(long, value_name = "MODE", num_args = 1.., value_delimiter = ',')]
    mode: Vec<String>,
    /// Duration of each sample in seconds [default: 20; --quick: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// Runs of each mode; the median is reported [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    /// Measure as user 65534 (nobody), which may not have real-time threads; for root
    #[arg(long)]
    unprivileged: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// The task of a child process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    case: String,
    mode: String,
    seconds: usize,
    unprivileged: bool,
}

impl Order {
    fn carry_out(&self) -> Result<Measured, UserError> {
        let Self { case, mode, .. } = self;
        let mut command = again("isolation", self)?;
        if let Some(number) = mode.strip_prefix("mode") {
            command.env("UWORK_PWLOCKS", number);
        }
        Measured::by(command, &format!("{} {mode} ({case})", uwork_pool::RUNNER), &METRICS)
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order()? {
        return child::run(&order).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let modes = names_or_all("--mode", &args.mode, &MODES)?;
    let default = if args.quick { 2 } else { 20 };
    let seconds = count_or("--seconds", &args.seconds, 1..=3_600, default)?;
    let samples = samples_or(&args.samples, 1)?;
    privilege::check(args.unprivileged)?;
    let of = |case: &&'static str| group(case, &modes, samples, seconds, args.unprivileged);
    let groups = cases.iter().map(of).collect();
    let legend = |group: &_| legend::below(group, &WORDS);
    Plan::new("isolation", groups).below(legend).run(&args.output)
}

fn group(
    case: &'static str,
    modes: &[&'static str],
    samples: usize,
    seconds: usize,
    unprivileged: bool,
) -> Group<Measured> {
    let contestants = modes.iter().map(|mode| {
        let order =
            Order { case: case.to_owned(), mode: (*mode).to_owned(), seconds, unprivileged };
        Contestant {
            names: Names { case, runner: uwork_pool::RUNNER, variant: (*mode).to_owned() },
            standing: None,
            measure: Box::new(move |_| order.carry_out()),
        }
    });
    Group {
        title: format!(
            "{case}: a thread alone on its CPU reads the clock (items), another CPU {} every \
             {} ms for {seconds} s  (samples {samples})",
            if case == "cache" { "flushes its cache" } else { "drains all bundles" },
            child::EVERY.as_millis()
        ),
        contestants: contestants.collect(),
        samples,
        ratio_to: RatioTo::Variant("mode1"),
    }
}
