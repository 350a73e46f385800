//! `uwork-lab bench scope`: submitters that share one last-level cache.
//!
//! With the scope `cache`, all of them share one pod. `default` detects that there is a single pod and
//! falls back to a finer scope. The rivals are the two shapes of the kernel's queue and the
//! limit, each with one pool and with one pool per CPU.

use std::process::ExitCode;

use uwork_rivals::catalogue;

use super::contestant::{Contestant, Group, RatioTo};
use super::options::{self, OptionArgs, Options};
use super::pipeline::Plan;
use super::workqueue::{load_of, title};
use super::{UserError, uwork_pool};

/// The number of clients in the report that led to the fallback.
const SUBMITTERS: usize = 12;
const CASES: [&str; 2] = ["batch", "flood"];
const VARIANTS: [&str; 2] = ["cache", "default"];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also run the shape of the kernel's queue and the limit, with one pool and with one per CPU
    #[arg(long)]
    rivals: bool,
    /// Only these cases: batch (100 outstanding), flood (all at once)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    #[command(flatten)]
    options: OptionArgs,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let cases = options::names_or_all("--case", &args.case, &CASES)?;
    let options = args.options.check(SUBMITTERS)?;
    let groups = cases.into_iter().map(|case| group(case, args.rivals, &options)).collect();
    Plan::new("scope", groups).run(&options.output)
}

fn group(case: &'static str, rivals: bool, options: &Options) -> Group {
    let load = load_of(case, false, options);
    let mut contestants = uwork_pool::contestants(case, &VARIANTS, load);
    let shapes = catalogue().into_iter().filter(|rival| rivals && !rival.variant.is_empty());
    contestants.extend(shapes.map(|rival| Contestant::rival(rival, case, load, false)));
    Group {
        title: title(&[case], false, &load, options),
        contestants,
        samples: options.samples,
        ratio_to: RatioTo::Variant(VARIANTS[0]),
    }
}
