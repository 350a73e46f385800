//! Which thread holds each CPU, and, as sets, the CPUs that are free or held by the idle class. A
//! search for a CPU compares sets: machines have up to 1,024 CPUs.

use uwork_policy::cpuset::CpuSet;

use super::ThreadId;

/// The holders of all CPUs.
pub(super) struct Holders {
    holders: Vec<Option<ThreadId>>,
    free: CpuSet,
    /// CPUs that threads of the idle class hold.
    idle_class: CpuSet,
}

impl Holders {
    /// CPUs 0 to `cpus - 1`, all free.
    pub(super) fn new(cpus: usize) -> Holders {
        let free = CpuSet::first_n(cpus as u32);
        Holders { holders: vec![None; cpus], free, idle_class: CpuSet::new() }
    }

    /// The thread that holds this CPU.
    pub(super) fn of(&self, cpu: u32) -> Option<ThreadId> {
        self.holders[cpu as usize]
    }

    pub(super) fn is_free(&self, cpu: u32) -> bool {
        self.free.contains(cpu)
    }

    /// The free CPUs.
    pub(super) fn free(&self) -> &CpuSet {
        &self.free
    }

    /// The CPUs that threads of the idle class hold.
    pub(super) fn idle_class(&self) -> &CpuSet {
        &self.idle_class
    }

    /// The thread gets this CPU, or now holds it as a member of the other class.
    pub(super) fn set(&mut self, cpu: u32, id: ThreadId, is_idle_class: bool) {
        self.holders[cpu as usize] = Some(id);
        self.free.remove(cpu);
        if is_idle_class {
            self.idle_class.insert(cpu);
        } else {
            self.idle_class.remove(cpu);
        }
    }

    /// The CPU is free.
    pub(super) fn clear(&mut self, cpu: u32) {
        self.holders[cpu as usize] = None;
        self.free.insert(cpu);
        self.idle_class.remove(cpu);
    }
}
