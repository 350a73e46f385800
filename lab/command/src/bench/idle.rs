//! `uwork-lab bench idle`: the activity of uwork's threads when there is no work.
//!
//! After a load and a pause for the activity that follows a load, this counts the context switches
//! of all threads of uwork for some seconds. Each wake-up causes at least one.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::interleave::GroupOutcome;
use super::options::count;
use super::pipeline::{Output, Plan};
use super::summary::{self, Figure, Metric, Sampled};
use super::{UserError, uwork_pool};

const ITEMS: usize = 1_000_000;
/// Longer than the watcher stays awake after a load (a tenth of a second).
const LINGER: Duration = Duration::from_secs(1);

/// Of all threads of uwork.
pub(super) const WAKEUPS: Metric =
    Metric { name: "wakeups_per_s", unit: "1/s", title: "wakeups_per_s", decimals: 1 };

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How long to measure, in seconds
    #[arg(long, value_name = "N", default_value = "5", allow_hyphen_values = true)]
    seconds: String,
    #[command(flatten)]
    output: Output,
}

/// The wake-ups of a quiet time.
struct Quiet {
    threads: usize,
    per_second: f64,
}

impl Sampled for Quiet {
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        summary::medians(samples, |quiet| vec![(WAKEUPS, quiet.per_second)])
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let seconds = count("--seconds", &args.seconds, 1..=3_600)?;
    let names =
        Names { case: "after-load", runner: uwork_pool::RUNNER, variant: "default".to_owned() };
    let group = Group {
        title: "idle".to_owned(),
        contestants: vec![Contestant {
            names,
            standing: None,
            measure: Box::new(move |_| measure(seconds)),
        }],
        samples: 1,
        ratio_to: RatioTo::Nothing,
    };
    let show = move |group: &GroupOutcome<Quiet>| {
        let Quiet { threads, per_second } = group.outcomes[0].samples[0];
        format!(
            "{}  ({ITEMS} items before, {threads} threads of uwork)\n\
             {per_second} wake-ups a second over {seconds} s\n",
            group.title
        )
    };
    Plan::new("idle", vec![group]).shown_by(show).one_sample_suffices().run(&args.output)
}

fn measure(seconds: usize) -> Result<Quiet, UserError> {
    let queue = uwork_pool::queue("default");
    for _ in 0..ITEMS {
        drop(queue.spawn(|| ()));
    }
    queue.flush().map_err(|error| UserError(error.to_string()))?;
    std::thread::sleep(LINGER);
    let (threads, before) = switches(&[SLEEPS, "nonvoluntary_ctxt_switches"])?;
    std::thread::sleep(Duration::from_secs(seconds as u64));
    let (_, after) = switches(&[SLEEPS, "nonvoluntary_ctxt_switches"])?;
    Ok(Quiet { threads, per_second: after.saturating_sub(before) as f64 / seconds as f64 })
}

/// Context switches of threads that went to sleep.
pub(super) const SLEEPS: &str = "voluntary_ctxt_switches";

/// The number of uwork's threads in this process, and their context switches of these kinds so far.
pub(super) fn switches(kinds: &[&str]) -> Result<(usize, u64), UserError> {
    let unreadable = |error| UserError(format!("/proc/self/task: {error}"));
    let (mut threads, mut switches) = (0, 0);
    for entry in fs::read_dir("/proc/self/task").map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // The files of a thread that has just ended no longer exist.
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
        };
        if !field("Name").is_some_and(|name| name.starts_with("uw/")) {
            continue;
        }
        threads += 1;
        for name in kinds {
            switches += field(name).and_then(|count| count.trim().parse().ok()).unwrap_or(0_u64);
        }
    }
    Ok((threads, switches))
}
