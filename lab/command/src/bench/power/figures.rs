//! The metrics, and the lines below the tables: the targets, and what the machine does not give.

use std::time::Duration;

use super::system::{Counters, STATES_MAX, System};
use super::{AWAKE, EFFICIENT, IDLE};
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::measured::{Figures, Measured};
use crate::bench::summary::{self, Metric};

const fn metric(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    Metric { name, unit, title, decimals: 1 }
}

/// Sleeps of the process's threads that ended, each with a wake.
const WAKES: Metric = metric("wakeups_per_s", "1/s", "wakes/s");
/// Entries into idle states of a CPU: the mean of all CPUs, and that of the CPU with the most.
const CPU_WAKES: Metric = metric("idle_entries_per_s_cpu", "1/s", "idle/s CPU");
const CPU_WAKES_MAX: Metric = metric("idle_entries_per_s_cpu_max", "1/s", "max");
/// Runs on another CPU than the one that is awake.
const ELSEWHERE: Metric =
    Metric { name: "runs_elsewhere", unit: "runs", title: "runs elsewhere", decimals: 0 };
/// The CPU time of a run.
const ITEM: Metric = metric("item_us", "us", "item us");
const CPU: Metric = Metric { name: "cpu_s", unit: "s", title: "CPU s", decimals: 3 };
const OVER: Metric = Metric { name: "over_s", unit: "s", title: "over s", decimals: 3 };
const LATE_P50: Metric = metric("late_p50_us", "us", "late p50");
const LATE_P99: Metric = metric("late_p99_us", "us", "late p99");
const LATE_MAX: Metric = metric("late_max_us", "us", "late max");
/// The lateness beyond the slack.
const BEYOND_P99: Metric = metric("beyond_slack_p99_us", "us", "beyond slack p99");
const EARLY: Metric = Metric { name: "early", unit: "runs", title: "early", decimals: 0 };
const JOULES: Metric = metric("joules", "J", "joules");
/// The share of a CPU's time in each idle state: the mean of all CPUs.
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
/// That of the CPU with the most.
const STATES_OF_CPU: [Metric; STATES_MAX] = [
    metric("idle0_percent_max", "%", "max"),
    metric("idle1_percent_max", "%", "max"),
    metric("idle2_percent_max", "%", "max"),
    metric("idle3_percent_max", "%", "max"),
    metric("idle4_percent_max", "%", "max"),
    metric("idle5_percent_max", "%", "max"),
    metric("idle6_percent_max", "%", "max"),
    metric("idle7_percent_max", "%", "max"),
    metric("idle8_percent_max", "%", "max"),
    metric("idle9_percent_max", "%", "max"),
];

const WAKES_OF_RIVAL: f64 = 0.25;
const OVER_OF_RIVAL: f64 = 0.4;
const BEYOND_US: f64 = 2_000.0;

/// All metrics, in table order.
pub(super) fn all() -> Vec<Metric> {
    let own = [
        WAKES,
        CPU_WAKES,
        CPU_WAKES_MAX,
        CPU,
        OVER,
        ITEM,
        ELSEWHERE,
        LATE_P50,
        LATE_P99,
        LATE_MAX,
        BEYOND_P99,
        EARLY,
        JOULES,
    ];
    let states = STATES.into_iter().zip(STATES_OF_CPU).flat_map(|(mean, max)| [mean, max]);
    own.into_iter().chain(states).collect()
}

/// A finished sample; times in nanoseconds.
pub(super) struct Sample {
    pub(super) wall: Duration,
    /// How often the main thread has slept meanwhile, which the counters include.
    pub(super) own_sleeps: u64,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) cpu: u64,
    pub(super) work: u64,
    /// In order.
    pub(super) late_ns: Vec<u64>,
    /// In order.
    pub(super) beyond_ns: Vec<u64>,
    pub(super) early: u64,
    /// In the case that counts them.
    pub(super) elsewhere: Option<u64>,
    /// Whether a run's CPU time is of interest.
    pub(super) times_items: bool,
}

pub(super) fn of(sample: &Sample) -> Figures {
    let mut figures = Figures::default();
    let (before, after, seconds) = (&sample.before, &sample.after, sample.wall.as_secs_f64());
    let sleeps = after.sleeps.saturating_sub(before.sleeps).saturating_sub(sample.own_sleeps);
    figures.set(WAKES, sleeps as f64 / seconds);
    if let (Some(before), Some(after)) = (&before.idle, &after.idle) {
        set_idle(&mut figures, before, after, seconds);
    }
    if let Some(elsewhere) = sample.elsewhere {
        figures.set(ELSEWHERE, elsewhere as f64);
    }
    if sample.times_items && !sample.late_ns.is_empty() {
        figures.set(ITEM, sample.work as f64 / 1e3 / sample.late_ns.len() as f64);
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
    let energy = after.energy.as_ref().zip(before.energy.as_ref());
    let joules = energy.and_then(|(after, before)| after.since(before));
    if let Some(joules) = joules {
        figures.set(JOULES, joules as f64 / 1e6);
    }
    figures
}

/// The entries a second into each idle state of a CPU, and the percentage of the time in it.
type States = [(f64, f64)];

/// The entries and microseconds of each CPU, state by state.
fn set_idle(
    figures: &mut Figures,
    before: &[Vec<(u64, u64)>],
    after: &[Vec<(u64, u64)>],
    seconds: f64,
) {
    // Only the CPUs that have counters, which the process may use or not.
    let cpus: Vec<Vec<(f64, f64)>> = after
        .iter()
        .zip(before)
        .map(|(after, before)| {
            let states = after.iter().zip(before);
            let since = |(after, before): (&(u64, u64), &(u64, u64))| {
                let (entries, micros) =
                    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
                (entries as f64 / seconds, micros as f64 / 1e4 / seconds)
            };
            states.map(since).collect()
        })
        .collect();
    let mut set = |mean: Metric, max: Metric, of_cpu: &dyn Fn(&States) -> f64| {
        let values: Vec<f64> = cpus.iter().map(|states| of_cpu(states)).collect();
        figures.set(mean, values.iter().sum::<f64>() / values.len().max(1) as f64);
        figures.set(max, values.iter().copied().fold(0.0, f64::max));
    };
    set(CPU_WAKES, CPU_WAKES_MAX, &|states| states.iter().map(|state| state.0).sum());
    let states = cpus.iter().map(Vec::len).max().unwrap_or(0);
    for state in 0..states.min(STATES_MAX) {
        let share = |states: &States| states.get(state).map_or(0.0, |state| state.1);
        set(STATES[state], STATES_OF_CPU[state], &share);
    }
}

/// The lines below a table.
pub(super) fn below(group: &GroupOutcome<Measured>) -> String {
    let missing = System::this().missing().into_iter().map(|what| format!("{what}\n"));
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
        AWAKE => vec![
            line(&ELSEWHERE, 0.0, "another CPU is awake"),
            line(&EARLY, 0.0, "never early"),
            line(&BEYOND_P99, BEYOND_US, "2 ms beyond the slack"),
        ],
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
