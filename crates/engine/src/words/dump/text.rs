//! A dump as text: sections, and in each of them columns.
//!
//! Stable: words and columns keep their positions, so that scripts may cut them out. Times are
//! relative to the time of the dump.

use std::fmt;

use super::{
    ArmedItem, Dump, Function, Gate, ItemDump, Items, NodeDump, PoolDump, PwqDump, QueueDump,
    RescuerDump, ScopeDump, WorkerDump,
};

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "machine  allowed {}  unbound {}", machine.allowed, machine.unbound)?;
        if !machine.isolated.is_empty() {
            writeln!(f, "         isolated {}", machine.isolated)?;
        }
        writeln!(f, "         default scope {}", machine.default_scope)?;
        writeln!(f, "blocking {}: {}", self.blocking.tier, self.blocking.reason)?;
        writeln!(f, "\nscopes")?;
        self.scopes.iter().try_for_each(|scope| write!(f, "{scope}"))?;
        writeln!(f, "\npools")?;
        for pool in &self.pools {
            pool.print(f, self.at_ns)?;
        }
        if !self.helpers.is_empty() {
            writeln!(f, "\nhelping threads")?;
            self.helpers.iter().try_for_each(|worker| worker.print(f, self.at_ns))?;
        }
        writeln!(f, "\nqueues")?;
        self.queues.iter().try_for_each(|queue| write!(f, "{queue}"))
    }
}

impl fmt::Display for ScopeDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<12} nr_pods {:<4} pod_cpus", self.scope, self.nr_pods)?;
        for (pod, cpus) in self.pod_cpus.iter().enumerate() {
            write!(f, " {pod}:{cpus}")?;
        }
        write!(f, "  cpu_pod")?;
        for (cpu, pod) in &self.cpu_pod {
            write!(f, " {cpu}:{pod}")?;
        }
        write!(f, "  pod_node")?;
        for (pod, node) in self.pod_node.iter().enumerate() {
            match node {
                Some(node) => write!(f, " {pod}:{node}")?,
                None => write!(f, " {pod}:-")?,
            }
        }
        writeln!(f)
    }
}

impl PoolDump {
    fn print(&self, f: &mut fmt::Formatter<'_>, now: u64) -> fmt::Result {
        let PoolDump { id, cpus, nice, target, workers_max, .. } = self;
        let PoolDump { nr_workers, nr_running, nr_idle, .. } = self;
        write!(f, "  pool {id:<4} cpus {cpus}  nice {nice}")?;
        if let Some(had) = self.actual_nice {
            write!(f, " (has {had})")?;
        }
        write!(f, "  target {target}  ")?;
        write!(f, "workers {nr_workers}  running {nr_running}  idle {nr_idle}  max {workers_max}")?;
        let marks = [
            (self.waking, "  waking"),
            (self.retired, "  retired"),
            (self.displaced, "  displaced"),
        ];
        marks.iter().filter(|(on, _)| *on).try_for_each(|(_, mark)| f.write_str(mark))?;
        if self.nr_ready > 0 {
            write!(f, "  ready pwqs")?;
            self.ready.iter().try_for_each(|pwq| write!(f, " {pwq}"))?;
            more(f, self.nr_ready - self.ready.len())?;
        }
        if self.nr_armed > 0 {
            write!(f, "  armed {}", self.nr_armed)?;
        }
        if let Some(next) = self.next_timer_ns {
            write!(f, "  next timer {}", In(next, now))?;
        }
        writeln!(f)?;
        self.workers.iter().try_for_each(|worker| worker.print(f, now))?;
        for armed in &self.armed {
            armed.print(f, now)?;
        }
        if self.nr_armed > self.armed.len() {
            writeln!(f, "    armed  {} more", self.nr_armed - self.armed.len())?;
        }
        Ok(())
    }
}

impl ArmedItem {
    fn print(&self, f: &mut fmt::Formatter<'_>, now: u64) -> fmt::Result {
        write!(f, "    armed  {}  {}", In(self.deadline_ns, now), self.item)?;
        match &self.queue {
            Some(queue) => write!(f, "  queue {queue}")?,
            None => write!(f, "  queue gone")?,
        }
        match self.cpu {
            Some(cpu) => writeln!(f, "  cpu {cpu}"),
            None => writeln!(f),
        }
    }
}

