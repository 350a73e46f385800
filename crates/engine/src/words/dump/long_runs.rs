//! The workers that are in one batch for long, with their stacks.

use std::fmt;

use super::{Stall, StalledWorker, StandsFor};

/// Workers and helpers whose batch is older than a given time, and the items among them that wait
/// for each other. `Display` has a line for each worker, followed by its stack.
#[derive(Clone, Debug)]
pub struct LongRuns(Stall);

impl LongRuns {
    pub(crate) fn new(runs: Stall) -> LongRuns {
        LongRuns(runs)
    }

    /// The workers, [`STALLED_WORKERS_MAX`](super::STALLED_WORKERS_MAX) at most.
    pub fn workers(&self) -> &[StalledWorker] {
        &self.0.workers
    }

    /// Names the functions that have no name, as [`Dump::name_functions`](super::Dump::name_functions).
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        self.0.name_functions(name);
    }

    /// As [`Dump::replace_items`](super::Dump::replace_items).
    pub fn replace_items(&mut self, represented_item: StandsFor<'_>) {
        self.0.replace_items(represented_item);
    }
}

impl fmt::Display for LongRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stacks of {} workers", self.0.workers.len())?;
        for worker in &self.0.workers {
            write!(f, "\n  ")?;
            worker.print(f, self.0.at_ns)?;
            // In full, even if another is the same: readers cut out the workers of a queue.
            worker.print_calls(f, &[])?;
        }
        if self.0.more_workers > 0 {
            write!(f, "\n  and {} more workers", self.0.more_workers)?;
        }
        self.0.print_deadlock(f)?;
        writeln!(f)
    }
}
