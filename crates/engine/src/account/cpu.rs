//! The CPU time of batches, with few readings of the thread's CPU clock.

use std::cell::Cell;

use uwork_policy::batch::{
    CPU_MEASURED_NS, CPU_READING_BATCHES, CPU_UNMEASURED_MAX_NS, RunEstimate, measures_cpu,
};

use crate::engine::Engine;
use crate::words::host::{Host, Observer};

/// Measures the CPU time of a thread's batches.
///
/// The CPU clock is a system call, as dear as a short item. Where short and long batches alternate,
/// it is read at the end of each long one. The CPU time of a long batch is the difference to the
/// last reading, less the run times of the short batches between them.
#[derive(Default)]
pub(crate) struct CpuMeter {
    /// The thread's CPU time at the last reading; None if the present batch is not measured.
    read_ns: Cell<Option<u64>>,
    /// The run times of the batches that ended since, and their number.
    short_ns: Cell<u64>,
    short: Cell<u32>,
}

impl CpuMeter {
    /// A batch of such items begins.
    #[inline]
    pub(super) fn begin<H: Host>(&self, engine: &Engine<H>, estimate: RunEstimate) {
        if !measures_cpu(estimate) {
            self.forget();
        } else if self.read_ns.get().is_none() || self.short.get() >= CPU_READING_BATCHES {
            self.set(cpu_time(engine));
        }
    }

    /// The batch has ended, which took so long. Returns its CPU time.
    #[inline]
    pub(super) fn end<H: Host>(&self, engine: &Engine<H>, took_ns: u64) -> u64 {
        let Some(read_ns) = self.read_ns.get() else {
            return took_ns.min(CPU_UNMEASURED_MAX_NS);
        };
        if took_ns < CPU_MEASURED_NS {
            self.short_ns.set(self.short_ns.get() + took_ns);
            self.short.set(self.short.get() + 1);
            return took_ns;
        }
        let now_ns = cpu_time(engine);
        let known_ns = read_ns.saturating_add(self.short_ns.get());
        self.set(now_ns);
        match now_ns {
            Some(now_ns) => now_ns.saturating_sub(known_ns).min(took_ns),
            None => took_ns.min(CPU_UNMEASURED_MAX_NS),
        }
    }

    /// The thread uses its CPU for something else than batches: the next measured batch begins with
    /// a reading.
    #[inline]
    pub(crate) fn forget(&self) {
        self.read_ns.set(None);
    }

    fn set(&self, read_ns: Option<u64>) {
        self.read_ns.set(read_ns);
        self.short_ns.set(0);
        self.short.set(0);
    }
}

#[cold]
fn cpu_time<H: Host>(engine: &Engine<H>) -> Option<u64> {
    let thread = engine.caller().thread.number(|| engine.host().thread_id());
    engine.observer().cpu_time(thread)
}