impl WorkerDump {
    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>, now: u64) -> fmt::Result {
        let thread = if self.thread.is_empty() { "-" } else { &self.thread };
        let asleep = if self.sleeps { " (asleep)" } else { "" };
        write!(f, "    slot {:<4} {thread}  {}{asleep}", self.slot, self.state)?;
        if self.thread_id != 0 {
            write!(f, "  thread {}", self.thread_id)?;
        }
        if let Some(running) = &self.running {
            write!(f, "  run {}", running.run)?;
            if let Some(queue) = &running.queue {
                write!(f, "  queue {queue}")?;
            }
            if let Some(began) = running.batch_began_ns {
                write!(f, "  for at most {}", Nanos(now.saturating_sub(began)))?;
            }
            if let Some(function) = &running.function {
                write!(f, "  {function}")?;
            }
            if let Some(description) = &running.description {
                // Escaped: the program writes what it likes, and a dump reaches terminals.
                write!(f, "  {description:?}")?;
            }
        }
        writeln!(f)?;
        self.scheduled.print(f, "scheduled")?;
        self.deferred.print(f, "deferred")
    }
}

impl fmt::Display for QueueDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueDump { name, kind, nice, cpus, max_active, .. } = self;
        // No spaces, for scripts that cut columns.
        let flags = self.flags.to_string().replace(' ', "");
        let flags = if flags.is_empty() { "-" } else { &flags };
        write!(f, "  queue {name}  {kind}  flags {flags}  cpus {cpus}  nice {nice}")?;
        if let Some(scope) = &self.scope {
            write!(f, "  scope {scope}{}", if self.strict { " strict" } else { "" })?;
        }
        write!(f, "  max_active {max_active}")?;
        if self.frozen {
            write!(f, "  frozen")?;
        }
        if self.paused {
            write!(f, "  paused")?;
        }
        match self.gate {
            Gate::Open => {}
            Gate::Draining => write!(f, "  draining")?,
            Gate::Closed => write!(f, "  closed")?,
            Gate::Sealed => write!(f, "  sealed")?,
        }
        if self.flushers > 0 {
            write!(f, "  flushers {}", self.flushers)?;
        }
        if let Some(RescuerDump { slot, thread_id, running }) = &self.rescuer {
            let doing = if running.is_some() { "at work" } else { "idle" };
            write!(f, "  rescuer slot {slot} thread {thread_id} {doing}")?;
        }
        if !self.slots.is_empty() {
            write!(f, "  run by slots")?;
            self.slots.iter().try_for_each(|slot| write!(f, " {slot}"))?;
        }
        writeln!(f)?;
        for NodeDump { node, nr, max, waiting } in &self.nodes {
            let node = node.map_or("spanning".to_owned(), |node| node.to_string());
            writeln!(f, "    node {node:<4} active {nr}/{max}  waiting pwqs {waiting}")?;
        }
        self.pwqs.iter().try_for_each(|pwq| write!(f, "{pwq}"))
    }
}

impl fmt::Display for PwqDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PwqDump { id, pool, nr_active, max_active, started, .. } = self;
        write!(f, "    pwq {id:<4} pool {pool}  active {nr_active}/{max_active}")?;
        write!(f, "  pending {}  in flight", self.pending.total)?;
        let flying = self.in_flight.iter().enumerate().filter(|&(_, &count)| count > 0);
        let mut none = true;
        for (colour, count) in flying {
            let awaited = if self.awaited.contains(&colour) { " (awaited)" } else { "" };
            write!(f, " {colour}:{count}{awaited}")?;
            none = false;
        }
        if none {
            write!(f, " 0")?;
        }
        write!(f, "  colour {}  started {started}  item {}", self.colour, Nanos(self.item_ns))?;
        let marks = [(self.ready, "  ready"), (self.saturated, "  saturated")];
        marks.iter().filter(|(on, _)| *on).try_for_each(|(_, mark)| f.write_str(mark))?;
        writeln!(f)?;
        // No permit is free, or the queue is frozen or paused.
        let is_inactive = self.saturated || self.max_active == 0;
        self.pending.print(f, if is_inactive { "inactive" } else { "pending" })
    }
}

impl Items {
    fn print(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        for item in &self.first {
            writeln!(f, "      {what}  {item}")?;
        }
        if self.total > self.first.len() {
            writeln!(f, "      {what}  {} more", self.total - self.first.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for ItemDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {:#x}  {}", self.address, self.function)
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "function {:#x}", self.address),
        }
    }
}

fn more(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > 0 { write!(f, " and {count} more") } else { Ok(()) }
}

/// A duration.
pub(super) struct Nanos(pub(super) u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns @ 0..1_000 => write!(f, "{ns} ns"),
            ns @ 1_000..1_000_000 => write!(f, "{:.1} us", ns as f64 / 1e3),
            ns @ 1_000_000..1_000_000_000 => write!(f, "{:.1} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.1} s", ns as f64 / 1e9),
        }
    }
}

/// A time in the future.
struct In(u64, u64);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(self.1) {
            Some(ns) => write!(f, "in {}", Nanos(ns)),
            None => f.write_str("due"),
        }
    }
}
