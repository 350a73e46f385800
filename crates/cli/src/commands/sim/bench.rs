//! `uwork sim bench`: the cases of `uwork-lab bench workqueue` on a simulated machine.

use std::fmt::Write;
use std::process::ExitCode;

use uwork_policy::scope::AffinityScopeChoice;
use uwork_sim::costs::TYPICAL;
use uwork_sim::costs::load::{Load, Queue, run as play};
use uwork_sim::machines::THIS;

use super::{UserError, costs, machines};
use crate::commands::print;
use crate::commands::progress::Progress;

/// A case, as `uwork-lab bench workqueue` has it: how many items are outstanding, and how many a
/// producer submits in all.
const CASES: [(&str, usize, usize); 3] =
    [("wait", 1, 20_000), ("batch", 100, 200_000), ("flood", 200_000, 200_000)];
/// Items of a producer that come first, and do not count: whole batches.
const WARM_UP_ITEMS: usize = 100;
/// The part of the items that `--quick` submits: one in so many.
const QUICK: usize = 10;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The machine: a name of `uwork sim machines`, a notation, or a file with one
    #[arg(long, default_value = THIS)]
    machine: String,
    /// What instructions cost: the path of a file of `uwork sim calibrate`, or `typical`
    #[arg(long, value_name = "COSTS", default_value = TYPICAL)]
    costs: String,
    /// Submitting threads. Each is pinned, to one CPU after the other [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    producers: Option<u16>,
    /// The scopes of the queue.
    #[arg(
        long = "scope",
        value_name = "SCOPE",
        value_parser = crate::commands::scope::parser(),
        default_values = ["default", "cpu", "system"]
    )]
    scopes: Vec<AffinityScopeChoice>,
    /// A tenth of the items.
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let figures = costs::read(&args.costs)?;
    let machine = machines::read(&args.machine)?;
    let cpus = machine.online().len();
    let producers = args.producers.map_or(cpus, usize::from);
    let mut text = format!(
        "simulated: {producers} producers on {}, items without work\ncosts: {}\n",
        args.machine, figures.source
    );
    let _ = writeln!(
        text,
        "{:<8} {:<12} {:>12} {:>12} {:>10} {:>12}",
        "case", "scope", "items/s", "enq p99 ns", "wakes/item", "CPU-s/Mitem"
    );
    let progress = Progress::new(Some(CASES.len() * args.scopes.len()));
    for (case, outstanding, items) in CASES {
        let items = if args.quick { items / QUICK } else { items };
        let batch = outstanding.min(items);
        for &scope in &args.scopes {
            progress.begin(format!("{case}, {scope}"));
            let (warm_up, batches) = (WARM_UP_ITEMS.div_ceil(batch), items / batch);
            let load = Load { producers, batch, warm_up, batches, ..Load::new(scope) };
            let outcome = play(&machine, &figures, Queue::Engine, load).map_err(UserError)?;
            let hot = costs::shares(&outcome.hottest, 1);
            let _ = writeln!(
                text,
                "{case:<8} {:<12} {:>12.0} {:>12} {:>10.2} {:>12.3}  {hot}",
                scope.to_string(),
                outcome.rate(),
                outcome.submission_ns(99),
                outcome.wakes_per_item(),
                outcome.busy_ns_per_item() / 1e3,
            );
            progress.done();
        }
    }
    drop(progress);
    print(&text)
}
