//! The report of a shutdown.

use std::fmt;

use super::text::Nanos;
use super::{Function, QueueDump, WorkerDump};
use crate::words::plural::Count;

/// The treatment of items that have not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// They run, and so do the items that they queue. Delayed items that are not due do not.
    Drain,
    /// They are released without being run. Only running items are waited for.
    Cancel,
}

/// The outcome of a shutdown.
#[derive(Clone, Debug)]
pub struct ShutdownReport {
    /// The requested treatment.
    pub how: Shutdown,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Items that were removed without being run, delayed ones included.
    pub released: u64,
    /// Queues with items that did not end in time; empty if all did.
    pub unfinished: Vec<Unfinished>,
    /// Destructors of items that were removed, and that did not return in time.
    pub releasing: Vec<Releasing>,
    /// Items that were removed and whose destructors have not begun.
    pub unreleased: u64,
}

/// A queue that was not empty in time.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The time of the snapshot on the host's clock, in nanoseconds.
    pub at_ns: u64,
    /// The queue.
    pub queue: QueueDump,
    /// The workers that run its items.
    pub workers: Vec<WorkerDump>,
}

impl ShutdownReport {
    /// Whether everything ended in time.
    pub fn is_complete(&self) -> bool {
        self.unfinished.is_empty() && self.releasing.is_empty() && self.unreleased == 0
    }
}

impl Unfinished {
    /// Items that have not started: those that no worker has taken, and those that wait behind a
    /// running item or are deferred until its end.
    pub fn pending(&self) -> usize {
        let taken = |worker: &WorkerDump| worker.scheduled.total + worker.deferred.total;
        self.queue.pending() + self.workers.iter().map(taken).sum::<usize>()
    }

    /// Running items.
    pub fn running(&self) -> usize {
        self.workers.len()
    }
}

/// A destructor that a shutdown has started and that has not returned.
#[derive(Clone, Debug)]
pub struct Releasing {
    /// The queue's name; empty if the queue no longer existed when its item was removed.
    pub queue: String,
    /// The item's function, which names the type or the closure.
    pub function: Function,
    /// The number, on the host, of the thread that is inside the destructor; 0 if it has none.
    pub thread: u64,
    /// For how long, in nanoseconds.
    pub for_ns: u64,
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            Shutdown::Drain => "drain",
            Shutdown::Cancel => "cancel",
        };
        write!(f, "shutdown by {how} took {}", Nanos(self.took_ns))?;
        write!(f, "; {} released", Count(self.released, "item"))?;
        if self.is_complete() {
            return writeln!(f, "; nothing is left");
        }
        write!(f, "; {} did not end", Count(self.unfinished.len() as u64, "queue"))?;
        if !self.releasing.is_empty() {
            let count = self.releasing.len() as u64;
            write!(f, "; {} did not return", Count(count, "destructor"))?;
        }
        if self.unreleased > 0 {
            write!(f, "; {} not released", Count(self.unreleased, "item"))?;
        }
        writeln!(f)?;
        for left in &self.releasing {
            let Releasing { queue, function, thread, for_ns } = left;
            let name = function.name.as_deref().unwrap_or("an unnamed function");
            write!(f, "  destructor of {name}")?;
            if !queue.is_empty() {
                write!(f, ", queue {queue}")?;
            }
            writeln!(f, ", thread {thread}, for {}", Nanos(*for_ns))?;
        }
        for left in &self.unfinished {
            let (pending, running) = (left.pending(), left.running());
            writeln!(f, "  queue {}: {pending} pending, {running} running", left.queue.name)?;
            for worker in &left.workers {
                // Relative to the end of the shutdown, when the snapshot was taken.
                worker.print(f, left.at_ns)?;
            }
        }
        Ok(())
    }
}
