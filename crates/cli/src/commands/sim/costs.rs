//! The costs that `--costs` means, and what they did to a run.

use std::path::Path;

use uwork_sim::costs::bill::{Bill, Hot};
use uwork_sim::costs::{Costs, TYPICAL};

use super::UserError;

/// The places that are listed.
const LISTED: usize = 8;

/// The costs that `--costs` means: the typical ones, or those of a file.
pub(super) fn read(text: &str) -> Result<Costs, UserError> {
    if text == TYPICAL {
        return Ok(Costs::default());
    }
    let contents = std::fs::read_to_string(Path::new(text)).map_err(|error| {
        UserError(format!("costs '{text}': {error} (allowed: {TYPICAL}, or the path of a file)"))
    })?;
    let mut costs: Costs =
        contents.parse().map_err(|error| UserError(format!("{text}: {error}")))?;
    text.clone_into(&mut costs.source);
    Ok(costs)
}

/// Prints what threads paid, and the places in the engine whose accesses took the most time.
pub(super) fn print(bill: &Bill, busy_ns: u64) -> Result<(), UserError> {
    say!(
        "{} us of CPU time, of which {} us spinning for locks; {} sleeps for locks",
        busy_ns / 1_000,
        bill.spun_ns() / 1_000,
        bill.slept()
    );
    say!("{:>10} {:>14}  place, by the time of the lines that it moves", "transfers", "us");
    for hot in bill.hottest().iter().take(LISTED) {
        say!("{:>10} {:>14.3}  {}", hot.transfers, hot.ps as f64 / 1e6, place(hot));
    }
    Ok(())
}

/// The first of these places, each with its share of the time of all.
pub(super) fn shares(hottest: &[Hot], count: usize) -> String {
    let all_ps: u64 = hottest.iter().map(|hot| hot.ps).sum();
    let share =
        |hot: &Hot| format!("{} {:.0} %", place(hot), hot.ps as f64 * 100.0 / all_ps.max(1) as f64);
    hottest.iter().take(count).map(share).collect::<Vec<_>>().join(", ")
}

/// The file, from its crate's sources on, and the line.
fn place(hot: &Hot) -> String {
    let file = hot.here.file();
    let file = file.rsplit_once("src/").map_or(file, |(_, rest)| rest);
    format!("{file}:{}", hot.here.line())
}
