//! `uwork-lab bench guest`: what the library does to its process, and what a process does to the
//! library, beside what plain threads and other pools do.
//!
//! | case | what is measured |
//! |---|---|
//! | `timers` | a million timers that are due at one moment: the most threads, and the time until all have run |
//! | `beside-2`, `beside-6` | the end, `execve`, `SIGSTOP` and `setresuid` of a process, beside so many busy ones |
//! | `sleep-20us` to `sleep-10000us` | items that sleep undeclared, 16 at a time |
//!
//! A case is a file of its own. A child process takes each sample, so that none inherits threads.

mod process;
mod sleeps;
mod timers;

use std::process::ExitCode;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{ChildArgs, Figures, Measured, again, end_on_panic};
use super::options::{names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::Metric;
use super::{UserError, uwork_pool};
use uwork_rivals::{Standing, long_items};

/// The cases, each with its runners, what it measures, and one sample of it.
fn cases() -> impl Iterator<Item = Case> {
    [timers::CASE].into_iter().chain(process::CASES).chain(sleeps::CASES)
}

/// A group of rows.
struct Case {
    name: &'static str,
    about: &'static str,
    runners: &'static [&'static str],
    metrics: &'static [Metric],
    /// In a child process: takes a sample of this runner.
    sample: fn(&Order) -> Result<Figures, UserError>,
}

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Small sizes and one sample, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: timers, beside-2, beside-6, sleep-20us to sleep-10000us
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
    /// What the process does for that sample; empty: it takes the sample.
    role: String,
}

impl Order {
    fn take_sample(&self) -> Result<(), UserError> {
        end_on_panic();
        let unknown = || UserError(format!("--order: there is no case '{}'", self.case));
        let case = cases().find(|case| case.name == self.case).ok_or_else(unknown)?;
        (case.sample)(self)?.print();
        Ok(())
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order::<Order>()? {
        return order.take_sample().map(|()| ExitCode::SUCCESS);
    }
    let chosen =
        names_or_all("--case", &args.case, &cases().map(|case| case.name).collect::<Vec<_>>())?;
    let samples = samples_or(&args.samples, if args.quick { 1 } else { 5 })?;
    let cases = cases().filter(|case| chosen.contains(&case.name));
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
    let order =
        Order { case: case.name.to_owned(), runner: runner.to_owned(), quick, role: String::new() };
    let (name, metrics) = (format!("{runner} ({})", case.name), case.metrics);
    Contestant {
        names: Names { case: case.name, runner, variant: String::new() },
        standing: (runner != uwork_pool::RUNNER).then_some(Standing::Pool),
        measure: Box::new(move |_| Measured::by(again("guest", &order)?, &name, metrics)),
    }
}

/// Runs items 0 to `count` by this runner, at most `at_once` at a time. Returns before they have run.
fn start(runner: &str, at_once: usize, count: usize, run: fn(usize)) -> Result<(), UserError> {
    if runner == uwork_pool::RUNNER {
        let queue = uwork::Queue::builder("guest").max_active(at_once as u32).build();
        let queue = queue.map_err(|error| UserError(error.to_string()))?;
        let items = (0..count).map(|number| move || run(number));
        queue.execute_all(items).map_err(|refused| UserError(refused.to_string()))?;
        // Its drop would wait for the items.
        std::mem::forget(queue);
        return Ok(());
    }
    match long_items::start(runner, at_once, count, run) {
        Ok(true) => Ok(()),
        Ok(false) => Err(UserError(format!("--order: there is no runner '{runner}'"))),
        Err(error) => Err(UserError(format!("{runner}: {error}"))),
    }
}
