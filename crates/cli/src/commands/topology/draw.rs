//! Draws a machine as a tree of packages, nodes, caches and clusters. The cores of a group share
//! one line.

use std::collections::HashMap;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Cpu, FULL_CAPACITY, Topology};

/// If more adjacent branches than this have the same shape, the middle ones are left out.
const MAX_ALIKE: usize = 4;
/// If a group has more cores than this, the middle ones are left out.
const MAX_CORES: usize = 8;

struct Level {
    name: &'static str,
    group: fn(&Cpu) -> u32,
    /// The number of CPUs of each group in the whole machine.
    sizes: HashMap<u32, usize>,
}

impl Level {
    fn new(name: &'static str, group: fn(&Cpu) -> u32, cpus: &[&Cpu]) -> Self {
        let sizes = groups(cpus, group).iter().map(|cpus| (group(cpus[0]), cpus.len())).collect();
        Self { name, group, sizes }
    }
}

struct Branch {
    name: String,
    cpus: CpuSet,
    /// The contents without numbers; equal for branches of the same shape.
    shape: String,
    /// The cores, if the branch has no inner level.
    cores: String,
    inside: Vec<Branch>,
}

/// The tree as several lines, without a trailing line break.
pub(super) fn tree(topology: &Topology) -> String {
    let cpus: Vec<&Cpu> = topology.cpus().iter().collect();
    let mut levels = vec![
        Level::new("package", |cpu| cpu.package, &cpus),
        Level::new("node", |cpu| cpu.node, &cpus),
        Level::new("llc", |cpu| cpu.llc, &cpus),
    ];
    let cluster = Level::new("cluster", |cpu| cpu.cluster, &cpus);
    if cluster.sizes.len() < groups(&cpus, |cpu| cpu.core).len() {
        levels.push(cluster);
    }
    let mut lines = vec![format!("machine  {}", topology.possible())];
    draw(&branches(&cpus, &levels), "", &mut lines);
    lines.join("\n")
}

fn branches(cpus: &[&Cpu], levels: &[Level]) -> Vec<Branch> {
    let Some((level, finer)) = levels.split_first() else {
        return Vec::new();
    };
    groups(cpus, level.group).iter().map(|group| branch(group, level, finer)).collect()
}

fn branch(group: &[&Cpu], level: &Level, finer: &[Level]) -> Branch {
    let id = (level.group)(group[0]);
    // A group may extend beyond one group of the level above: a cache shared by two nodes is drawn
    // in both.
    let part = if level.sizes[&id] == group.len() { "" } else { " (part)" };
    let inside = branches(group, finer);
    let (cores, core_shape) = if inside.is_empty() { cores(group) } else { Default::default() };
    let shapes: Vec<&str> = inside.iter().map(|branch| branch.shape.as_str()).collect();
    Branch {
        name: format!("{} {id}{part}", level.name),
        cpus: group.iter().map(|cpu| cpu.id).collect(),
        shape: format!("{}{part}[{}{core_shape}]", level.name, shapes.join(",")),
        cores,
        inside,
    }
}

/// The drawn cores of a group, and their shape.
fn cores(group: &[&Cpu]) -> (String, String) {
    let cores = groups(group, |cpu| cpu.core);
    let counted =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut shape = counted(cores.len(), "core");
    let threads: Vec<usize> = cores.iter().map(Vec::len).collect();
    let (fewest, most) = (threads.iter().min().copied(), threads.iter().max().copied());
    match (fewest.unwrap_or(1), most.unwrap_or(1)) {
        (1, 1) => {}
        (fewest, most) if fewest == most => shape.push_str(&format!(" of {most} threads")),
        (fewest, most) => shape.push_str(&format!(" of {fewest} to {most} threads")),
    }
    let capacities: Vec<u32> = group.iter().map(|cpu| cpu.capacity).collect();
    let (low, high) = (capacities.iter().min().copied(), capacities.iter().max().copied());
    match (low.unwrap_or(FULL_CAPACITY), high.unwrap_or(FULL_CAPACITY)) {
        (FULL_CAPACITY, _) => {}
        (low, high) if low == high => shape.push_str(&format!(", capacity {low}")),
        (low, high) => shape.push_str(&format!(", capacity {low} to {high}")),
    }
    let siblings =
        cores.iter().map(|core| core.iter().map(|cpu| cpu.id).collect::<CpuSet>().to_string());
    let drawn = match most {
        Some(1) => shape.clone(),
        _ => format!("{shape}: {}", shortened(siblings.collect(), MAX_CORES)),
    };
    (format!("  {drawn}"), shape)
}

/// The words separated by spaces. If there are more than `max`, the middle ones are left out.
pub(super) fn shortened(words: Vec<String>, max: usize) -> String {
    match words.len() > max {
        true => format!("{} .. {}", words[..max - 1].join(" "), words[words.len() - 1]),
        false => words.join(" "),
    }
}

fn groups<'a>(cpus: &[&'a Cpu], group: fn(&Cpu) -> u32) -> Vec<Vec<&'a Cpu>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Vec<&Cpu>> = Vec::new();
    for cpu in cpus {
        let place = *places.entry(group(cpu)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(cpu);
    }
    groups
}

fn draw(branches: &[Branch], indent: &str, lines: &mut Vec<String>) {
    let mut at = 0;
    while let Some(branch) = branches.get(at) {
        let alike = branches[at..].iter().take_while(|other| other.shape == branch.shape).count();
        let (shown, left_out) = if alike > MAX_ALIKE { (2, alike - 3) } else { (alike, 0) };
        for branch in &branches[at..at + shown] {
            draw_one(branch, std::ptr::eq(branch, &branches[branches.len() - 1]), indent, lines);
        }
        if left_out > 0 {
            lines.push(format!("{indent}├─ .. {left_out} more like these"));
            let last = at + alike - 1;
            draw_one(&branches[last], last + 1 == branches.len(), indent, lines);
        }
        at += alike;
    }
}

fn draw_one(branch: &Branch, last: bool, indent: &str, lines: &mut Vec<String>) {
    let (corner, below) = if last { ("└─", "   ") } else { ("├─", "│  ") };
    lines.push(format!("{indent}{corner} {}  {}{}", branch.name, branch.cpus, branch.cores));
    draw(&branch.inside, &format!("{indent}{below}"), lines);
}
