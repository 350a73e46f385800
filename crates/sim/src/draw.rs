//! Random scripts: for each seed one history, with faults.
//!
//! An item waits only for items of later queues, and queues only items of higher numbers or itself,
//! a limited number of times. So every history ends, whatever the engine's schedule.

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chance;
use crate::machines;
use crate::script::{BOUND_NS, Faults, ItemLine, QueueKind, QueueLine, Script, Step};
use crate::setup::{MS, US};

/// The items of a history.
pub const ITEMS: usize = 200;
/// The machines of histories.
const MACHINES: [&str; 10] = [
    "core:1",
    "core:2",
    "core:2",
    "core:4",
    "llc:2 core:1",
    "llc:2 core:2",
    "node:2 core:2",
    "core:2 smt:2",
    "node:3 core:1",
    "llc:3 core:4",
];
/// Pauses of a thread, among its submissions.
const PAUSE_ONE_IN: u64 = 4;

/// The script of this seed.
#[must_use]
pub fn draw(seed: u64) -> Script {
    let mut chance = Chance::new(!seed);
    let machine = *chance.pick(&MACHINES);
    let topology = machines::machine(machine).expect("a notation");
    let cpus = topology.online().len() as u32;
    let nodes = topology.nodes().len();
    let queues: Vec<QueueLine> =
        (0..1 + chance.below(4)).map(|at| queue(&mut chance, at, cpus, nodes)).collect();
    let mut script = Script {
        machine: machine.to_owned(),
        seed,
        bound_ns: BOUND_NS,
        faults: faults(&mut chance),
        queues,
        items: Vec::new(),
        threads: Vec::new(),
    };
    // In the order of the queues, so that an item of a higher number is on a later queue or on its own.
    let count = script.queues.len();
    for at in 0..ITEMS {
        let name = format!("i{at}");
        script.items.push(ItemLine { name, queue: at * count / ITEMS, steps: Vec::new() });
    }
    for at in 0..ITEMS {
        script.items[at].steps = item_steps(&mut chance, &script, at);
    }
    let threads = 1 + chance.below(3) as usize;
    let mut order: Vec<usize> = (0..ITEMS).collect();
    for at in (1..ITEMS).rev() {
        order.swap(at, chance.below(at as u64 + 1) as usize);
    }
    for thread in 0..threads {
        let own = order.iter().copied().skip(thread).step_by(threads);
        let steps = thread_steps(&mut chance, own, cpus);
        script.threads.push(steps);
    }
    if cpus > 1 && chance.below(8) == 0 {
        script.threads.push(administrator(&mut chance, cpus));
    }
    script.faults.set("memory", *chance.pick(&[0, 0, 0, 4]));
    script
}

fn faults(chance: &mut Chance) -> Faults {
    let mut faults = Faults::default();
    let mut set = |name, values: &[u64]| {
        faults.set(name, *chance.pick(values));
    };
    set("order", &[0, 1]);
    set("preempt", &[0, 0, 5, 40]);
    set("stall", &[0, 0, 0, 200]);
    set("early", &[0, 0, 0, 10]);
    set("late", &[0, 0, 0, 20]);
    set("spawn", &[0, 0, 0, 0, 0, 0, 0, 3]);
    set("jump", &[0, 0, 0, 50]);
    set("wake_ns", &[0, 5 * US, 50 * US]);
    set("spawn_ns", &[0, 20 * US, 100 * US]);
    faults
}

fn queue(chance: &mut Chance, at: u64, cpus: u32, nodes: usize) -> QueueLine {
    let (kind, flags) = match chance.below(10) {
        0..3 => (QueueKind::PerCpu, *chance.pick(&[Flags::empty(), Flags::HIGHPRI])),
        3 => (QueueKind::PerCpu, *chance.pick(&[Flags::CPU_INTENSIVE, Flags::MEM_RECLAIM])),
        4..6 => (QueueKind::Unbound, *chance.pick(&[Flags::empty(), Flags::MEM_RECLAIM])),
        6..8 => (QueueKind::Ordered, Flags::empty()),
        8 => (QueueKind::Bh, Flags::empty()),
        _ => (QueueKind::Dedicated, Flags::empty()),
    };
    let is_unbound = kind == QueueKind::Unbound;
    let is_limited = is_unbound || kind == QueueKind::PerCpu;
    // Only a limit above the least share of a node is divided among the nodes.
    let limits: &[Option<u32>] = match nodes {
        1 => &[Some(1), Some(2), Some(3), None],
        _ => &[Some(1), Some(2), Some(3), Some(12), Some(20), None],
    };
    let max_active = if is_limited { *chance.pick(limits) } else { None };
    let scope = *chance.pick(&AffinityScope::ALL);
    let some_cpus = is_unbound && chance.below(3) == 0;
    QueueLine {
        name: format!("q{at}"),
        kind,
        flags,
        max_active,
        scope: (is_unbound && chance.below(4) > 0).then_some(scope),
        strict: is_unbound && chance.below(2) == 0,
        cpus: some_cpus.then(|| some_of(chance, cpus)),
    }
}

