//! The part of the machine that the process may use: one value, which the host gives anew when it
//! changes.

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

    /// The CPUs for the workers of a pod.
    pub(crate) fn place(&self, pod: &CpuSet) -> CpuSet {
        pod_cpumask(pod, &self.allowed, &self.allowed)
    }

    /// How many workers of a shared pod should run while work is pending.
    pub(crate) fn target(&self, pod: &CpuSet) -> u32 {
        let cpus = self.place(pod).len().min(pod.len()) as u32;
        cpus.min(self.cpu_limit.unwrap_or(u32::MAX)).max(1)
    }
}
