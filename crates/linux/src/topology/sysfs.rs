//! CPUs and the resources that they share, from `/sys/devices/system`.

use std::collections::HashMap;
use std::hash::Hash;

use uwork_policy::cpuset::{CpuSet, MAX_CPUS};
use uwork_policy::topology::{Cpu, FULL_CAPACITY};

use super::files::Files;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// The CPUs of the machine and the `nohz_full` mask. Groups are numbered from 0 in the order of
/// their first CPU, except nodes, which keep the kernel's numbers.
pub(super) fn read(files: &mut Files<'_>, affinity: &CpuSet) -> (Vec<Cpu>, CpuSet) {
    let (possible, online) = numbers(files, affinity);
    let nohz_full = files.cpus(&format!("{CPU}/nohz_full")).unwrap_or_default();
    let isolated = files.cpus(&format!("{CPU}/isolated")).unwrap_or_default().or(&nohz_full);
    let places = Places::read(files, &online);
    // Offline CPUs have no topology files. They are placed with the first CPU that has: a cache
    // made up for them would count as a second one.
    let fallback = online.first().and_then(|cpu| places.by_cpu.get(&cpu).copied());
    let (mut cores, mut clusters) = (Numbering::default(), Numbering::default());
    let cpus = possible.iter().map(|id| {
        let known = places.by_cpu.get(&id);
        let place = known.copied().or(fallback).unwrap_or_default();
        let leader = known.map_or(id, |place| place.core);
        Cpu {
            id,
            core: cores.of(leader),
            cluster: clusters.of(known.map_or((id, id), |place| place.cluster)),
            llc: place.llc,
            node: place.node,
            package: place.package,
            capacity: place.capacity,
            isolated: isolated.contains(id),
            online: online.contains(id),
        }
    });
    let cpus = cpus.collect();
    let offline = possible.and_not(&online);
    if !offline.is_empty() {
        files.note(format!("offline CPUs {offline}: counted to the first cache, node and package"));
    }
    (cpus, nohz_full)
}

/// The possible and the online CPUs.
fn numbers(files: &mut Files<'_>, affinity: &CpuSet) -> (CpuSet, CpuSet) {
    let folders = files.numbered(CPU, "cpu").into_iter().filter(|&cpu| cpu < MAX_CPUS).collect();
    let mut listed =
        |name: &str| files.cpus(&format!("{CPU}/{name}")).filter(|cpus| !cpus.is_empty());
    let (possible, online) = (listed("possible"), listed("online"));
    let candidates = [possible.clone(), online.clone(), Some(folders), Some(affinity.clone())];
    let found = candidates.into_iter().flatten().find(|cpus| !cpus.is_empty()).unwrap_or_default();
    if possible.is_none() {
        files.note(format!("{CPU}/possible is missing; CPUs {found} are assumed"));
    }
    // An online CPU is possible, even if the list omits it.
    let possible = online.as_ref().map_or(found.clone(), |online| found.or(online));
    let online = online.unwrap_or_else(|| {
        let runnable = affinity.and(&possible);
        if runnable.is_empty() { possible.clone() } else { runnable }
    });
    (possible, online)
}

/// Numbers for groups, from 0, in the order of first use.
struct Numbering<K> {
    numbers: HashMap<K, u32>,
}

impl<K> Default for Numbering<K> {
    fn default() -> Self {
        Self { numbers: HashMap::new() }
    }
}

impl<K: Hash + Eq> Numbering<K> {
    fn of(&mut self, key: K) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert(next)
    }
}

/// The location of an online CPU. `core` and `cluster` contain the lowest CPU of the group.
#[derive(Clone, Copy, Default)]
struct Place {
    core: u32,
    /// The cluster's lowest CPU; with the core's lowest CPU as well if no cluster is known.
    cluster: (u32, u32),
    llc: u32,
    node: u32,
    package: u32,
    capacity: u32,
}

/// Identifies a last-level cache before it has a number.
#[derive(PartialEq, Eq, Hash)]
enum Llc {
    /// The lowest CPU that shares it.
    Shared(u32),
    /// No cache is described: all of the package.
    Package(u32),
}

struct Places {
    by_cpu: HashMap<u32, Place>,
}

impl Places {
    fn read(files: &mut Files<'_>, online: &CpuSet) -> Self {
        let nodes = nodes(files);
        let (mut llcs, mut packages) = (Numbering::default(), Numbering::default());
        let mut by_core: HashMap<u32, Place> = HashMap::new();
        let mut by_cpu = HashMap::new();
        for cpu in online.iter() {
            let topology = format!("{CPU}/cpu{cpu}/topology");
            let core = ["core_cpus_list", "thread_siblings_list"]
                .into_iter()
                .find_map(|name| lowest(files, &format!("{topology}/{name}"), cpu, online))
                .unwrap_or(cpu);
            // Threads of a core share the other resources by nature. The first thread's files apply
            // to all, so that contradictory files cannot split a core.
            let place = *by_core.entry(core).or_insert_with(|| {
                // -1 if the firmware does not provide it.
                let package = files.number(&format!("{topology}/physical_package_id")).unwrap_or(0);
                let cluster = lowest(files, &format!("{topology}/cluster_cpus_list"), cpu, online);
                let llc =
                    last_level_cache(files, cpu, online).map_or(Llc::Package(package), Llc::Shared);
                Place {
                    core,
                    cluster: (cluster.unwrap_or(core), cluster.map_or(core, |_| 0)),
                    llc: llcs.of(llc),
                    node: nodes.get(&cpu).copied().unwrap_or(0),
                    package: packages.of(package),
                    capacity: 0,
                }
            });
            let capacity =
                files.number(&format!("{CPU}/cpu{cpu}/cpu_capacity")).unwrap_or(FULL_CAPACITY);
            by_cpu.insert(cpu, Place { capacity: capacity.clamp(1, FULL_CAPACITY), ..place });
        }
        Self { by_cpu }
    }
}

/// The lowest online CPU of a list, which must contain `cpu`.
fn lowest(files: &mut Files<'_>, path: &str, cpu: u32, online: &CpuSet) -> Option<u32> {
    files.cpus(path).filter(|group| group.contains(cpu))?.and(online).first()
}

/// The lowest online CPU on the same last-level cache: of the data and unified caches, the one of
/// the highest level.
fn last_level_cache(files: &mut Files<'_>, cpu: u32, online: &CpuSet) -> Option<u32> {
    let folder = format!("{CPU}/cpu{cpu}/cache");
    let mut last: Option<(u32, u32)> = None;
    for index in files.numbered(&folder, "index") {
        let cache = format!("{folder}/index{index}");
        let kind = files.text(&format!("{cache}/type")).unwrap_or_default();
        let Some(level) = files.number(&format!("{cache}/level")).filter(|_| kind != "Instruction")
        else {
            continue;
        };
        if last.is_none_or(|(highest, _)| level > highest)
            && let Some(leader) = lowest(files, &format!("{cache}/shared_cpu_list"), cpu, online)
        {
            last = Some((level, leader));
        }
    }
    last.map(|(_, leader)| leader)
}

/// The NUMA node of each CPU that is in a node's list.
fn nodes(files: &mut Files<'_>) -> HashMap<u32, u32> {
    let mut nodes = HashMap::new();
    for node in files.numbered(NODE, "node") {
        for cpu in files.cpus(&format!("{NODE}/node{node}/cpulist")).unwrap_or_default().iter() {
            nodes.entry(cpu).or_insert(node);
        }
    }
    nodes
}
