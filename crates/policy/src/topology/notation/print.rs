//! Prints a machine as the shortest text that reads back as the same machine.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::syntax::Level;
use crate::topology::{Cpu, FULL_CAPACITY, Topology};

pub(super) fn notation(topology: &Topology) -> String {
    let options = options(topology);
    let levels = levels(topology);
    let short = [format!("{levels}{options}"), format!("{levels} numbering:threads-last{options}")];
    // Some machines have no short form (holes in the numbers, caches that span nodes, ..). Reading
    // the text back detects every such case, so this code does not need to know them.
    let faithful = short.into_iter().find(|text| text.parse().as_ref() == Ok(topology));
    faithful.unwrap_or_else(|| format!("{}{}", listing(topology), options.replace(' ', "\n")))
}

fn options(topology: &Topology) -> String {
    let mut text = String::new();
    let offline = topology.possible().and_not(topology.online());
    for (name, cpus) in [("isolated", topology.isolated()), ("offline", &offline)] {
        if !cpus.is_empty() {
            let _ = write!(text, " {name}:{cpus}");
        }
    }
    text
}

/// A product, or a sum of several, which needs parentheses inside another product.
#[derive(PartialEq)]
struct Text {
    text: String,
    is_sum: bool,
}

fn levels(topology: &Topology) -> String {
    let cpus: Vec<&Cpu> = topology.cpus().iter().collect();
    let cores: HashSet<u32> = cpus.iter().map(|cpu| cpu.core).collect();
    let clusters: HashSet<u32> = cpus.iter().map(|cpu| cpu.cluster).collect();
    let mut shown = vec![Level::Package, Level::Node, Level::Llc, Level::Cluster, Level::Core];
    if clusters.len() == cores.len() {
        shown.retain(|level| *level != Level::Cluster);
    }
    inside(&cpus, &shown).text
}

/// The contents of a group of CPUs, from the level `shown[0]` on.
fn inside(cpus: &[&Cpu], shown: &[Level]) -> Text {
    let Some((&level, finer)) = shown.split_first() else {
        return Text { text: threads(cpus), is_sum: false };
    };
    let groups = grouped(cpus, level);
    if groups.len() == 1 && level < Level::Cluster {
        return inside(&groups[0], finer);
    }
    let mut parts: Vec<(u32, Text)> = Vec::new();
    for group in &groups {
        let content = inside(group, finer);
        match parts.last_mut() {
            Some((count, same)) if *same == content => *count += 1,
            _ => parts.push((1, content)),
        }
    }
    let is_sum = parts.len() > 1;
    let parts = parts.into_iter().map(|(count, content)| match content {
        Text { text, is_sum: true } => format!("{}:{count} ({text})", level.name()),
        Text { text, .. } if text.is_empty() => format!("{}:{count}", level.name()),
        Text { text, .. } => format!("{}:{count} {text}", level.name()),
    });
    Text { text: parts.collect::<Vec<_>>().join(" + "), is_sum }
}

/// The groups of a level among these CPUs, in the order of their first CPU.
fn grouped<'a>(cpus: &[&'a Cpu], level: Level) -> Vec<Vec<&'a Cpu>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Vec<&Cpu>> = Vec::new();
    for cpu in cpus {
        let place = *places.entry(group_of(cpu, level)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(cpu);
    }
    groups
}

fn group_of(cpu: &Cpu, level: Level) -> u32 {
    match level {
        Level::Package => cpu.package,
        Level::Node => cpu.node,
        Level::Llc => cpu.llc,
        Level::Cluster => cpu.cluster,
        Level::Core => cpu.core,
        Level::Smt => cpu.id,
    }
}

/// The contents of a core.
fn threads(cpus: &[&Cpu]) -> String {
    let mut words = Vec::new();
    if cpus.len() > 1 {
        words.push(format!("smt:{}", cpus.len()));
    }
    if cpus[0].capacity != FULL_CAPACITY {
        words.push(format!("capacity:{}", cpus[0].capacity));
    }
    words.join(" ")
}

/// One line per core, or per kind of thread in it.
fn listing(topology: &Topology) -> String {
    let mut clauses: Vec<(Cpu, Vec<u32>)> = Vec::new();
    let mut places = HashMap::new();
    for cpu in topology.cpus() {
        let place = *places.entry((cpu.core, cpu.capacity)).or_insert(clauses.len());
        if place == clauses.len() {
            clauses.push((*cpu, Vec::new()));
        }
        clauses[place].1.push(cpu.id);
    }
    let lines = clauses.into_iter().map(|(cpu, ids)| {
        let list: crate::cpuset::CpuSet = ids.into_iter().collect();
        let Cpu { core, cluster, llc, node, package, capacity, .. } = cpu;
        let mut line = format!(
            "cpu:{list} core:{core} cluster:{cluster} llc:{llc} node:{node} package:{package}"
        );
        if capacity != FULL_CAPACITY {
            let _ = write!(line, " capacity:{capacity}");
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}
