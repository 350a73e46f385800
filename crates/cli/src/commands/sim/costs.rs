//! The costs that `--costs` means, and what they did to a run.

use std::path::Path;

use uwork_sim::costs::bill::Bill;
use uwork_sim::costs::{Costs, TYPICAL};

use super::UserError;

/// The lines that are listed.
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

/// Prints what threads paid, and the lines that took the most time.
pub(super) fn print(bill: &Bill, busy_ns: u64) -> Result<(), UserError> {
    say!(
        "{} us of CPU time, of which {} us spinning for locks; {} sleeps for locks",
        busy_ns / 1_000,
        bill.spun_ns() / 1_000,
        bill.slept()
    );
    say!("{:<6} {:>10} {:>14}  first used", "line", "transfers", "us of CPUs");
    for (name, hot) in bill.hottest().iter().take(LISTED).filter(|(_, hot)| hot.transfers > 0) {
        let us = hot.ps as f64 / 1e6;
        let (file, line) = (place(hot.here.file()), hot.here.line());
        say!("{name:<6} {:>10} {us:>14.3}  {file}:{line}", hot.transfers);
    }
    Ok(())
}

/// The end of a path, from the crate's sources on.
pub(super) fn place(path: &str) -> &str {
    path.rsplit_once("src/").map_or(path, |(_, rest)| rest)
}
