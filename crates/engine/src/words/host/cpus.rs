//! The part of the machine that the process may use: one value, which the host gives anew when it
//! changes; and how the host moves threads to it.

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::pod_cpumask;
use uwork_policy::topology::Topology;

/// The part of the machine that the process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The CPUs that the process may use.
    pub allowed: CpuSet,
    /// Those of them that unbound queues use (the kernel's `workqueue/cpumask`).
    pub unbound_cpumask: CpuSet,
    /// The process's CPU quota in CPUs, rounded up, if it has one.
    pub cpu_limit: Option<u32>,
}

impl Cpus {
    /// These CPUs. Unbound queues use those that are not isolated, or all if all are isolated.
    pub fn new(topology: &Topology, allowed: CpuSet, cpu_limit: Option<u32>) -> Cpus {
        let unbound = allowed.and_not(topology.isolated());
        let unbound_cpumask = if unbound.is_empty() { allowed.clone() } else { unbound };
        Cpus { allowed, unbound_cpumask, cpu_limit }
    }

    /// The CPUs that per-CPU queues may use (`bound`), or unbound ones.
    pub(crate) fn usable(&self, bound: bool) -> &CpuSet {
        if bound { &self.allowed } else { &self.unbound_cpumask }
    }

    /// The CPUs for a thread that runs on some CPUs of a pod.
    pub(crate) fn place_in(&self, places: Places<'_>) -> CpuSet {
        let usable = self.usable(places.bound);
        let mut here = [places.cpus, places.pod].map(|cpus| cpus.and(usable)).into_iter();
        let here = here.find(|cpus| !cpus.is_empty());
        here.unwrap_or_else(|| pod_cpumask(places.wanted, usable))
    }

    /// How many workers of an unbound pool with these CPUs should run while work is pending.
    pub(crate) fn target(&self, cpus: &CpuSet) -> u32 {
        let usable = self.place_in(Places::all(cpus, false)).len().min(cpus.len()) as u32;
        usable.min(self.cpu_limit.unwrap_or(u32::MAX)).max(1)
    }
}

/// The CPUs for which a thread was made, the pod that holds them, and all CPUs that its queues ask for. It
/// runs on the usable CPUs of the first of these that has any, else on any usable CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub(crate) cpus: &'a CpuSet,
    pub(crate) pod: &'a CpuSet,
    pub(crate) wanted: &'a CpuSet,
    /// Whether it may use all CPUs of the process, or those of unbound queues.
    pub(crate) bound: bool,
}

impl<'a> Places<'a> {
    /// All of these.
    pub(crate) fn all(cpus: &'a CpuSet, bound: bool) -> Places<'a> {
        Places { cpus, pod: cpus, wanted: cpus, bound }
    }
}

/// Where threads run.
pub trait Placement {
    /// Restricts a thread to these CPUs, from when the call returns. Does nothing if the system
    /// does not permit that. Takes some microseconds, more if the thread must leave a CPU.
    ///
    /// The caller holds no lock that the thread could wait for while it has items.
    fn set_cpus(&self, thread: u64, cpus: &CpuSet);

    /// Lowers the calling thread for good: from now on it runs on CPUs that no other thread wants, and
    /// gets a small share of those that others want. Returns false if the system refuses; then the host no longer
    /// offers [`Tier::Standby`](uwork_policy::blocking::Tier::Standby). Takes a microsecond.
    fn become_standby(&self) -> bool;

    /// Whether the calling thread has a real-time policy, so that normal threads run on its CPU only
    /// while it sleeps. Takes one system call.
    fn is_caller_real_time(&self) -> bool;

    /// Renames the calling thread, which has moved to another pool. Takes a microsecond.
    fn rename_thread(&self, name: &str);

    /// What the process may use now, if that may have changed since the last call. Called by a
    /// single thread at a time, several times a second while there is work. Takes some microseconds
    /// if nothing has changed.
    fn cpus_changed(&self) -> Option<Cpus>;
}
