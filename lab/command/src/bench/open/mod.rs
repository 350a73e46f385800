//! `uwork-lab bench open`: an open loop. Items arrive by a plan, whatever the pool does, and the
//! figure is the time from the planned arrival to the end of the item.
//!
//! A benchmark whose producers wait submits less to a slow pool, and so hides its delays. Here a
//! late submission adds to the latency of its item. All arrivals are planned before the first one,
//! from a fixed seed, so all runners get the same: the plan of a sample depends on its number only.
//!
//! | case | items | arrivals |
//! |---|---|---|
//! | `bimodal-30`, `-60`, `-80` | 95 % compute for 20 us, 5 % for 500 us | Poisson, a load of that share |
//! | `heavy-60` | 95 % compute for 20 us, 5 % for 3 ms | Poisson, 60 % |
//! | `uniform-60` | compute for 100 us | Poisson, 60 % |
//! | `sleep-40` | 95 % compute for 20 us, 5 % sleep for 1 ms, undeclared | Poisson, 40 % |
//! | `burst` | compute for 20 us | 100 at once every 10 ms |
//! | `mixed` | as `bimodal-50`; on a second, latency-critical queue 20 us | Poisson, 50 % and 10 % |
//!
//! A load is the share of the time of as many workers as CPUs that the items occupy. A sleep
//! counts, since it occupies a worker of a pool that does not detect it: with two CPUs, `sleep-40`
//! has 11,594 arrivals a second, whose computing takes 11 % of the CPUs.
//!
//! The runner `limit` is computed: the same items in a perfect single queue. In `limit+gen` the
//! generators take their CPU time from the servers of that queue, as measured without a pool and
//! without their spins, which shows what no pool can avoid. A child process takes each sample of the others, so that no
//! sample inherits threads or learned values.

mod cases;
mod child;
pub(super) mod clock;
mod figures;
mod generator;
mod item;
mod limit;
mod plan;
mod pools;
mod spin;
mod targets;

use std::process::ExitCode;

use uwork_rivals::{Standing, open};

use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::measured::{ChildArgs, Measured, again};
use super::options::{count_or, names, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::{UserError, uwork_pool};
use figures::{LIMIT, LIMIT_GENERATED, Sojourns};

/// The seed of the first sample.
const SEED: u64 = 0x5eed;
const GENERATORS: [&str; 2] = ["1", PER_CPU];
const PER_CPU: &str = "cpus";
/// All items exist before the first arrival, 128 bytes each.
const ARRIVALS_MAX: f64 = 20e6;

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also run the other pools
    #[arg(long)]
    rivals: bool,
    /// Runs of 0.2 s and one sample, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: bimodal-30, bimodal-60, bimodal-80, heavy-60, uniform-60, sleep-40, burst,
    /// mixed
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Only these variants of uwork: the scopes default, system, numa, cache and cpu; spawn, execute: closures
    /// on the default scope, with and without a handle
    #[arg(long, value_name = "VARIANT", num_args = 1.., value_delimiter = ',')]
    variant: Vec<String>,
    /// Threads that submit the items: 1, or `cpus`: one on each CPU
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    generators: String,
    /// Duration of each sample in seconds [default: 3; --quick: 0.2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// Runs of each runner; the median is reported [default: 5; --quick: 1]
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
    generator_per_cpu: bool,
    /// The duration, without the warm-up.
    millis: u64,
    seed: u64,
}