/// About half of the CPUs, at least one.
fn some_of(chance: &mut Chance, cpus: u32) -> CpuSet {
    let some: CpuSet = (0..cpus).filter(|_| chance.below(2) == 0).collect();
    if some.is_empty() { CpuSet::single(0) } else { some }
}

/// 1 us to half a millisecond.
fn brief(chance: &mut Chance) -> u64 {
    US << chance.below(10)
}

fn item_steps(chance: &mut Chance, script: &Script, at: usize) -> Vec<Step> {
    let queue = script.items[at].queue;
    let is_bh = script.queues[queue].kind == QueueKind::Bh;
    // The first item of the next queue; all from it on are on later queues.
    let later = script.items.iter().position(|item| item.queue > queue);
    let later_item = |chance: &mut Chance| {
        let first = later.unwrap_or(ITEMS);
        (first < ITEMS).then(|| first + chance.below((ITEMS - first) as u64) as usize)
    };
    let mut steps = vec![Step::Burn(brief(chance))];
    for _ in 0..chance.below(3) {
        let step = match chance.below(24) {
            0..4 => Some(Step::Burn(brief(chance))),
            4..7 => Some(Step::Sleep(brief(chance))),
            7 => Some(Step::Sleep(chance.below(20) * MS)),
            8..10 => Some(Step::Doze(brief(chance))),
            10 => Some(Step::Doze(chance.below(20) * MS)),
            11..13 => Some(Step::Lock("l".to_owned(), brief(chance))),
            13..15 => Some(Step::Requeue(1 + chance.below(3))),
            15..17 if at + 1 < ITEMS => {
                let next = at + 1 + chance.below((ITEMS - at - 1) as u64) as usize;
                Some(Step::Queue(next, None))
            }
            17..19 => later_item(chance).map(Step::Flush),
            19 => later_item(chance).map(Step::CancelSync),
            20 => later_item(chance).map(Step::Cancel),
            21 => later_item(chance).map(|item| Step::Fork(item, 1 + chance.below(3))),
            22 => Some(Step::Free),
            23 if chance.below(4) == 0 => Some(Step::Panic),
            _ => None,
        };
        steps.extend(step.filter(|step| !(is_bh && step.may_block())));
    }
    steps
}

/// The steps of a thread that submits these items, and operates on the last ones.
fn thread_steps(chance: &mut Chance, own: impl Iterator<Item = usize>, cpus: u32) -> Vec<Step> {
    let (mut steps, mut known) = (Vec::new(), Vec::new());
    for item in own {
        known.push(item);
        let recent = &known[known.len().saturating_sub(8)..];
        if chance.one_in(PAUSE_ONE_IN) {
            let pause = brief(chance) * 2;
            steps.push(if chance.below(3) == 0 { Step::Burn(pause) } else { Step::Doze(pause) });
        }
        steps.push(match chance.below(8) {
            0..4 => Step::Queue(item, None),
            4..7 => Step::Queue(item, Some(chance.below(u64::from(cpus)) as u32)),
            _ => Step::Arm(item, brief(chance) * 4),
        });
        let at = *chance.pick(recent);
        match chance.below(12) {
            0..2 => steps.push(Step::Queue(at, None)),
            2 => steps.push(Step::Flush(at)),
            3 => steps.push(Step::Cancel(at)),
            4 => steps.push(Step::CancelSync(at)),
            _ => {}
        }
    }
    steps
}

/// A thread that takes CPUs away and gives them back.
fn administrator(chance: &mut Chance, cpus: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..1 + chance.below(3) {
        let left = some_of(chance, cpus);
        steps.extend([Step::Doze(brief(chance) * 8), Step::Cpus(Some(left))]);
        steps.extend([Step::Doze(brief(chance) * 8), Step::Cpus(None)]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::parse;

    #[test]
    fn a_drawn_script_survives_printing_and_reading() {
        for seed in 0..200 {
            let script = draw(seed);
            assert_eq!(parse(&script.to_string()).unwrap(), script, "seed {seed}");
        }
    }
}
