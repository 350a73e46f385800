//! Division of a machine into the pods of a scope.

use std::collections::{HashMap, HashSet};

use super::AffinityScope;
use crate::cpuset::CpuSet;
use crate::topology::{Cpu, Topology};

/// Cores per pod of [`AffinityScope::CacheShard`] by default.
pub const DEFAULT_SHARD_SIZE: u32 = 8;

/// The pods of one scope: a partition of the possible CPUs, ordered by their lowest CPU.
///
/// ```
/// use uwork_policy::scope::{Pods, AffinityScope};
///
/// let machine = "llc:2 core:4 smt:2".parse().unwrap();
/// let pods = Pods::of(&machine, AffinityScope::Cache, 8);
/// assert_eq!(pods.pods()[1].to_string(), "8-15");
/// assert_eq!(pods.pod_of(9), Some(1));
/// assert_eq!(pods.restricted(&"0-3".parse().unwrap()).count(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    scope: AffinityScope,
    pods: Vec<CpuSet>,
    /// By CPU number; `None` where the machine has a hole in its numbers.
    pod_of: Vec<Option<usize>>,
}

impl Pods {
    /// Divides the machine. In order of number, each possible CPU joins the pod of the first
    /// earlier CPU in the same group of the scope, or starts a new pod.
    ///
    /// `shard_size` is the number of cores that a [`AffinityScope::CacheShard`] pod should have; 0 counts
    /// as 1, and the other scopes ignore it.
    #[must_use]
    pub fn of(topology: &Topology, scope: AffinityScope, shard_size: u32) -> Self {
        let shards = match scope {
            AffinityScope::CacheShard => shards_by_core(topology, shard_size),
            _ => HashMap::new(),
        };
        let group = |cpu: &Cpu| match scope {
            AffinityScope::Cpu => (cpu.id, 0),
            AffinityScope::Smt => (cpu.core, 0),
            AffinityScope::Cluster => (cpu.cluster, 0),
            AffinityScope::CacheShard => (cpu.llc, shards[&cpu.core]),
            AffinityScope::Cache => (cpu.llc, 0),
            AffinityScope::Numa => (cpu.node, 0),
            AffinityScope::System => (0, 0),
        };
        let slots = topology.possible().last().map_or(0, |last| last as usize + 1);
        let mut pods: Vec<CpuSet> = Vec::new();
        let mut pod_of = vec![None; slots];
        let mut by_group = HashMap::new();
        for cpu in topology.cpus() {
            let pod = *by_group.entry(group(cpu)).or_insert(pods.len());
            if pod == pods.len() {
                pods.push(CpuSet::new());
            }
            pods[pod].insert(cpu.id);
            pod_of[cpu.id as usize] = Some(pod);
        }
        Self { scope, pods, pod_of }
    }

    /// The scope of these pods.
    #[must_use]
    pub fn scope(&self) -> AffinityScope {
        self.scope
    }

    /// The pods, ordered by their lowest CPU; none is empty.
    #[must_use]
    pub fn pods(&self) -> &[CpuSet] {
        &self.pods
    }

    /// The index into [`pods`](Self::pods) of a CPU's pod; `None` for a CPU that the machine does
    /// not have.
    #[must_use]
    pub fn pod_of(&self, cpu: u32) -> Option<usize> {
        self.pod_of.get(cpu as usize).copied().flatten()
    }

    /// The pods that have a CPU in the mask: their index, and the CPUs that they have in it.
    pub fn restricted(&self, mask: &CpuSet) -> impl Iterator<Item = (usize, CpuSet)> {
        self.pods.iter().map(|pod| pod.and(mask)).enumerate().filter(|(_, cpus)| !cpus.is_empty())
    }
}

/// The shard of every core, counted within its last-level cache.
fn shards_by_core(topology: &Topology, shard_size: u32) -> HashMap<u32, u32> {
    let mut seen = HashSet::new();
    let mut cores_by_llc: HashMap<u32, Vec<u32>> = HashMap::new();
    for cpu in topology.cpus() {
        if seen.insert(cpu.core) {
            cores_by_llc.entry(cpu.llc).or_default().push(cpu.core);
        }
    }
    let mut shards = HashMap::new();
    for cores in cores_by_llc.values() {
        let sizes = shard_sizes(cores.len() as u32, shard_size);
        let numbers =
            (0..).zip(sizes).flat_map(|(shard, size)| std::iter::repeat_n(shard, size as usize));
        shards.extend(cores.iter().copied().zip(numbers));
    }
    shards
}

/// How many cores each shard of a last-level cache gets. The number of shards is the one that comes
/// nearest to the requested size; the first shards get one each of the remaining cores.
fn shard_sizes(cores: u32, shard_size: u32) -> impl Iterator<Item = u32> {
    let shard_size = shard_size.max(1);
    let shards = ((cores + shard_size / 2) / shard_size).max(1);
    let (size, larger) = (cores / shards, cores % shards);
    (0..shards).map(move |shard| size + u32::from(shard < larger))
}

#[cfg(test)]
mod tests {
    use super::shard_sizes;

    fn sizes(cores: u32, shard_size: u32) -> Vec<u32> {
        shard_sizes(cores, shard_size).collect()
    }

    #[test]
    fn up_to_eleven_cores_are_one_shard_of_eight() {
        for cores in 1..=11 {
            assert_eq!(sizes(cores, 8), [cores]);
        }
    }

    #[test]
    fn twelve_to_nineteen_cores_are_two_shards() {
        for cores in 12..=19 {
            assert_eq!(sizes(cores, 8), [cores - cores / 2, cores / 2]);
        }
    }

    #[test]
    fn seventy_two_cores_are_nine_shards_of_eight() {
        assert_eq!(sizes(72, 8), [8; 9]);
    }

    #[test]
    fn the_first_shards_take_the_cores_left_over() {
        assert_eq!(sizes(23, 8), [8, 8, 7]);
        assert_eq!(sizes(29, 8), [8, 7, 7, 7]);
    }

    #[test]
    fn a_shard_size_of_nothing_is_one_core() {
        assert_eq!(sizes(3, 0), [1, 1, 1]);
    }

    #[test]
    fn a_shard_size_beyond_every_machine_is_one_shard() {
        assert_eq!(sizes(8_192, u32::MAX), [8_192]);
    }
}
