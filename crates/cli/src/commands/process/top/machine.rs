//! The pools of a process on the machine's topology: each below the smallest group of CPUs that
//! contains its own.

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Cpu, Topology};

use super::view::Pool;

/// A line of the drawing.
pub(super) enum Place<'a> {
    /// A group of CPUs that contains those of the pools below.
    Group { depth: usize, name: String },
    /// A pool.
    Pool { depth: usize, pool: &'a Pool },
}

type Level = (&'static str, fn(&Cpu) -> u32);

/// From the coarsest.
const LEVELS: [Level; 3] =
    [("package", |cpu| cpu.package), ("node", |cpu| cpu.node), ("llc", |cpu| cpu.llc)];

/// The pools in the order of their CPUs, with the groups above them. A level that does not divide
/// its group is left out, and so is a group without pools.
pub(super) fn places<'a>(topology: &Topology, pools: &'a [Pool]) -> Vec<Place<'a>> {
    let mut known: Vec<&Pool> = pools.iter().collect();
    known.sort_by_key(|pool| (pool.set.first(), pool.id));
    let cpus: Vec<&Cpu> = topology.cpus().iter().collect();
    let mut places = Vec::new();
    add(&cpus, &LEVELS, 0, known, &mut places);
    places
}

fn add<'a>(
    cpus: &[&Cpu],
    levels: &[Level],
    depth: usize,
    pools: Vec<&'a Pool>,
    places: &mut Vec<Place<'a>>,
) {
    let Some((&(name, group_of), finer)) = levels.split_first() else {
        places.extend(pools.into_iter().map(|pool| Place::Pool { depth, pool }));
        return;
    };
    let mut groups: Vec<u32> = cpus.iter().map(|cpu| group_of(cpu)).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.len() < 2 {
        return add(cpus, finer, depth, pools, places);
    }
    let mut rest = pools;
    let mut inside = Vec::new();
    for group in groups {
        let members: Vec<&Cpu> =
            cpus.iter().copied().filter(|cpu| group_of(cpu) == group).collect();
        let set: CpuSet = members.iter().map(|cpu| cpu.id).collect();
        let (within, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|pool| pool.set.is_subset(&set));
        rest = others;
        if !within.is_empty() {
            inside.push(Place::Group { depth, name: format!("{name} {group}  cpus {set}") });
            add(&members, finer, depth + 1, within, &mut inside);
        }
    }
    // Pools that span several groups come first, at this depth.
    places.extend(rest.into_iter().map(|pool| Place::Pool { depth, pool }));
    places.append(&mut inside);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(id: u64, cpus: &str) -> Pool {
        Pool { id, ..Pool::of(cpus) }
    }

    /// The drawing, as depths with the group's name or the pool's number.
    fn lines(topology: &Topology, pools: &[Pool]) -> Vec<String> {
        let line = |place: &Place<'_>| match place {
            Place::Group { depth, name } => format!("{depth} {name}"),
            Place::Pool { depth, pool } => format!("{depth} pool {}", pool.id),
        };
        places(topology, pools).iter().map(line).collect()
    }

    #[test]
    fn each_pool_is_below_the_smallest_group_that_contains_it() {
        let topology: Topology = "package:2 llc:2 core:2".parse().unwrap();
        let pools = [pool(0, "0"), pool(1, "4-5"), pool(2, "0-7"), pool(3, "0-3")];
        assert_eq!(
            lines(&topology, &pools),
            [
                "0 pool 2",
                "0 package 0  cpus 0-3",
                "1 pool 3",
                "1 llc 0  cpus 0-1",
                "2 pool 0",
                "0 package 1  cpus 4-7",
                "1 llc 2  cpus 4-5",
                "2 pool 1",
            ]
        );
    }

    #[test]
    fn a_machine_without_groups_has_pools_alone() {
        let pools = [pool(1, "1"), pool(0, "0")];
        assert_eq!(lines(&Topology::flat(2), &pools), ["0 pool 0", "0 pool 1"]);
    }
}
