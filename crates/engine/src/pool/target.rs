//! A pool's target: how many workers should run while work is pending. It is the number of the pool's
//! CPUs, raised where items leave the CPU: `uwork_policy::off_cpu` decides. Items that its workers take
//! from a neighbour count too: they need as many workers here as there.
//!
//! The sums are hints, written by workers without mutual exclusion; a lost measurement changes when
//! the target follows. The target itself is a bound on workers that run, and any value of at least 1
//! keeps the rule of progress.

use uwork_policy::batch::RunEstimate;
use uwork_policy::blocking::Tier;
use uwork_policy::off_cpu::{Measured, OffCpu, RAISED_NS, is_measured};

use super::Pool;
use crate::engine::Engine;
use crate::words::host::{Host, Observer};
use crate::words::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// See the module. Every field is a hint; none of them is read together with another.
pub(crate) struct OffCpuSums {
    /// The sums of `uwork_policy::off_cpu`.
    cpu_ns: AtomicU64,
    off_ns: AtomicU64,
    batches: AtomicU64,
    left: AtomicU64,
    /// When a measurement last began.
    measured_at: AtomicU64,
    /// Whether the last measured batch was off the CPU: how long the next one waits for a CPU is
    /// measured too.
    left_cpu: AtomicBool,
    /// The target without a raise: the number of the pool's CPUs.
    base: AtomicU32,
    /// Until when the target is raised; 0 if it is not.
    raised_until: AtomicU64,
}

impl OffCpuSums {
    pub(super) fn new() -> OffCpuSums {
        OffCpuSums {
            cpu_ns: AtomicU64::new(0),
            off_ns: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            left: AtomicU64::new(0),
            measured_at: AtomicU64::new(0),
            left_cpu: AtomicBool::new(false),
            base: AtomicU32::new(1),
            raised_until: AtomicU64::new(0),
        }
    }

    fn load(&self) -> OffCpu {
        OffCpu {
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            off_ns: self.off_ns.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            left: self.left.load(Ordering::Relaxed),
        }
    }

    fn store(&self, sums: OffCpu) {
        self.batches.store(sums.batches, Ordering::Relaxed);
        self.left.store(sums.left, Ordering::Relaxed);
        self.cpu_ns.store(sums.cpu_ns, Ordering::Relaxed);
        self.off_ns.store(sums.off_ns, Ordering::Relaxed);
    }
}

impl<H: Host> Pool<H> {
    #[inline]
    #[track_caller]
    pub(crate) fn target(&self) -> u32 {
        self.target.get()
    }

    pub(crate) fn set_target(&self, target: u32) {
        // A thread that changes the target settles the pool next. A submitter pushes first, then reads
        // the target.
        self.target.set(target);
        self.note_room();
    }

    /// How many workers should run if none of them leaves its CPU.
    #[track_caller]
    pub(crate) fn base_target(&self) -> u32 {
        self.off_cpu.base.load(Ordering::Relaxed)
    }

    /// Sets the base of the target, and drops a raise. The caller sets the target next.
    pub(super) fn set_base(&self, base: u32) {
        self.off_cpu.base.store(base, Ordering::Relaxed);
        self.off_cpu.raised_until.store(0, Ordering::Relaxed);
    }

    /// Whether the next batch, of `count` such items of the pool `from`, is measured. It begins at `now`.
    #[inline]
    pub(crate) fn begins_measurement(
        &self,
        engine: &Engine<H>,
        from: &Pool<H>,
        (count, estimate): (u32, RunEstimate),
        now: u64,
    ) -> bool {
        let since_ns = now.saturating_sub(self.off_cpu.measured_at.load(Ordering::Relaxed));
        let batch_ns = estimate.item_ns.saturating_mul(count.into());
        is_measured(since_ns, batch_ns) && self.needs_measurement(engine, from, now)
    }

    /// Not without a backlog, where the number of workers does not matter, nor where a single worker
    /// must run the items, or where another decision has the number of workers.
    #[cold]
    fn needs_measurement(&self, engine: &Engine<H>, from: &Pool<H>, now: u64) -> bool {
        let spec = self.spec();
        let needs = from.looks_ready()
            && !(spec.single || spec.bh || spec.saves)
            && engine.observer().tier() != Tier::Declared;
        if needs {
            self.off_cpu.measured_at.store(now, Ordering::Relaxed);
        }
        needs
    }

    /// Whether the last measured batch was off the CPU.
    pub(crate) fn leaves_cpu(&self) -> bool {
        self.off_cpu.left_cpu.load(Ordering::Relaxed)
    }

    /// A measured batch was off the CPU, or was not. After the first that was, the next batch is
    /// measured at once: at most two batches in `MEASURE_EVERY_NS`.
    pub(crate) fn note_leaves_cpu(&self, left: bool) {
        if self.leaves_cpu() != left {
            self.off_cpu.left_cpu.store(left, Ordering::Relaxed);
            if left {
                self.off_cpu.measured_at.store(0, Ordering::Relaxed);
            }
        }
    }

    /// One of its workers has measured a batch that ended at `now`.
    #[cold]
    pub(crate) fn note_measured(&self, engine: &Engine<H>, measured: Measured, now: u64) {
        let sums = &self.off_cpu;
        let after = sums.load().with(measured);
        sums.store(after);
        let (base, target) = (self.base_target(), self.target());
        let next = after.target(target, base).min(self.workers_max(engine)).max(base);
        let until = if next > base { now.saturating_add(RAISED_NS) } else { 0 };
        sums.raised_until.store(until, Ordering::Relaxed);
        if next != target {
            self.set_target(next);
            self.follow_base(base);
            self.settle(engine);
        }
    }

    /// The caller has set a target that follows from this base, without the lock of changes. If the number
    /// of CPUs has changed meanwhile, the target is the new base, or the thread that changes it sets it next.
    fn follow_base(&self, mut base: u32) {
        while base != self.base_target() {
            base = self.base_target();
            self.off_cpu.raised_until.store(0, Ordering::Relaxed);
            self.set_target(base);
        }
    }

    /// Called by a worker before it takes work: drops a raise that no measurement has confirmed. The
    /// target decides, not the time alone: two measurers may store the two in any order.
    #[inline]
    pub(crate) fn expire_raise(&self, now: u64) {
        if self.off_cpu.raised_until.load(Ordering::Relaxed) <= now
            && self.target() != self.base_target()
        {
            self.drop_raise();
        }
    }

    #[cold]
    fn drop_raise(&self) {
        // A saving pool raises its target by another rule.
        if !self.spec().saves {
            self.off_cpu.store(OffCpu::default());
            self.off_cpu.raised_until.store(0, Ordering::Relaxed);
            // Only a change of the CPUs writes the base: a worker that did could write an older one.
            let base = self.base_target();
            self.set_target(base);
            self.follow_base(base);
        }
    }
}
