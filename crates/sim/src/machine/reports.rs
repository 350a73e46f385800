//! The CPUs that the engine is told.

use uwork_policy::cpuset::CpuSet;

use super::{Machine, ThreadId};

impl Machine {
    /// Returns the CPU of the executing thread to the engine, and records it.
    pub fn report_cpu(&mut self) -> u32 {
        let current = self.current.expect("called from outside of the simulation");
        let thread = &mut self.threads[current];
        thread.reported_cpu = thread.cpu;
        thread.told.insert(thread.cpu);
        thread.cpu
    }

    /// The executing thread begins a call. `has_reported_several_cpus` then says whether the engine was told
    /// more than one CPU during it.
    pub fn begin_cpu_reports(&mut self) {
        let current = self.current.expect("called from outside of the simulation");
        self.threads[current].told = CpuSet::new();
    }

    /// Whether the engine was told different CPUs of this thread since then.
    pub fn has_reported_several_cpus(&self, id: ThreadId) -> bool {
        self.threads[id].told.len() > 1
    }

    /// The CPU that the engine was told last on this thread.
    pub fn reported_cpu(&self, id: ThreadId) -> u32 {
        self.threads[id].reported_cpu
    }
}
