//! Facts about the process, and the counters of its queues, as tables with tabs.

use std::fmt::Write as _;

use uwork_engine::dump::{QueueDump, WorkerState};
use uwork_linux::engine;

use crate::{QueueCounters, Times};

/// The columns of [`queues`]. New ones are added at the end.
const COLUMNS: [&str; 25] = [
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
    "cpu_us",
    "cpu_intensive",
    "replaced",
    "stolen",
    "maydays",
    "rescued",
    "wait_p50_ns",
    "wait_p99_ns",
    "waits",
    "wait_us",
];

/// A line for each queue whose name contains `part`, after a line with the names of the columns.
pub(super) fn queues(part: &str) -> String {
    let mut text = COLUMNS.join("\t") + "\n";
    for queue in engine().dump_queues(|wq| wq.name().contains(part)) {
        let _ = writeln!(text, "{}", values(&queue).join("\t"));
    }
    text
}

/// The values of [`COLUMNS`].
fn values(queue: &QueueDump) -> [String; COLUMNS.len()] {
    let counted = QueueCounters::of(queue);
    let percentile = |times: &Times, percent| {
        times.percentile(percent).unwrap_or_default().as_nanos().to_string()
    };
    [
        plain(&queue.name),
        queue.kind.to_owned(),
        plain(&queue.flags.to_string()),
        counted.started.to_string(),
        counted.in_flight.to_string(),
        counted.pending.to_string(),
        counted.ran.to_string(),
        counted.run_time.as_micros().to_string(),
        counted.running.to_string(),
        counted.max_active.to_string(),
        counted.saturated.to_string(),
        queue.scope.clone().unwrap_or_else(|| "-".to_owned()),
        gate(queue),
        percentile(&counted.run_times, 50),
        percentile(&counted.run_times, 99),
        counted.cpu_time.as_micros().to_string(),
        counted.cpu_intensive.to_string(),
        counted.replaced.to_string(),
        counted.stolen.to_string(),
        counted.maydays.to_string(),
        counted.rescued.to_string(),
        percentile(&counted.waits, 50),
        percentile(&counted.waits, 99),
        counted.waits.count().to_string(),
        counted.waits.sum().as_micros().to_string(),
    ]
}

fn gate(queue: &QueueDump) -> String {
    match queue {
        QueueDump { frozen: true, .. } => "frozen".to_owned(),
        QueueDump { paused: true, .. } => "paused".to_owned(),
        _ => format!("{:?}", queue.gate).to_lowercase(),
    }
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
    let facts: [(&str, String); 17] = [
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
        ("rseq", uwork_linux::rseq::registered_by().to_owned()),
    ];
    facts.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}\t{value}");
        text
    })
}
