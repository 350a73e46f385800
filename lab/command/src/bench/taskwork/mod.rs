//! `uwork-lab bench taskwork`: threads that post work to each other while they compute, or while they
//! block in a given call.
//!
//! Each sample has three parts. For the rate, tokens circulate among 16 threads. For the latency,
//! one token alternates between two threads, on one CPU and on two. The latency is the time from a
//! post until a sleeping thread runs it; in `computing`, the thread does not sleep but checks every
//! microsecond, and yields its CPU in between.
//!
//! | case | the threads wait in |
//! |---|---|
//! | `computing` | nothing: they compute, and check in between |
//! | `futex` | `task::park` |
//! | `epoll` | `epoll_wait` |
//! | `ring` | the wait of a reactor |
//! | `read` | a read of a pipe that is never written |
//! | `combiner` | (not a wait) eight threads send on one socket, through a `Combiner` or under a
//! mutex |
//!
//! `futex` is compared with tokio, `epoll` with an eventfd and a locked list, unless `--no-rivals`
//! is given. The runner `bare` is a hand-written futex: the cost of a wake on this machine.
//!
//! The variant `light` ends the declared wait, `signal` always sends a signal. In `read` both send
//! a signal, because nothing else ends the read.

mod combiner;
mod figures;
mod ways;

use std::process::ExitCode;

use uwork::ring::Reactor;
use uwork::task::Delivery;
use uwork_rivals::Standing;
use uwork_rivals::posts::{Bare, Eventfd, Tokio, Way};

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::Measured;
use super::options::{count_or, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::warning::Warning;
use super::{UserError, uwork_pool};
use figures::Sizes;
use ways::{TaskWay, Wait};

const COMBINER: &str = "combiner";
const CASES: [&str; 6] = ["computing", "futex", "epoll", "ring", "read", COMBINER];
const VARIANTS: [(&str, Delivery); 2] = [("light", Delivery::Light), ("signal", Delivery::Signal)];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Leave out the other ways to post: an eventfd, tokio
    #[arg(long)]
    no_rivals: bool,
    /// Run the other ways to post, which is the default
    #[arg(long, hide = true, conflicts_with = "no_rivals")]
    #[allow(dead_code, reason = "other measurements have it, where it is not the default")]
    rivals: bool,
    /// Fewer posts and samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: computing, futex, epoll, ring, read (the call that the threads wait in),
    /// combiner
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Number of threads that post to each other
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<String>,
    /// Runs of each runner; the median is reported [default: 5; --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let mut cases = names_or_all("--case", &args.case, &CASES)?;
    let mut warnings = Vec::new();
    if cases.contains(&"ring")
        && let Err(error) = Reactor::builder().build()
    {
        cases.retain(|&case| case != "ring");
        warnings.push(Warning::NoRing(error.to_string()));
    }
    // Two threads would only pass each token back and forth.
    let threads = count_or("--threads", &args.threads, 3..=1024, 16)?;
    let samples = samples_or(&args.samples, if args.quick { 1 } else { 5 })?;
    let sizes = Sizes::of(args.quick, threads);
    let groups = cases.into_iter().map(|case| {
        let contestants = match case {
            COMBINER => combiner::contestants(args.quick),
            case => posters(case, sizes, !args.no_rivals),
        };
        let yardstick = if case == COMBINER { "mutex" } else { "signal" };
        let title = match case {
            COMBINER => "taskwork combiner: 8 threads send on one socket".to_owned(),
            case => format!("taskwork {case}: {threads} threads post to each other"),
        };
        Group { title, contestants, samples, ratio_to: RatioTo::Variant(yardstick) }
    });
    let plan = Plan::new("taskwork", groups.collect()).warnings(warnings);
    plan.below(figures::legend).run(&args.output)
}

/// The contestants of a case.
fn posters(case: &'static str, sizes: Sizes, rivals: bool) -> Vec<Contestant<Measured>> {
    let wait = match case {
        "computing" => Wait::Computing,
        "futex" => Wait::Futex,
        "epoll" => Wait::Epoll,
        "ring" => Wait::Ring,
        _ => Wait::Read,
    };
    let own = VARIANTS.map(|(variant, delivery)| {
        let names = Names { case, runner: uwork_pool::RUNNER, variant: variant.to_owned() };
        poster(names, None, sizes, move |threads| TaskWay::new(threads, wait, delivery))
    });
    let mut all = Vec::from(own);
    let rival = |runner| Names { case, runner, variant: String::new() };
    if case == "futex" || case == "ring" {
        // Always included, because it is the reference for all latencies: the cost of a wake on
        // this machine.
        all.push(poster(rival("bare"), Some(Standing::Shape), sizes, Bare::new));
    }
    if rivals && case == "futex" {
        all.push(poster(rival("tokio"), Some(Standing::Pool), sizes, Tokio::new));
    }
    if rivals && case == "epoll" {
        all.push(poster(rival("eventfd"), Some(Standing::Pool), sizes, Eventfd::new));
    }
    all
}

fn poster<W: Way>(
    names: Names,
    standing: Option<Standing>,
    sizes: Sizes,
    make: impl Fn(usize) -> W + 'static,
) -> Contestant<Measured> {
    Contestant { names, standing, measure: Box::new(move |_| Ok(sizes.measure(&make))) }
}
