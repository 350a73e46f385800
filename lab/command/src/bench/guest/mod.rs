//! `uwork-lab bench guest`: what the library does to its process, and what a process does to the
//! library, beside what plain threads and other pools do.
//!
//! | case | what is measured |
//! |---|---|
//! | `timers` | a million timers that are due at one moment: the most threads, and the time until all have run |
//!
//! A case is a file of its own. A child process takes each sample, so that none inherits threads.

mod timers;

use std::process::ExitCode;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{ChildArgs, Figures, Measured, again, end_on_panic};
use super::options::{names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::Metric;
use super::{UserError, uwork_pool};
use uwork_rivals::Standing;

/// The cases, each with its runners, what it measures, and one sample of it.
const CASES: [Case; 1] = [timers::CASE];

/// A group of rows.
struct Case {
    name: &'static str,
    about: &'static str,
    runners: &'static [&'static str],
    metrics: &'static [Metric],
    /// In a child process: takes a sample of this runner.
    sample: fn(runner: &str, quick: bool) -> Result<Figures, UserError>,
}

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Small sizes and one sample, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: timers
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
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
    quick: bool,
}

impl Order {
    fn take_sample(&self) -> Result<(), UserError> {
        end_on_panic();
        let unknown = || UserError(format!("--order: there is no case '{}'", self.case));
        let case = CASES.iter().find(|case| case.name == self.case).ok_or_else(unknown)?;
        (case.sample)(&self.runner, self.quick)?.print();
        Ok(())
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order::<Order>()? {
        return order.take_sample().map(|()| ExitCode::SUCCESS);
    }
    let chosen = names_or_all("--case", &args.case, &CASES.map(|case| case.name))?;
    let samples = samples_or(&args.samples, if args.quick { 1 } else { 5 })?;
    let cases = CASES.into_iter().filter(|case| chosen.contains(&case.name));
    let groups = cases.map(|case| Group {
        title: format!("{}: {}", case.name, case.about),
        contestants: case
            .runners
            .iter()
            .map(|runner| contestant(&case, runner, args.quick))
            .collect(),
        samples,
        ratio_to: RatioTo::Nothing,
    });
    Plan::new("guest", groups.collect()).one_sample_suffices().run(&args.output)
}

fn contestant(case: &Case, runner: &'static str, quick: bool) -> Contestant<Measured> {
    let order = Order { case: case.name.to_owned(), runner: runner.to_owned(), quick };
    let (name, metrics) = (format!("{runner} ({})", case.name), case.metrics);
    Contestant {
        names: Names { case: case.name, runner, variant: String::new() },
        standing: (runner != uwork_pool::RUNNER).then_some(Standing::Pool),
        measure: Box::new(move |_| Measured::by(again("guest", &order)?, &name, metrics)),
    }
}
