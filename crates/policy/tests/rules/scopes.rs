//! Affinity scopes: the pods of each, the default's fallback, masks, and the choice of a CPU.

use proptest::prelude::*;
use uwork_policy::cpu_choice::{NodeChoice, choose_node};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{
    AffinityScope, AffinityScopeChoice, DEFAULT_SHARD_SIZE, EffectiveAffinityScope, Pods,
    effective_cpumask, effective_scope, pod_cpumask,
};
use uwork_policy::topology::Topology;

fn machine(text: &str) -> Topology {
    text.parse().unwrap()
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn pods(topology: &Topology, scope: AffinityScope) -> Vec<String> {
    Pods::of(topology, scope, DEFAULT_SHARD_SIZE).pods().iter().map(CpuSet::to_string).collect()
}

fn default_scope(topology: &Topology, default: AffinityScope) -> EffectiveAffinityScope {
    effective_scope(
        topology,
        AffinityScopeChoice::Default,
        default,
        topology.online(),
        DEFAULT_SHARD_SIZE,
    )
}

fn shown(text: &str) -> String {
    default_scope(&machine(text), AffinityScope::Cache).to_string()
}

#[test]
fn each_scope_cuts_the_server_at_its_level() {
    let server = machine("package:2 node:2 llc:2 cluster:2 core:2 smt:2");
    let first = AffinityScope::ALL.map(|scope| pods(&server, scope)[0].clone());
    assert_eq!(first, ["0", "0-1", "0-3", "0-7", "0-7", "0-15", "0-63"]);
    let count = AffinityScope::ALL.map(|scope| pods(&server, scope).len());
    assert_eq!(count, [64, 32, 16, 8, 8, 4, 1]);
}

#[test]
fn each_scope_cuts_the_big_little_board_at_its_level() {
    let board = machine("cluster:1 core:4 capacity:446 + cluster:1 core:4");
    assert_eq!(pods(&board, AffinityScope::Cluster), ["0-3", "4-7"]);
    assert_eq!(pods(&board, AffinityScope::Cache), ["0-7"]);
    assert_eq!(pods(&board, AffinityScope::Smt).len(), 8);
}

#[test]
fn cache_shards_never_split_the_threads_of_a_core() {
    assert_eq!(pods(&machine("core:12 smt:2"), AffinityScope::CacheShard), ["0-11", "12-23"]);
    let threads_last = machine("core:12 smt:2 numbering:threads-last");
    assert_eq!(pods(&threads_last, AffinityScope::CacheShard), ["0-5,12-17", "6-11,18-23"]);
}

#[test]
fn cache_shards_stay_within_their_cache() {
    assert_eq!(pods(&machine("llc:3 core:4"), AffinityScope::CacheShard), ["0-3", "4-7", "8-11"]);
    let grace = pods(&machine("core:72"), AffinityScope::CacheShard);
    assert_eq!((grace.len(), grace[8].as_str()), (9, "64-71"));
    let single: Vec<CpuSet> =
        Pods::of(&machine("core:2 smt:2"), AffinityScope::CacheShard, 0).pods().to_vec();
    assert_eq!(single, [set("0-1"), set("2-3")]);
}

#[test]
fn pods_count_offline_cpus_in_their_place() {
    assert_eq!(pods(&machine("llc:2 core:2 offline:0-1"), AffinityScope::Cache), ["0-1", "2-3"]);
}

#[test]
fn a_mask_keeps_the_pods_that_it_intersects() {
    let pods = Pods::of(&machine("llc:4 core:2"), AffinityScope::Cache, 8);
    let left: Vec<_> = pods.restricted(&set("1-2,7,99")).collect();
    assert_eq!(left, [(0, set("1")), (1, set("2")), (3, set("7"))]);
    assert_eq!((pods.pod_of(5), pods.pod_of(8)), (Some(2), None));
}

#[test]
fn twelve_cores_on_one_cache_fall_back() {
    assert_eq!(shown("llc:1 core:12"), "default (cache -> cache_shard)");
    assert_eq!(shown("llc:1 core:12 smt:2"), "default (cache -> cache_shard)");
}

#[test]
fn the_fallback_takes_the_next_finer_scope_with_several_pods() {
    assert_eq!(shown("core:72"), "default (cache -> cache_shard)");
    assert_eq!(
        shown("cluster:1 core:4 capacity:446 + cluster:1 core:4"),
        "default (cache -> cluster)"
    );
    assert_eq!(shown("core:8"), "default (cache -> cluster)");
    assert_eq!(shown("cluster:1 core:4"), "default (cache -> smt)");
    assert_eq!(shown("core:1 smt:2"), "default (cache -> cpu)");
}

#[test]
fn several_pods_or_a_single_cpu_need_no_fallback() {
    assert_eq!(shown("package:2 node:2 core:8 smt:2"), "default (cache)");
    assert_eq!(shown("core:1"), "default (cache)");
}

#[test]
fn a_coarser_default_falls_through_the_same_chain() {
    let server = machine("package:2 core:4");
    assert_eq!(
        default_scope(&server, AffinityScope::System).to_string(),
        "default (system -> numa)"
    );
    let desktop = machine("llc:2 core:4");
    assert_eq!(default_scope(&desktop, AffinityScope::Numa).to_string(), "default (numa -> cache)");
    assert_eq!(default_scope(&desktop, AffinityScope::System).effective, AffinityScope::Cache);
    assert_eq!(default_scope(&desktop, AffinityScope::Cpu).to_string(), "default (cpu)");
}

#[test]
fn the_mask_decides_how_many_pods_count() {
    let server = machine("llc:2 core:4");
    let scope = |mask| {
        effective_scope(&server, AffinityScopeChoice::Default, AffinityScope::Cache, &set(mask), 8)
            .effective
    };
    assert_eq!(scope("0-7"), AffinityScope::Cache);
    assert_eq!(scope("0-3"), AffinityScope::Cluster);
    assert_eq!(scope("3-4"), AffinityScope::Cache);
    assert_eq!(scope("3"), AffinityScope::Cache);
    assert_eq!(scope("3,99"), AffinityScope::Cache);
}

#[test]
fn an_explicit_scope_is_never_changed() {
    let desktop = machine("core:12");
    for scope in AffinityScope::ALL {
        let choice = AffinityScopeChoice::Explicit(scope);
        let found = effective_scope(&desktop, choice, AffinityScope::Cache, desktop.possible(), 8);
        assert_eq!((found.effective, found.to_string()), (scope, scope.to_string()));
    }
}

#[test]
fn scopes_are_named_as_in_the_kernel_and_ordered_from_fine_to_coarse() {
    let names = AffinityScope::ALL.map(|scope| scope.to_string());
    assert_eq!(names, ["cpu", "smt", "cluster", "cache_shard", "cache", "numa", "system"]);
    assert!(AffinityScope::ALL.is_sorted());
    for scope in AffinityScope::ALL {
        assert_eq!(scope.to_string().parse(), Ok(scope));
    }
}

#[test]
fn an_unknown_scope_is_refused_with_the_names_that_are_allowed() {
    assert_eq!(
        "socket".parse::<AffinityScopeChoice>().unwrap_err().to_string(),
        "'socket' is not an affinity scope (allowed: default, cpu, smt, cluster, cache_shard, cache, numa, system)"
    );
    assert!("Cache".parse::<AffinityScope>().is_err());
}

#[test]
fn an_effective_mask_is_never_emptier_than_the_unbound_mask() {
    assert_eq!(effective_cpumask(&set("1-5"), &set("4-9")), set("4-5"));
    assert_eq!(effective_cpumask(&set("1-3"), &set("4-9")), set("4-9"));
    assert_eq!(effective_cpumask(&set(""), &set("4-9")), set("4-9"));
}

#[test]
fn a_pod_without_an_online_cpu_uses_the_whole_mask() {
    assert_eq!(pod_cpumask(&set("0-3"), &set("2-9")), set("2-3"));
    assert_eq!(pod_cpumask(&set("0-3"), &set("4-9")), set("4-9"));
}

/// SEMANTICS 2.10.
#[test]
fn a_node_selects_the_local_cpu_or_its_first_usable_cpu() {
    let server = machine("node:3 core:4 offline:4,8-11");
    let usable = server.online();
    assert_eq!(choose_node(6, Some(1), &server, usable), NodeChoice::Cpu(6));
    assert_eq!(choose_node(0, Some(1), &server, usable), NodeChoice::Cpu(5));
    assert_eq!(choose_node(4, Some(1), &server, usable), NodeChoice::Cpu(5));
    assert_eq!(choose_node(0, Some(2), &server, usable), NodeChoice::Unbound);
    assert_eq!(choose_node(0, Some(3), &server, usable), NodeChoice::Unbound);
    assert_eq!(choose_node(0, None, &server, usable), NodeChoice::Unbound);
    // The CPUs that the process may use count, not those that are online.
    let some = set("0-3,6-7");
    assert_eq!(choose_node(5, Some(1), &server, &some), NodeChoice::Cpu(6));
    assert_eq!(choose_node(5, Some(1), &server, &set("0")), NodeChoice::Unbound);
}

fn any_machine() -> impl Strategy<Value = Topology> {
    (1..3u32, 1..3u32, 1..4u32, 1..4u32, 1..14u32, 1..3u32, any::<bool>()).prop_map(
        |(package, node, llc, cluster, core, smt, last)| {
            let numbering = if last { " numbering:threads-last" } else { "" };
            machine(&format!(
                "package:{package} node:{node} llc:{llc} cluster:{cluster} core:{core} smt:{smt}{numbering}"
            ))
        },
    )
}

proptest! {
    #[test]
    fn pods_partition_the_cpus(topology in any_machine(), shard_size in 0..20u32) {
        for scope in AffinityScope::ALL {
            let pods = Pods::of(&topology, scope, shard_size);
            let mut all = CpuSet::new();
            for (index, pod) in pods.pods().iter().enumerate() {
                prop_assert!(!pod.is_empty() && !pod.intersects(&all));
                prop_assert!(pod.iter().all(|cpu| pods.pod_of(cpu) == Some(index)));
                all = all.or(pod);
            }
            prop_assert_eq!(&all, topology.possible());
            prop_assert!(pods.pods().is_sorted_by_key(CpuSet::first));
        }
    }

    #[test]
    fn a_finer_scope_never_joins_cpus_of_different_coarser_pods(topology in any_machine(), shard_size in 0..20u32) {
        // Clusters and shards both lie within a cache, but neither within the other.
        use AffinityScope::{Cache, CacheShard, Cluster, Cpu, Numa, Smt, System};
        for chain in [&[Cpu, Smt, Cluster, Cache, Numa, System][..], &[Smt, CacheShard, Cache]] {
            for pair in chain.windows(2) {
                let coarse = Pods::of(&topology, pair[1], shard_size);
                for pod in Pods::of(&topology, pair[0], shard_size).pods() {
                    prop_assert!(coarse.pods().iter().any(|around| pod.is_subset(around)));
                }
            }
        }
    }

    #[test]
    fn the_default_never_gives_several_cpus_a_single_pod(topology in any_machine(), shard_size in 0..20u32) {
        for default in AffinityScope::ALL {
            let found =
                effective_scope(&topology, AffinityScopeChoice::Default, default, topology.online(), shard_size);
            let pods = Pods::of(&topology, found.effective, shard_size).pods().len();
            prop_assert!(pods > 1 || topology.cpus().len() == 1);
            prop_assert!(found.effective <= default);
        }
    }
}
