//! `uwork-lab bench timers`: the cost of timers while many are armed, and how late they expire.
//!
//! The cases `arm`, `put-off` (arm again with the same delay), `rearm` (with another delay) and
//! `cancel` work on a part of a large set of timers; the others stay armed. One thread handles
//! every item once, in memory order (`in-order`) or in random order (`scattered`). `touch` executes
//! one locked instruction on each item in the same order: the cost of accessing an item that is in
//! no cache, which is the lower bound for the scattered cases.
//!
//! `expire` arms timers that expire one by one on an otherwise idle machine, without slack
//! (`slack-0ms`) and with slack (`slack-10ms`), and compares the time of each run with its
//! deadline. It counts the wake-ups of all threads of uwork, including the watcher.

mod expire;
mod rates;

use std::process::ExitCode;

use super::options::{count_or, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::{UserError, report};

const CASES: [&str; 6] = ["touch", "arm", "put-off", "rearm", "cancel", EXPIRE];
const EXPIRE: &str = "expire";

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Fewer timers and samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: touch, arm, put-off, rearm, cancel, expire
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Number of timers that stay armed [default: 1000000; --quick: 100000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    timers: Option<String>,
    /// Runs of each case; the median is reported [default: 5; --quick: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let chosen = names_or_all("--case", &args.case, &CASES)?;
    let default = if args.quick { 100_000 } else { 1_000_000 };
    let timers = count_or("--timers", &args.timers, 1..=10_000_000, default)?;
    let samples = samples_or(&args.samples, if args.quick { 3 } else { 5 })?;
    let mut groups = rates::groups(&chosen, timers, samples);
    if chosen.contains(&EXPIRE) {
        groups.push(expire::group(if args.quick { 100 } else { 500 }, samples));
    }
    Plan::new("timers", groups).shown_by(report::list).run(&args.output)
}

/// A xorshift64* generator: the same numbers in every run.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// A number below `n`, which must not be zero.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }

    /// The numbers below `n` in random order.
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}