impl Order {
    fn carry_out(&self) -> Result<Sojourns, UserError> {
        if self.runner == LIMIT {
            return Ok(child::limit(self));
        }
        let Self { case, runner, variant, .. } = self;
        let space = if variant.is_empty() { "" } else { " " };
        let name = format!("{runner}{space}{variant} ({case})");
        Measured::by(again("open", self)?, &name, &figures::METRICS).map(Sojourns)
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order::<Order>()? {
        let run = if order.runner == LIMIT_GENERATED { child::run_generated } else { child::run };
        return run(&order).map(|()| ExitCode::SUCCESS);
    }
    let selection = Selection::check(&args)?;
    let groups = selection.cases.iter().map(|case| selection.group(case)).collect();
    Plan::new("open", groups).below(figures::below).run(&args.output)
}

/// The validated selection of cases and runners.
struct Selection {
    cases: Vec<&'static str>,
    /// Runner and variant.
    runners: Vec<(&'static str, &'static str)>,
    generator_per_cpu: bool,
    millis: u64,
    samples: usize,
}

impl Selection {
    fn check(args: &Args) -> Result<Self, UserError> {
        let mut known = vec![uwork_pool::RUNNER];
        known.extend(open::RUNNERS);
        let chosen = names("--runner", &args.runner, &known)?;
        let variants = names_or_all("--variant", &args.variant, &pools::VARIANTS)?;
        let own = args.runner.is_empty() || chosen.contains(&uwork_pool::RUNNER);
        let wanted = |runner: &&'static str| {
            if args.runner.is_empty() { args.rivals } else { chosen.contains(runner) }
        };
        let mut runners = Vec::new();
        if own {
            runners.extend(variants.iter().map(|&variant| (uwork_pool::RUNNER, variant)));
        }
        runners.extend(open::RUNNERS.into_iter().filter(wanted).map(|rival| (rival, "")));
        let generators =
            names("--generators", std::slice::from_ref(&args.generators), &GENERATORS)?;
        let millis = match &args.seconds {
            None if args.quick => 200,
            given => 1_000 * count_or("--seconds", given, 1..=3_600, 3)? as u64,
        };
        let selection = Self {
            cases: names_or_all("--case", &args.case, &cases::ALL)?,
            runners,
            generator_per_cpu: generators == [PER_CPU],
            millis,
            samples: samples_or(&args.samples, if args.quick { 1 } else { 5 })?,
        };
        selection.check_size()?;
        Ok(selection)
    }

    fn check_size(&self) -> Result<(), UserError> {
        let seconds = self.millis as f64 / 1e3;
        for case in &self.cases {
            let streams = cases::streams(case);
            let rate: f64 = streams.iter().map(|stream| stream.per_second(cpus())).sum();
            if rate * seconds > ARRIVALS_MAX {
                return Err(UserError(format!(
                    "--seconds {seconds} makes {:.0} arrivals in {case}: at most {ARRIVALS_MAX} \
                     are allowed, which is {:.0} s",
                    rate * seconds,
                    (ARRIVALS_MAX / rate).floor()
                )));
            }
        }
        Ok(())
    }

    fn group(&self, case: &'static str) -> Group<Sojourns> {
        let own = |runner: &str| runner == uwork_pool::RUNNER;
        let contestants = self.runners.iter().map(|&(runner, variant)| {
            let standing = (!own(runner)).then_some(Standing::Pool);
            self.contestant(case, (runner, variant), standing)
        });
        let limits = [LIMIT, LIMIT_GENERATED]
            .map(|runner| self.contestant(case, (runner, ""), Some(Standing::Limit)));
        Group {
            title: self.title(case),
            contestants: contestants.chain(limits).collect(),
            samples: self.samples,
            ratio_to: RatioTo::FastestRival,
        }
    }

    fn contestant(
        &self,
        case: &'static str,
        (runner, variant): (&'static str, &'static str),
        standing: Option<Standing>,
    ) -> Contestant<Sojourns> {
        let order = Order {
            case: case.to_owned(),
            runner: runner.to_owned(),
            variant: variant.to_owned(),
            generator_per_cpu: self.generator_per_cpu,
            millis: self.millis,
            seed: SEED,
        };
        Contestant {
            names: Names { case, runner, variant: variant.to_owned() },
            standing,
            measure: Box::new(move |number| {
                Order { seed: SEED + number as u64, ..order.clone() }.carry_out()
            }),
        }
    }

    fn title(&self, case: &str) -> String {
        let generators = if self.generator_per_cpu { "one on each CPU" } else { "1" };
        format!(
            "{case}: {}  (CPUs {}, generators {generators}, {} s, samples {})",
            cases::about(case, cpus()),
            cpus(),
            self.millis as f64 / 1e3,
            self.samples
        )
    }
}
