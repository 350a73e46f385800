//! What workers count of the runs: how long items waited, how long they ran, and what happened to
//! their workers, for each queue and for each function.
//!
//! A worker counts once for each batch, from times that it reads anyway. The counters of a queue
//! are under the pwq's lock, which the worker takes to release its permit. Those of a function are
//! the worker's own; a reader adds them up. Decision 43 has the costs.

mod cpu;
mod events;
mod functions;

pub(crate) use cpu::CpuMeter;
pub(crate) use events::Events;
pub use functions::FunctionTimes;
pub(crate) use functions::{Functions, HeldFunctions, Split};

use uwork_policy::batch::RunEstimate;
use uwork_policy::histogram::Histogram;

use crate::engine::Engine;
use crate::slot::Slot;
use crate::words::host::Host;
use crate::words::sync::MODELLED;

/// Whether anything is counted. The environment variable `UWORK_UNCOUNTED` at compile time leaves
/// the counters out, so that their cost can be measured.
pub(crate) const COUNTED: bool = !MODELLED && option_env!("UWORK_UNCOUNTED").is_none();

/// The counters of a queue in one pool. Guard: the pwq lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueAccount {
    /// Runs by their time.
    pub(crate) runs: Histogram,
    /// Runs by the time from their submission to the start of their batch.
    pub(crate) waits: Histogram,
    /// The CPU time of the runs.
    pub(crate) cpu_ns: u64,
    /// Batches that used as much CPU time as makes an item CPU-intensive.
    pub(crate) hogs: u64,
}

impl QueueAccount {
    /// A list with one account, or an empty one if there is no memory: then nothing is counted.
    /// Calls the allocator, so the caller holds no lock.
    #[cold]
    pub(crate) fn allocate() -> Vec<QueueAccount> {
        let mut account = Vec::new();
        if account.try_reserve_exact(1).is_ok() {
            account.push(QueueAccount::default());
        }
        account
    }

    #[inline]
    pub(crate) fn add(&mut self, batch: EndedBatch) {
        self.runs.add(batch.took_ns, batch.ran);
        if let Some(waited) = batch.waited_ns {
            self.waits.add_each(waited, batch.ran);
        }
        self.cpu_ns = self.cpu_ns.wrapping_add(batch.cpu_ns);
        self.hogs += u64::from(batch.is_hog);
    }
}

/// A batch that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedBatch {
    /// How many items ran.
    pub(crate) ran: u32,
    /// How long they took together.
    pub(crate) took_ns: u64,
    /// How long the first of them waited for the batch to begin, if that is known.
    waited_ns: Option<u64>,
    cpu_ns: u64,
    is_hog: bool,
}

/// A batch in progress.
pub(crate) struct Batch<'a> {
    began: u64,
    waited_ns: Option<u64>,
    meter: &'a CpuMeter,
    pub(crate) split: Split,
}

impl<'a> Batch<'a> {
    /// The calling thread, which owns `slot` and `meter`, begins a batch at `began`.
    #[inline]
    pub(crate) fn begin<H: Host>(
        engine: &Engine<H>,
        slot: &Slot<H>,
        meter: &'a CpuMeter,
        (began, waited_ns): (u64, Option<u64>),
        estimate: RunEstimate,
    ) -> Batch<'a> {
        if COUNTED {
            meter.begin(engine, estimate);
        }
        Batch { began, waited_ns, meter, split: Split::new(began, slot.number()) }
    }

    /// Ends the batch, of which `ran` items were run, and counts it for their functions.
    #[inline]
    pub(crate) fn end<H: Host>(&self, engine: &Engine<H>, slot: &Slot<H>, ran: u32) -> EndedBatch {
        let ended = engine.host().now();
        let took_ns = ended.saturating_sub(self.began);
        let mut batch =
            EndedBatch { ran, took_ns, waited_ns: self.waited_ns, ..Default::default() };
        if COUNTED && ran > 0 {
            batch.cpu_ns = self.meter.end(engine, took_ns);
            let threshold = engine.cpu_intensive_thresh();
            batch.is_hog = threshold > 0 && batch.cpu_ns >= threshold;
            self.split.end(engine, slot, ended, self.waited_ns);
        }
        batch
    }
}
