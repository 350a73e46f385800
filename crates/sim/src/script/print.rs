//! Writes scripts.

use std::fmt;

use uwork_policy::flags::Flags;

use super::{BOUND_NS, QueueKind, QueueLine, Script, Step};

/// A time with the biggest unit that divides it.
pub(super) fn time(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.iter().find(|(size, _)| ns > 0 && ns.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ns}ns"), |(size, name)| format!("{}{name}", ns / size))
}

/// The words of a script for a queue's kind.
pub(super) const KINDS: [(&str, QueueKind); 5] = [
    ("percpu", QueueKind::PerCpu),
    ("unbound", QueueKind::Unbound),
    ("ordered", QueueKind::Ordered),
    ("bh", QueueKind::Bh),
    ("dedicated", QueueKind::Dedicated),
];

/// The words of a script for a queue's flags.
pub(super) const FLAGS: [(&str, Flags); 3] = [
    ("highpri", Flags::HIGHPRI),
    ("intensive", Flags::CPU_INTENSIVE),
    ("reclaim", Flags::MEM_RECLAIM),
];

impl fmt::Display for QueueLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = KINDS.iter().find(|known| known.1 == self.kind).map_or("", |known| known.0);
        write!(f, "queue {} {kind}", self.name)?;
        for (word, flag) in FLAGS {
            if self.flags.contains(flag) {
                write!(f, " {word}")?;
            }
        }
        if let Some(max) = self.max_active {
            write!(f, " max_active={max}")?;
        }
        if let Some(scope) = self.scope {
            write!(f, " scope={scope}")?;
        }
        if self.strict {
            write!(f, " strict")?;
        }
        if let Some(cpus) = &self.cpus {
            write!(f, " cpus={cpus}")?;
        }
        Ok(())
    }
}

impl Script {
    fn step(&self, step: &Step) -> String {
        let name = |item: usize| &self.items[item].name;
        match step {
            Step::Burn(ns) => format!("burn {}", time(*ns)),
            Step::Sleep(ns) => format!("sleep {}", time(*ns)),
            Step::Doze(ns) => format!("doze {}", time(*ns)),
            Step::Lock(lock, ns) => format!("lock {lock} {}", time(*ns)),
            Step::Queue(item, None) => format!("queue {}", name(*item)),
            Step::Queue(item, Some(cpu)) => format!("queue {} {cpu}", name(*item)),
            Step::Arm(item, ns) => format!("arm {} {}", name(*item), time(*ns)),
            Step::Requeue(times) => format!("requeue {times}"),
            Step::Fork(item, copies) => format!("fork {} {copies}", name(*item)),
            Step::Flush(item) => format!("flush {}", name(*item)),
            Step::Cancel(item) => format!("cancel {}", name(*item)),
            Step::CancelSync(item) => format!("cancel_sync {}", name(*item)),
            Step::Free => "free".to_owned(),
            Step::Panic => "panic".to_owned(),
            Step::Cpus(None) => "cpus all".to_owned(),
            Step::Cpus(Some(cpus)) => format!("cpus {cpus}"),
        }
    }

    fn steps(&self, steps: &[Step]) -> String {
        let steps: Vec<String> = steps.iter().map(|step| self.step(step)).collect();
        steps.join("; ")
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine {}", self.machine)?;
        writeln!(f, "seed {}", self.seed)?;
        if self.bound_ns != BOUND_NS {
            writeln!(f, "bound {}", time(self.bound_ns))?;
        }
        for (name, value) in self.faults.all() {
            writeln!(f, "fault {name} {value}")?;
        }
        for queue in &self.queues {
            writeln!(f, "{queue}")?;
        }
        for item in &self.items {
            let queue = &self.queues[item.queue].name;
            let line = format!("item {} {queue}: {}", item.name, self.steps(&item.steps));
            writeln!(f, "{}", line.trim_end())?;
        }
        for steps in &self.threads {
            writeln!(f, "{}", format!("thread: {}", self.steps(steps)).trim_end())?;
        }
        Ok(())
    }
}
