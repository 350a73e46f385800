//! The notation of machines: its meaning, its round trip, and its error messages.

use proptest::prelude::*;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Cpu, Topology, TopologyError};

fn machine(text: &str) -> Topology {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn groups(topology: &Topology, group: fn(&Cpu) -> u32) -> Vec<u32> {
    topology.cpus().iter().map(group).collect()
}

fn count(topology: &Topology, group: fn(&Cpu) -> u32) -> usize {
    let mut ids = groups(topology, group);
    ids.sort_unstable();
    ids.dedup();
    ids.len()
}

#[test]
fn a_desktop_with_one_cache_in_a_line() {
    let desktop = machine("llc:1 core:12");
    assert_eq!(desktop, Topology::flat(12));
    assert_eq!(desktop.to_string(), "core:12");
}

#[test]
fn a_grace_in_a_line() {
    let grace = machine("core:72  # one mesh, one cache");
    assert_eq!((grace.cpus().len(), count(&grace, |cpu| cpu.llc)), (72, 1));
    assert_eq!(count(&grace, |cpu| cpu.core), 72);
}

#[test]
fn a_server_of_two_sockets_with_two_dies_in_a_line() {
    let server = machine("package:2 node:2 llc:4 core:8 smt:2");
    assert_eq!(server.cpus().len(), 256);
    assert_eq!(count(&server, |cpu| cpu.package), 2);
    assert_eq!(server.nodes(), [0, 1, 2, 3]);
    assert_eq!(count(&server, |cpu| cpu.llc), 16);
    assert_eq!(count(&server, |cpu| cpu.core), 128);
    assert_eq!(server.node_cpus(3).to_string(), "192-255");
    assert_eq!(server.node_cpus(4), CpuSet::new());
    assert_eq!(server.to_string(), "package:2 node:2 llc:4 core:8 smt:2");
}

#[test]
fn a_big_little_board_in_a_line() {
    let board = machine("cluster:1 core:4 capacity:446 + cluster:1 core:4");
    assert_eq!(groups(&board, |cpu| cpu.cluster), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(groups(&board, |cpu| cpu.capacity), [446, 446, 446, 446, 1024, 1024, 1024, 1024]);
    assert_eq!(count(&board, |cpu| cpu.llc), 1);
    assert_eq!(board.to_string(), "cluster:1 core:4 capacity:446 + cluster:1 core:4");
}

#[test]
fn a_hybrid_desktop_nests_a_sum_in_a_product() {
    let hybrid = machine("llc:1 (cluster:8 smt:2 + cluster:2 core:4 capacity:600)");
    assert_eq!(hybrid.cpus().len(), 24);
    assert_eq!(count(&hybrid, |cpu| cpu.core), 16);
    assert_eq!(count(&hybrid, |cpu| cpu.cluster), 10);
    assert_eq!((hybrid.distance(0, 1), hybrid.distance(16, 17), hybrid.distance(0, 2)), (1, 2, 3));
}

#[test]
fn a_sum_in_a_product_is_repeated_and_capacity_is_inherited() {
    let text =
        "package:2 (llc:1 core:2 capacity:300 + llc:1 capacity:500 (core:1 + core:1 capacity:700))";
    let board = machine(text);
    assert_eq!(groups(&board, |cpu| cpu.capacity), [300, 300, 500, 700, 300, 300, 500, 700]);
    assert_eq!(groups(&board, |cpu| cpu.llc), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(groups(&board, |cpu| cpu.package), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn parts_of_a_sum_share_the_levels_that_they_omit() {
    let cores = machine("core:2 + core:2 smt:2");
    assert_eq!(count(&cores, |cpu| cpu.llc), 1);
    assert_eq!(groups(&cores, |cpu| cpu.core), [0, 1, 2, 2, 3, 3]);
    let caches = machine("llc:1 core:2 + llc:1 core:1");
    assert_eq!(groups(&caches, |cpu| cpu.llc), [0, 0, 1]);
    assert_eq!(count(&caches, |cpu| cpu.node), 1);
}

#[test]
fn threads_last_numbers_the_first_threads_of_all_cores_first() {
    let desktop = machine("core:4 smt:2 numbering:threads-last");
    assert_eq!(groups(&desktop, |cpu| cpu.core), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(desktop.to_string(), "core:4 smt:2 numbering:threads-last");
    let hybrid = machine("core:2 smt:2 + core:2 numbering:threads-last");
    assert_eq!(groups(&hybrid, |cpu| cpu.core), [0, 1, 2, 3, 0, 1]);
}

#[test]
fn isolated_and_offline_cpus_are_named_at_the_end() {
    let text = "core:8 isolated:6-7 offline:3,5";
    let desktop = machine(text);
    assert_eq!(desktop.isolated().to_string(), "6-7");
    assert_eq!(desktop.online().to_string(), "0-2,4,6-7");
    assert_eq!(desktop.possible().len(), 8);
    assert_eq!(desktop.to_string(), text);
}

#[test]
fn a_machine_with_a_cache_across_nodes_prints_as_a_listing() {
    let cpus = (0..4).map(|id| Cpu { node: id / 2, ..Cpu::alone(id) });
    let clustered = Topology::new(cpus.collect()).unwrap();
    let text = clustered.to_string();
    assert_eq!(text.lines().next(), Some("cpu:0 core:0 cluster:0 llc:0 node:0 package:0"));
    assert_eq!(machine(&text), clustered);
}

#[test]
fn holes_in_the_numbers_survive() {
    let text = "cpu:1,65 core:7 cluster:7 llc:0 node:4 package:0 capacity:512\noffline:65";
    let odd = machine(text);
    assert_eq!(odd.cpu(65).map(|cpu| (cpu.core, cpu.online)), Some((7, false)));
    assert_eq!((odd.cpu(0), odd.cpu(64)), (None, None));
    assert_eq!(odd.to_string(), text);
}

#[test]
fn distance_grows_from_the_core_outwards() {
    let server = machine("package:2 node:2 llc:2 cluster:2 core:2 smt:2");
    let distances = [0, 1, 2, 4, 8, 16, 32].map(|cpu| server.distance(0, cpu));
    assert_eq!(distances, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(server.distance(0, 9999), 6);
}

#[test]
fn taking_cpus_offline_makes_a_new_machine() {
    let whole = machine("core:4 smt:2");
    let half = whole.with_online(&"0-3,77".parse().unwrap()).unwrap();
    assert_eq!((half.online().to_string().as_str(), half.possible().len()), ("0-3", 8));
    assert_eq!(whole.with_online(&CpuSet::new()), Err(TopologyError::NoCpu));
}

#[test]
fn the_machines_in_the_document_are_machines() {
    let source = include_str!("../../src/topology.rs");
    let lines = source.lines().filter_map(|line| line.strip_prefix("///"));
    let document = lines.map(str::trim_start).collect::<Vec<_>>().join("\n");
    let table =
        document.split_once("| machine | notation |").unwrap().1.split_once("\n\n").unwrap().0;
    let notations = table.lines().filter_map(|row| row.split('`').nth(1));
    assert_eq!(notations.map(|notation| machine(notation).cpus().len()).min(), Some(8));
    let listing = document.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    assert_eq!(machine(listing).to_string(), listing.trim_end());
}

#[test]
fn impossible_lists_of_cpus_are_refused() {
    let two = |change: fn(&mut Cpu)| {
        let mut second = Cpu::alone(1);
        change(&mut second);
        Topology::new(vec![Cpu::alone(0), second]).unwrap_err()
    };
    assert_eq!(Topology::new(Vec::new()), Err(TopologyError::NoCpu));
    assert_eq!(two(|cpu| cpu.id = 0), TopologyError::Duplicate(0));
    assert_eq!(two(|cpu| cpu.id = 8_192), TopologyError::OutOfRange(8_192));
    assert_eq!(two(|cpu| cpu.capacity = 0), TopologyError::Capacity { cpu: 1, capacity: 0 });
    let split = two(|cpu| *cpu = Cpu { core: 0, cluster: 0, llc: 1, ..*cpu });
    assert_eq!(split, TopologyError::SplitCore { core: 0, level: "llc" });
    assert_eq!(split.to_string(), "the threads of core 0 must share their llc");
}

#[test]
fn an_impossible_machine_names_the_part_and_what_is_allowed() {
    const LEVELS: &str = "package, node, llc, cluster, core, smt";
    let cases = [
        (
            "",
            1,
            "the text describes no machine (allowed: for example package:2 llc:2 core:4 smt:2)"
                .to_owned(),
        ),
        (
            "# nothing\n",
            1,
            "the text describes no machine (allowed: for example package:2 llc:2 \
            core:4 smt:2)"
                .to_owned(),
        ),
        ("\n\ncore:0", 3, "'core:0': expected core:NUMBER (allowed: 1 to 8192)".to_owned()),
        ("core", 1, "'core': expected core:NUMBER (allowed: 1 to 8192)".to_owned()),
        ("core:-4", 1, "'core:-4': expected core:NUMBER (allowed: 1 to 8192)".to_owned()),
        ("socket:2", 1, format!("'socket:2': unknown level 'socket' (allowed: {LEVELS})")),
        (
            "core:4 llc:2",
            1,
            format!("'llc:2': levels go from coarse to fine, each once (allowed: {LEVELS})"),
        ),
        (
            "core:4 core:2",
            1,
            format!("'core:2': levels go from coarse to fine, each once (allowed: {LEVELS})"),
        ),
        (
            "llc:1 (node:2)",
            1,
            format!("'node:2': levels go from coarse to fine, each once (allowed: {LEVELS})"),
        ),
        ("package:300 core:300", 1, "the machine has more than 8192 CPUs".to_owned()),
        (
            "package:8192 node:8192 llc:8192 cluster:8192 core:8192",
            1,
            "the machine has more than 8192 CPUs".to_owned(),
        ),
        ("core:4 +", 1, format!("expected LEVEL:COUNT before the end (levels: {LEVELS})")),
        ("core:4 + )", 1, format!("expected LEVEL:COUNT before ')' (levels: {LEVELS})")),
        ("llc:2\n(core:4", 2, "'(' without its ')'".to_owned()),
        (
            "core:4 + llc:1",
            1,
            "'llc:1': the parts of a sum must begin with the same level (allowed: core)".to_owned(),
        ),
        (
            "core:4 capacity:1025",
            1,
            "'capacity:1025': expected capacity:NUMBER (allowed: 1 to 1024)".to_owned(),
        ),
        (
            "capacity:100 core:4",
            1,
            "'capacity:100': a capacity stands once behind the levels it is for".to_owned(),
        ),
        (
            "core:4\nisolated:2-5",
            2,
            "'isolated:2-5': the machine has no CPU 4-5 (allowed: 0-3)".to_owned(),
        ),
        (
            "core:4 offline:x",
            1,
            "'offline:x': 'x' is not a CPU number (allowed: a list such as \
            0-3,8 of numbers below 8192)"
                .to_owned(),
        ),
        ("core:4 offline:0-3", 1, "'offline:0-3': at least one CPU must stay online".to_owned()),
        ("core:4 offline:1 offline:2", 1, "'offline:2': an option may stand only once".to_owned()),
        (
            "core:4 numbering:odd",
            1,
            "'numbering:odd': unknown numbering (allowed: threads-last)".to_owned(),
        ),
        (
            "llc:2 (core:4) core:2",
            1,
            "'core:2': only '+' or an option may follow here (allowed: \
            isolated:LIST, offline:LIST, numbering:threads-last)"
                .to_owned(),
        ),
    ];
    for (text, line, message) in cases {
        let error = text.parse::<Topology>().expect_err(text);
        assert_eq!((error.line(), error.message()), (line, message.as_str()), "{text:?}");
    }
}

#[test]
fn an_impossible_listing_names_the_clause() {
    let clause = "core:0 cluster:0 llc:0 node:0 package:0";
    let cases = [
        (format!("cpu:0 {clause}\ncpu:0-1 {clause}"), 2, "'cpu:0-1': CPU 0 appears twice"),
        (format!("cpu: {clause}"), 1, "'cpu:': no CPU (allowed: "),
        (
            "cpu:0 core:0 cluster:0 node:0 package:0".to_owned(),
            1,
            "'cpu:0': llc is missing (allowed: ",
        ),
        (format!("cpu:0 {clause} core:1"), 1, "'core:1': given twice (allowed: "),
        (format!("cpu:0 {clause} smt:1"), 1, "'smt:1': not part of a clause (allowed: "),
        (
            format!("cpu:0 {clause}\ncpu:1 core:0 cluster:0 llc:1 node:0 package:0"),
            1,
            "the threads of core 0 must share their llc",
        ),
        (
            format!("cpu:0 {clause} numbering:threads-last"),
            1,
            "'numbering:threads-last': a listing gives the numbers itself",
        ),
    ];
    for (text, line, message) in cases {
        let error = text.parse::<Topology>().expect_err(&text);
        assert_eq!(error.line(), line, "{text:?}");
        assert!(error.message().starts_with(message), "{text:?}: {error}");
    }
}

/// Any machine whose cores are not split, however odd otherwise.
fn any_machine() -> impl Strategy<Value = Topology> {
    let core = (1..4u32, 0..4u32, 0..4u32, 0..3u32, 0..3u32, 1..=1024u32, any::<u8>());
    (prop::collection::vec(core, 1..12), 1..4u32).prop_map(|(cores, stride)| {
        let mut cpus = Vec::new();
        for (core, (threads, cluster, llc, node, package, capacity, flags)) in (0..).zip(cores) {
            for _ in 0..threads {
                let id = cpus.len() as u32 * stride;
                let (isolated, online) = (flags & 1 != 0, id == 0 || flags & 2 != 0);
                cpus.push(Cpu {
                    id,
                    core,
                    cluster,
                    llc,
                    node,
                    package,
                    capacity,
                    isolated,
                    online,
                });
            }
        }
        Topology::new(cpus).unwrap()
    })
}

fn any_levels() -> impl Strategy<Value = String> {
    (1..3u32, 1..3u32, 1..4u32, 1..4u32, 1..4u32, 1..3u32, any::<bool>()).prop_map(
        |(package, node, llc, cluster, core, smt, last)| {
            let numbering = if last { " numbering:threads-last" } else { "" };
            format!("package:{package} node:{node} llc:{llc} cluster:{cluster} core:{core} smt:{smt}{numbering}")
        },
    )
}

proptest! {
    #[test]
    fn printing_and_reading_back_gives_the_same_machine(topology in any_machine()) {
        prop_assert_eq!(topology.to_string().parse(), Ok(topology));
    }

    #[test]
    fn regular_machines_print_as_levels(text in any_levels()) {
        let topology = machine(&text);
        let printed = topology.to_string();
        prop_assert!(!printed.contains("cpu:") && printed.len() <= text.len(), "{}", printed);
        prop_assert_eq!(machine(&printed), topology);
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "package:2", "node:2", "llc:2", "core:3", "smt:2", "cluster:1", "capacity:9", "+", "(", ")",
                "isolated:0", "offline:1", "numbering:threads-last", "cpu:0", "cpu:1-2", "core:", ":", "#", "\n",
            ]),
            0..10,
        ),
    ) {
        let text = words.join(" ");
        match text.parse::<Topology>() {
            Ok(topology) => prop_assert_eq!(topology.to_string().parse(), Ok(topology)),
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
        }
    }

    #[test]
    fn distance_is_symmetric_and_zero_only_to_itself(topology in any_machine()) {
        for a in topology.cpus() {
            for b in topology.cpus() {
                prop_assert_eq!(topology.distance(a.id, b.id), topology.distance(b.id, a.id));
                prop_assert_eq!(topology.distance(a.id, b.id) == 0, a.id == b.id);
            }
        }
    }
}
