//! Measures how long a worker's batches are off the CPU.
//!
//! A measurement reads the thread's CPU clock before and after a batch, and how often the thread has
//! waited. A batch without a wait that was off the CPU had lost it to other threads: that is no sleep.
//! After one with a wait the next one is measured too, and with it how long the thread waited for a
//! CPU, which is no sleep either. The system tells that by a file, which takes longer to read than the
//! clock.

use std::cell::Cell;

use uwork_policy::batch::RunEstimate;
use uwork_policy::off_cpu::Measured;

use crate::engine::Engine;
use crate::pool::Pool;
use crate::words::host::{Host, Observer};

/// See the module.
#[derive(Default)]
pub(super) struct OffCpuMeter {
    /// The batch in progress has declared a wait: the worker was replaced meanwhile.
    declared: Cell<bool>,
}

/// The readings at the begin of a measured batch.
pub(super) struct Begun {
    began: u64,
    cpu_ns: u64,
    waits: Option<u64>,
    delay_ns: Option<u64>,
}

impl OffCpuMeter {
    /// A batch of `count` such items begins at `now`, in `pool`, which has taken it from the second one.
    /// Returns the readings if it is measured.
    #[inline]
    pub(super) fn begin<H: Host>(
        &self,
        engine: &Engine<H>,
        (pool, from): (&Pool<H>, &Pool<H>),
        batch: (u32, RunEstimate),
        now: u64,
    ) -> Option<Begun> {
        if pool.begins_measurement(engine, from, batch, now) {
            self.begin_measured(engine, pool)
        } else {
            None
        }
    }

    #[cold]
    fn begin_measured<H: Host>(&self, engine: &Engine<H>, pool: &Pool<H>) -> Option<Begun> {
        self.declared.set(false);
        let delay_ns = if pool.leaves_cpu() { engine.observer().run_delay() } else { None };
        let waits = engine.host().waits();
        // The two clocks next to each other: the worker's own time must not appear as time off the CPU.
        Some(Begun { waits, cpu_ns: cpu_time(engine)?, delay_ns, began: engine.host().now() })
    }

    /// The worker has declared a wait.
    pub(super) fn note_declared(&self) {
        self.declared.set(true);
    }

    /// The batch that began with these readings has ended.
    #[cold]
    pub(super) fn end<H: Host>(&self, engine: &Engine<H>, pool: &Pool<H>, begun: &Begun) {
        let ended = engine.host().now();
        let Some(cpu_ns) = cpu_time(engine).filter(|_| !self.declared.get()) else { return };
        let (wall_ns, cpu_ns) =
            (ended.saturating_sub(begun.began), cpu_ns.saturating_sub(begun.cpu_ns));
        let mut measured = Measured { wall_ns, cpu_ns, delay_ns: 0 };
        let mut left_cpu = measured.left_cpu();
        if left_cpu && begun.waits.is_some() && begun.waits == engine.host().waits() {
            measured.delay_ns = wall_ns.saturating_sub(cpu_ns);
            left_cpu = false;
        }
        if left_cpu {
            // Unknown at the first such batch. The next one tells.
            let Some(before) = begun.delay_ns else { return pool.note_leaves_cpu(true) };
            let Some(after) = engine.observer().run_delay() else { return };
            measured.delay_ns = after.saturating_sub(before);
        }
        pool.note_leaves_cpu(left_cpu);
        pool.note_measured(engine, measured, ended);
    }
}

fn cpu_time<H: Host>(engine: &Engine<H>) -> Option<u64> {
    let thread = engine.caller().thread.number(|| engine.host().thread_id());
    engine.observer().cpu_time(thread)
}
