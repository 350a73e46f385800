//! Facts about the process, and the counters of its queues, as tables with tabs.

use std::fmt::Write as _;

use uwork_engine::dump::{QueueDump, WorkerState};
use uwork_linux::engine;

use crate::QueueCounters;

/// The columns of [`queues`]. New ones are added at the end.
const COLUMNS: [&str; 15] = [
    "name",
    "kind",
    "flags",
    "started",
    "in_flight",
    "pending",
    "ran",
    "run_us",
    "running",
    "max_active",
    "saturated",
    "scope",
    "gate",
    "run_p50_ns",
    "run_p99_ns",
];

/// A line for each queue, after a line with the names of the columns.
pub(super) fn queues() -> String {
    let mut text = COLUMNS.join("\t") + "\n";
    for queue in engine().dump_queues(|_| true) {
        let counted = QueueCounters::of(&queue);
        let started: u64 = queue.pwqs.iter().map(|pwq| pwq.started).sum();
        let percentile = |percent| counted.run_times.percentile(percent).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}\t{}\t{}\t{started}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            plain(&queue.name),
            queue.kind,
            plain(&queue.flags.to_string()),
            counted.in_flight,
            counted.pending,
            counted.ran,
            counted.run_time.as_micros(),
            counted.running,
            counted.max_active,
            counted.saturated,
            queue.scope.as_deref().unwrap_or("-"),
            gate(&queue),
            percentile(50).as_nanos(),
            percentile(99).as_nanos(),
        );
    }
    text
}

fn gate(queue: &QueueDump) -> String {
    if queue.frozen { "frozen".to_owned() } else { format!("{:?}", queue.gate).to_lowercase() }
}

/// A name without the characters that separate fields.
pub(super) fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A line for each fact: its name and its value. New ones are added at the end.
pub(super) fn facts() -> String {
    let dump = engine().dump();
    let workers = || dump.pools.iter().flat_map(|pool| &pool.workers);
    let in_state = |state| workers().filter(|worker| worker.state == state).count();
    let limit = engine().cpus().cpu_limit.map_or("none".to_owned(), |cpus| cpus.to_string());
    let facts: [(&str, String); 16] = [
        ("pid", std::process::id().to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("protocol", super::VERSION.to_string()),
        ("allowed_cpus", dump.machine.allowed.to_string()),
        ("unbound_cpus", dump.machine.unbound.to_string()),
        ("isolated_cpus", dump.machine.isolated.to_string()),
        ("cpu_limit", limit),
        ("blocking_tier", dump.blocking.tier.to_string()),
        ("blocking_reason", plain(&dump.blocking.reason)),
        ("fences", engine().host().fences().to_owned()),
        ("queues", dump.queues.len().to_string()),
        ("pools", dump.pools.len().to_string()),
        ("workers", workers().count().to_string()),
        ("workers_asleep", in_state(WorkerState::Asleep).to_string()),
        ("panics", crate::panics().to_string()),
        ("rescues", crate::rescues().to_string()),
    ];
    facts.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}\t{value}");
        text
    })
}
