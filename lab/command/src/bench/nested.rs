//! `uwork-lab bench nested`: tasks that make tasks.
//!
//! - `fib`: a Fibonacci number by nested fork and join. `join` is `uwork::join`; `spawn` queues one
//!   half, computes the other and joins the handle. Items are forks. The caller is no worker; in
//!   rayon it calls `ThreadPool::install`.
//! - `yields`: futures that wake themselves and return. Items are polls. tokio has two variants: the
//!   same future, and its own `yield_now`.

use std::process::ExitCode;

use uwork::Queue;
use uwork_rivals::nested::{self, Fib, Yields, timed, yield_now};
use uwork_rivals::{Sample, Standing};

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::options;
use super::pipeline::{Output, Plan};
use super::uwork_pool::{self, RUNNER};
use crate::UserError;

const CASES: [&str; 2] = ["fib", "yields"];
const FIB: Fib = Fib { n: 32, cutoff: 12 };
const YIELDS: Yields = Yields { futures: 1_000, yields: 1_000 };

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also run rayon (fib) and tokio (yields)
    #[arg(long)]
    rivals: bool,
    /// Only these cases: fib (nested fork and join), yields (futures that yield)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Samples of each runner, interleaved [default: 11]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let cases = options::names_or_all("--case", &args.case, &CASES)?;
    let samples = options::samples_or(&args.samples, 11)?;
    let group = |case: &'static str| {
        let (title, mut contestants) = match case {
            "fib" => fib(),
            _ => yields(),
        };
        contestants.retain(|contestant| args.rivals || contestant.standing.is_none());
        let title = format!("{case}: {title}  (workers {}, samples {samples})", cpus());
        Group { title, contestants, samples, ratio_to: RatioTo::FastestRival }
    };
    Plan::new("nested", cases.into_iter().map(group).collect()).run(&args.output)
}

fn fib() -> (String, Vec<Contestant>) {
    let title = format!("fib({}) by fork and join, cut off at {}", FIB.n, FIB.cutoff);
    let case = |runner, variant, measure| contestant("fib", runner, variant, measure);
    let contestants = vec![
        case(RUNNER, "join", || timed_fib(|| join(FIB.n))),
        case(RUNNER, "spawn", || {
            let queue = uwork_pool::queue("default");
            timed_fib(|| spawn(&queue, FIB.n))
        }),
        case("rayon", "", || nested::rayon(cpus(), FIB)),
    ];
    (title, contestants)
}

fn yields() -> (String, Vec<Contestant>) {
    let title = format!("{} futures that yield {} times each", YIELDS.futures, YIELDS.yields);
    let case = |runner, variant, measure| contestant("yields", runner, variant, measure);
    let contestants = vec![
        case(RUNNER, "", uwork_yields),
        case("tokio", "", || nested::tokio(cpus(), YIELDS, false)),
        case("tokio", "own", || nested::tokio(cpus(), YIELDS, true)),
    ];
    (title, contestants)
}

fn contestant(
    case: &'static str,
    runner: &'static str,
    variant: &'static str,
    measure: fn() -> Sample,
) -> Contestant {
    Contestant {
        names: Names { case, runner, variant: variant.to_owned() },
        standing: (runner != RUNNER).then_some(Standing::Pool),
        measure: Box::new(move |_| Ok(measure())),
    }
}

fn timed_fib(compute: impl FnOnce() -> u64) -> Sample {
    let expected = Fib::alone(FIB.n);
    timed(FIB.forks(), || assert_eq!(compute(), expected))
}

fn join(n: u32) -> u64 {
    if n <= FIB.cutoff {
        return Fib::alone(std::hint::black_box(n));
    }
    let (a, b) = uwork::join(|| join(n - 1), || join(n - 2));
    a + b
}

fn spawn(queue: &Queue, n: u32) -> u64 {
    if n <= FIB.cutoff {
        return Fib::alone(std::hint::black_box(n));
    }
    let theirs = queue.clone();
    let half = queue.spawn(move || spawn(&theirs, n - 2));
    spawn(queue, n - 1) + half.join().expect("the half does not panic")
}

fn uwork_yields() -> Sample {
    let queue = uwork_pool::queue("default");
    timed(YIELDS.polls(), || {
        let task = || async {
            for _ in 0..YIELDS.yields {
                yield_now().await;
            }
        };
        let tasks: Vec<_> = (0..YIELDS.futures).map(|_| queue.spawn_future(task())).collect();
        for task in tasks {
            task.join().expect("a future that yields does not panic");
        }
    })
}
