//! `uwork bench percpu`: what per-CPU locks and caches cost on one's own CPU, mode by mode, beside a bare free list
//! and other allocators.
//!
//! | case | threads | |
//! |---|---|---|
//! | `lock` | 1 | a free list in each CPU's part; one object is taken or put under `lock_local` |
//! | `alloc` | 1 | 9,000,000 allocations of 64 bytes that are kept, as in seed 001's kernel module |
//! | `write` | 1 | the same, and the first word of each object is written: fresh memory is paid for |
//! | `recycled` | 1 | the same, with memory that was written and freed before: none comes from the system |
//! | `pair` | 1 | an object is allocated and freed, over and over |
//! | `threads4` | 4 | each allocates, and frees what the next one has allocated |
//! | `count`, `count4` | 1, 4 | a counter is added to, which must have the exact sum at the end |
//! | `batch`, `batch4` | 1, 4 | items are collected and go to a sink by 64, where all of them must be at the end |
//!
//! `bare` is the same without any protection, right for one thread; `bare locked` has a compare-and-swap and a store
//! around each step: what the locked instruction costs here that no lock can do without which any CPU takes.
//!
//! `mode0+c` goes through the C interface, with a call for each step, as programs that are linked with the library do.
//!
//! The mode is chosen once for a process, so each sample is taken by a child of its own. The single
//! threads stay on one CPU.

mod allocators;
mod batches;
mod child;
mod counters;
mod cycles;
mod lists;
mod threads;

use std::process::ExitCode;

use uwork_rivals::Standing;

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::legend::Word;
use super::measured::{ChildArgs, Measured, again};
use super::options::{names_or_all, samples_or};
use super::summary::{CPU, Metric, RATE};
use super::{UserError, uwork_pool};

const CYCLES: Metric =
    Metric { name: "cycles_per_op", unit: "cycles", title: "cycles", decimals: 2 };
const NANOS: Metric = Metric { name: "ns_per_op", unit: "ns", title: "ns", decimals: 2 };
/// In the order of the table.
const METRICS: [Metric; 4] = [RATE, CYCLES, NANOS, CPU];

const CASES: [&str; 10] = [
    "lock", "alloc", "write", "recycled", "pair", "threads4", "count", "count4", "batch", "batch4",
];
/// uwork's, the last one through the C interface.
const VARIANTS: [&str; 4] = ["mode0", "mode1", "mode2", "mode0+c"];
/// Behind a mode: through the C interface.
const C: &str = "+c";
const BARE: &str = "bare";
/// Its variant with the least lock.
const LOCKED: &str = "locked";
const THREAD_LOCAL: &str = "thread-local";
const RUNNERS: [&str; 10] = [
    uwork_pool::RUNNER,
    BARE,
    THREAD_LOCAL,
    "glibc",
    "mimalloc",
    "jemalloc",
    "atomic",
    "mutex",
    "segqueue",
    "channel",
];

/// What the tables do not say by themselves.
const WORDS: [Word; 7] = [
    ("cycles", "of the core, by its time stamps; where four threads work, of all CPUs together"),
    (
        "mode0",
        "another CPU's part is reached by a worker of that CPU; one's own without a locked instruction",
    ),
    (
        "mode1",
        "another CPU's part is reached from where one is; one's own takes a locked instruction",
    ),
    (
        "mode2",
        "another CPU's part is reached by membarrier(2); one's own without a locked instruction",
    ),
    (C, "through the C interface, with a call for each step"),
    (BARE, "without protection, right for one thread"),
    (LOCKED, "the same with a compare-and-swap and a store around each step"),
];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Smaller sizes and fewer samples, for a look
    #[arg(long)]
    quick: bool,
    /// Only these cases: lock, alloc, write, recycled, pair, threads4, count, count4, batch, batch4
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners: uwork, bare, thread-local, glibc, mimalloc, jemalloc; of the counters atomic; of the batches
    /// mutex, segqueue, channel
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Runs of each runner, of which the median counts [default: 5; --quick: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    rest: ChildArgs,
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
    let groups = || {
        let cases = names_or_all("--case", &args.case, &CASES)?;
        let runners = names_or_all("--runner", &args.runner, &RUNNERS)?;
        let samples = samples_or(&args.samples, if args.quick { 3 } else { 5 })?;
        Ok(cases.iter().map(|case| group(case, &runners, samples, args.quick)).collect())
    };
    args.rest.run("percpu", child::run, groups, &WORDS)
}

/// What a runner takes part in a case with.
fn variants(case: &str, runner: &str) -> &'static [&'static str] {
    const ONE: &[&str] = &[""];
    let is_alone = !case.ends_with('4');
    match (runner, case.trim_end_matches('4')) {
        (uwork_pool::RUNNER, _) => &VARIANTS,
        // Right for one thread only.
        (BARE, "count" | "batch") if is_alone => ONE,
        (BARE, _) if is_alone => &["", LOCKED],
        (THREAD_LOCAL, "lock" | "threads") => &[],
        (THREAD_LOCAL, _)
        | (
            "glibc" | "mimalloc" | "jemalloc",
            "alloc" | "write" | "recycled" | "pair" | "threads",
        )
        | ("atomic", "count")
        | ("mutex" | "segqueue" | "channel", "batch") => ONE,
        _ => &[],
    }
}

fn standing(case: &str, runner: &str) -> Option<Standing> {
    match (runner, case) {
        (uwork_pool::RUNNER, _) => None,
        // All of its words can be added up, where others' objects and items are out of reach.
        (THREAD_LOCAL, "count" | "count4") => Some(Standing::Pool),
        (BARE | THREAD_LOCAL, _) => Some(Standing::Shape),
        _ => Some(Standing::Pool),
    }
}

fn group(
    case: &'static str,
    runners: &[&'static str],
    samples: usize,
    quick: bool,
) -> Group<Measured> {
    let mut contestants = Vec::new();
    for &runner in runners {
        contestants.extend(variants(case, runner).iter().map(|variant| {
            let order = Order {
                case: case.to_owned(),
                runner: runner.to_owned(),
                variant: (*variant).to_owned(),
                quick,
            };
            Contestant {
                names: Names { case, runner, variant: (*variant).to_owned() },
                standing: standing(case, runner),
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
        "lock" => "an object off or on the free list of this CPU, under its lock",
        "alloc" => &format!("{kept} allocations of 64 bytes, kept"),
        "write" => &format!("{kept} allocations of 64 bytes, kept and written to"),
        "recycled" => {
            &format!("{kept} allocations of 64 bytes that were freed before, kept and written to")
        }
        "pair" => "an allocation of 64 bytes and its release",
        "threads4" => "four threads, each of which frees what another has allocated",
        "count" => "an addition to a counter",
        "count4" => "four threads that add to one counter",
        "batch" => "an item of 8 bytes, which goes to a sink with 63 others",
        _ => "four threads that collect items for one sink",
    };
    format!("{case}: {what}  (CPUs {}, samples {samples})", cpus())
}
