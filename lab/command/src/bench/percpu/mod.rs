//! `uwork-lab bench percpu`: the cost of per-CPU locks and caches on the caller's own CPU, in each
//! mode, compared with an unprotected free list and with other allocators.
//!
//! | case | threads | |
//! |---|---|---|
//! | `lock` | 1 | a free list in each CPU's part; an object is popped or pushed under `lock_local`
//! |
//! | `alloc` | 1 | 9,000,000 kept allocations of 64 bytes, as in seed 001's kernel module |
//! | `write` | 1 | as `alloc`, and the first word of each object is written: includes the cost of
//! new memory |
//! | `recycled` | 1 | as `write`, with memory that was written and freed before: needs no new
//! memory |
//! | `pair` | 1 | an object is allocated and freed repeatedly |
//! | `threads4` | 4 | each allocates, and frees the objects of the previous thread |
//! | `count`, `count4` | 1, 4 | additions to a counter, whose sum must be exact at the end |
//! | `batch`, `batch4` | 1, 4 | items are collected and passed to a sink in batches of 64; none may
//! be lost |
//!
//! `bare` is the same without any protection, valid for one thread only. `bare locked` has a
//! compare-and-swap and a store around each step. It shows the cost of the locked instruction that
//! every lock needs if any CPU may take it.
//!
//! `mode0+c` uses the C interface with one call for each step, as programs do that link with the
//! library.
//!
//! The mode is fixed for a process, so a separate child process takes each sample. Single-threaded
//! cases stay on one CPU.

mod allocators;
mod batches;
mod child;
mod counters;
mod cycles;
mod lists;
mod threads;

use std::process::ExitCode;

use uwork_rivals::Standing;
use uwork_rivals::alloc::Jemalloc;

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::legend::{self, Word};
use super::measured::{ChildArgs, Measured, again};
use super::options::{names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::{CPU, Metric, RATE};
use super::{UserError, uwork_pool};

const CYCLES: Metric =
    Metric { name: "cycles_per_op", unit: "cycles", title: "cycles", decimals: 2 };
const NANOS: Metric = Metric { name: "ns_per_op", unit: "ns", title: "ns", decimals: 2 };
/// All metrics, in table order.
const METRICS: [Metric; 4] = [RATE, CYCLES, NANOS, CPU];

const CASES: [&str; 10] = [
    "lock", "alloc", "write", "recycled", "pair", "threads4", "count", "count4", "batch", "batch4",
];
/// The variants of uwork; the last one uses the C interface.
const VARIANTS: [&str; 4] = ["mode0", "mode1", "mode2", "mode0+c"];
/// The suffix of a mode with the C interface.
const C: &str = "+c";
const BARE: &str = "bare";
/// The variant of `bare` with the cheapest lock.
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

/// Explanations of the words in the tables.
const WORDS: [Word; 7] = [
    ("cycles", "core cycles; with four threads, of all CPUs together"),
    (
        "mode0",
        "a worker of another CPU accesses that CPU's part; the own part needs no locked instruction",
    ),
    ("mode1", "any CPU's part is accessed directly; the own part needs a locked instruction"),
    (
        "mode2",
        "another CPU's part is accessed with membarrier(2); the own part needs no locked instruction",
    ),
    (C, "through the C interface, one call for each step"),
    (BARE, "without protection, valid for one thread only"),
    (LOCKED, "the same with a compare-and-swap and a store around each step"),
];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Smaller sizes and fewer samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: lock, alloc, write, recycled, pair, threads4, count, count4, batch, batch4
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners: uwork, bare, thread-local, glibc, mimalloc, jemalloc; for the counters
    /// also atomic; for the batches also mutex, segqueue, channel
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Runs of each runner; the median is reported [default: 5; --quick: 3]
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

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order()? {
        return child::run(&order).map(|()| ExitCode::SUCCESS);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let runners = names_or_all("--runner", &args.runner, &RUNNERS)?;
    let samples = samples_or(&args.samples, if args.quick { 3 } else { 5 })?;
    let groups = cases.iter().map(|case| group(case, &runners, samples, args.quick)).collect();
    let legend = |group: &_| legend::below(group, &WORDS);
    Plan::new("percpu", groups).below(legend).run(&args.output)
}

/// The variants of a runner in a case.
fn variants(case: &str, runner: &str) -> &'static [&'static str] {
    const ONE: &[&str] = &[""];
    let is_alone = !case.ends_with('4');
    match (runner, case.trim_end_matches('4')) {
        (uwork_pool::RUNNER, _) => &VARIANTS,
        // Valid for one thread only.
        (BARE, "count" | "batch") if is_alone => ONE,
        (BARE, _) if is_alone => &["", LOCKED],
        (THREAD_LOCAL, "lock" | "threads") => &[],
        ("jemalloc", _) if Jemalloc::get().is_none() => &[],
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
        // A sum over all threads' words is possible here; objects and items of other threads are
        // inaccessible.
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
                measure: Box::new(move |_| order.carry_out()),
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
        "lock" => "an object popped from or pushed onto this CPU's free list, under its lock",
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
