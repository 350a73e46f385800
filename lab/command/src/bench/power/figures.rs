//! The metrics, and the lines below the tables: the targets, and what the machine does not give.

use std::time::Duration;

use super::system::{Counters, STATES_MAX, System};
use super::{EFFICIENT, IDLE};
use crate::bench::contestant::cpus;
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::measured::{Figures, Measured};
use crate::bench::summary::{self, Metric};

const fn metric(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    Metric { name, unit, title, decimals: 1 }
}

/// Sleeps of the process's threads that ended, each with a wake.
const WAKES: Metric = metric("wakeups_per_s", "1/s", "wakes/s");
const CPU_WAKES: Metric = metric("idle_entries_per_s_cpu", "1/s", "idle/s CPU");
const CPU: Metric = Metric { name: "cpu_s", unit: "s", title: "CPU s", decimals: 3 };
const OVER: Metric = Metric { name: "over_s", unit: "s", title: "over s", decimals: 3 };
const LATE_P50: Metric = metric("late_p50_us", "us", "late p50");
const LATE_P99: Metric = metric("late_p99_us", "us", "late p99");
const LATE_MAX: Metric = metric("late_max_us", "us", "late max");
/// The lateness beyond the slack.
const BEYOND_P99: Metric = metric("beyond_slack_p99_us", "us", "beyond slack p99");
const EARLY: Metric = Metric { name: "early", unit: "runs", title: "early", decimals: 0 };
const JOULES: Metric = metric("joules", "J", "joules");
/// The share of all CPUs' time in each idle state.
const STATES: [Metric; STATES_MAX] = [
    metric("idle0_percent", "%", "state0 %"),
    metric("idle1_percent", "%", "state1 %"),
    metric("idle2_percent", "%", "state2 %"),
    metric("idle3_percent", "%", "state3 %"),
    metric("idle4_percent", "%", "state4 %"),
    metric("idle5_percent", "%", "state5 %"),
    metric("idle6_percent", "%", "state6 %"),
    metric("idle7_percent", "%", "state7 %"),
    metric("idle8_percent", "%", "state8 %"),
    metric("idle9_percent", "%", "state9 %"),
];

const WAKES_OF_RIVAL: f64 = 0.25;
const OVER_OF_RIVAL: f64 = 0.4;
const BEYOND_US: f64 = 2_000.0;

/// All metrics, in table order.
pub(super) fn all() -> Vec<Metric> {
    let own =
        [WAKES, CPU_WAKES, CPU, OVER, LATE_P50, LATE_P99, LATE_MAX, BEYOND_P99, EARLY, JOULES];
    own.into_iter().chain(STATES).collect()
}

/// A finished sample; times in nanoseconds.
pub(super) struct Sample {
    pub(super) wall: Duration,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) cpu: u64,
    pub(super) work: u64,
    /// In order.
    pub(super) late_ns: Vec<u64>,
    /// In order.
    pub(super) beyond_ns: Vec<u64>,
    pub(super) early: u64,
}

pub(super) fn of(sample: &Sample) -> Figures {
    let mut figures = Figures::default();
    let (before, after, seconds) = (&sample.before, &sample.after, sample.wall.as_secs_f64());
    // The main thread's own sleep is one of them.
    let sleeps = after.sleeps.saturating_sub(before.sleeps).saturating_sub(1);
    figures.set(WAKES, sleeps as f64 / seconds);
    if let (Some(before), Some(after)) = (&before.idle, &after.idle) {
        let available = seconds * cpus() as f64;
        let pairs = || after.iter().zip(before);
        let entries: u64 = pairs().map(|(after, before)| after.0.saturating_sub(before.0)).sum();
        figures.set(CPU_WAKES, entries as f64 / available);
        for (metric, (after, before)) in STATES.into_iter().zip(pairs()) {
            let micros = after.1.saturating_sub(before.1) as f64;
            figures.set(metric, micros / 1e6 / available * 100.0);
        }
    }
    figures.set(CPU, sample.cpu as f64 / 1e9);
    figures.set(OVER, sample.cpu.saturating_sub(sample.work) as f64 / 1e9);
    if let Some(last) = sample.late_ns.len().checked_sub(1) {
        let late = |percent: usize| sample.late_ns[last * percent / 100] as f64 / 1e3;
        figures.set(LATE_P50, late(50));
        figures.set(LATE_P99, late(99));
        figures.set(LATE_MAX, late(100));
        figures.set(BEYOND_P99, sample.beyond_ns[last * 99 / 100] as f64 / 1e3);
        figures.set(EARLY, sample.early as f64);
    }
    let joules = after.energy_uj.zip(before.energy_uj).and_then(|(a, b)| a.checked_sub(b));
    if let Some(joules) = joules {
        figures.set(JOULES, joules as f64 / 1e6);
    }
    figures
}

/// The lines below a table.
pub(super) fn below(group: &GroupOutcome<Measured>) -> String {
    let missing = System::this().missing().into_iter().map(|what| format!("left out: {what}\n"));
    verdicts(group) + &missing.collect::<String>()
}

fn value(outcome: &Outcome<Measured>, wanted: &Metric) -> Option<f64> {
    let all = summary::all(outcome);
    all.iter().find(|(metric, _)| metric.name == wanted.name).map(|(_, figure)| figure.median)
}

/// A line for each target of the efficient variant.
fn verdicts(group: &GroupOutcome<Measured>) -> String {
    let Some(own) = group.outcomes.iter().find(|of| of.names.variant == EFFICIENT) else {
        return String::new();
    };
    let best = |metric: &Metric| {
        let rivals = group.outcomes.iter().filter(|of| of.standing.is_some());
        rivals.filter_map(|of| value(of, metric)).min_by(f64::total_cmp)
    };
    let line = |metric: &Metric, bound: f64, what: &str| {
        let measured = value(own, metric)?;
        let verdict = if measured <= bound { "reached" } else { "missed" };
        let (title, decimals) = (metric.title, metric.decimals);
        Some(format!(
            "target {title}: at most {bound:.decimals$} ({what}): {measured:.decimals$}, {verdict}\n"
        ))
    };
    let lines = match own.names.case {
        IDLE => vec![line(&WAKES, 0.0, "nothing is armed")],
        "periodic" => vec![
            best(&WAKES)
                .and_then(|best| line(&WAKES, best * WAKES_OF_RIVAL, "0.25 x the best rival")),
            best(&OVER).and_then(|best| line(&OVER, best * OVER_OF_RIVAL, "0.4 x the best rival")),
            line(&EARLY, 0.0, "never early"),
            line(&BEYOND_P99, BEYOND_US, "2 ms beyond the slack"),
        ],
        _ => vec![line(&EARLY, 0.0, "never early")],
    };
    lines.into_iter().flatten().collect()
}
