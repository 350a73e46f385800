//! The metrics, and how they are computed from the times of the items.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::targets;
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::legend::{self, Word};
use crate::bench::measured::Measured;
use crate::bench::summary::{self, Figure, Metric, Sampled};
use crate::bench::warning::Warning;

const fn us(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "us", title, decimals: 0 }
}

const fn seconds(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "s", title, decimals: 3 }
}

/// The time from the planned arrival to the end of the item. In case `mixed`, of the items that are
/// not latency-critical.
pub(super) const SOJOURN: [Metric; 4] = [
    us("sojourn_p50_us", "p50 us"),
    us("sojourn_p90_us", "p90 us"),
    us("sojourn_p99_us", "p99 us"),
    us("sojourn_p999_us", "p99.9 us"),
];
/// The same of latency-critical items.
pub(super) const CRITICAL: [Metric; 4] = [
    us("critical_p50_us", "critical p50"),
    us("critical_p90_us", "critical p90"),
    us("critical_p99_us", "critical p99"),
    us("critical_p999_us", "critical p99.9"),
];
/// The CPU time of the process.
pub(super) const CPU: Metric = seconds("cpu_s", "CPU s");
/// The same as a share of the time of all CPUs.
const CPU_PERCENT: Metric = Metric { name: "cpu_percent", unit: "%", title: "CPU %", decimals: 1 };
/// The CPU time that is not that of the items.
const OVER: Metric = seconds("over_s", "over s");
/// The CPU time of the generators, which is a part of `over_s`.
const GENERATORS: Metric = seconds("generators_s", "generators s");
/// How late after the planned arrivals items were submitted.
const LATE_P99: Metric = us("submit_late_p99_us", "late p99");
const LATE_MAX: Metric = us("submit_late_max_us", "late max");

/// All metrics, in table order.
pub(super) const METRICS: [Metric; 14] = [
    SOJOURN[0],
    SOJOURN[1],
    SOJOURN[2],
    SOJOURN[3],
    CRITICAL[0],
    CRITICAL[1],
    CRITICAL[2],
    CRITICAL[3],
    CPU,
    CPU_PERCENT,
    OVER,
    GENERATORS,
    LATE_P99,
    LATE_MAX,
];
const QUANTILES: [f64; 4] = [0.50, 0.90, 0.99, 0.999];

/// The runner whose figures are computed.
pub(super) const LIMIT: &str = "limit";
/// The same, with the CPU time of a generator that submits to nothing.
pub(super) const LIMIT_GENERATED: &str = "limit+gen";
/// Explanations of the words in the tables.
const WORDS: [Word; 7] = [
    ("p50 us", "from the planned arrival to the end of the item, by percentiles"),
    ("critical p50", "the same of the items of the latency-critical queue, in us"),
    ("over s", "CPU time of the process beyond what the items compute"),
    ("generators s", "the part of it that the threads use that wait for arrivals and submit"),
    ("late p99", "from the planned arrival to the submission, in us"),
    (
        LIMIT,
        "computed: the same items in a perfect queue, first in, first out, for as many servers as CPUs",
    ),
    (
        LIMIT_GENERATED,
        "the same, where each arrival first takes what a generator needs that submits to nothing",
    ),
];

/// The lateness above which a generator does not keep to its plan.
const LATE: Duration = Duration::from_millis(1);

/// The share of the CPUs' time, in per cent, above which they are saturated.
const SATURATED: f64 = 95.0;

/// The CPU times of a run.
pub(super) struct CpuTimes {
    /// The time of all CPUs from the first planned arrival to the last end.
    pub(super) available_ns: u64,
    pub(super) process_ns: u64,
    pub(super) items_ns: u64,
    pub(super) generators_ns: u64,
}

/// The percentiles of an item's time in the system, for each queue.
pub(super) fn sojourns(times: impl Iterator<Item = (Duration, bool)>) -> Vec<(Metric, f64)> {
    let mut queues = [histogram(), histogram()];
    for (time, critical) in times {
        record(&mut queues[usize::from(critical)], time);
    }
    let [others, critical] = queues;
    let mut figures = percentiles(&SOJOURN, &others);
    if !critical.is_empty() {
        figures.extend(percentiles(&CRITICAL, &critical));
    }
    figures
}

/// The CPU times in the units of the table.
pub(super) fn cpu_times(times: &CpuTimes) -> Vec<(Metric, f64)> {
    let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
    vec![
        (CPU, seconds(times.process_ns)),
        (CPU_PERCENT, 100.0 * times.process_ns as f64 / times.available_ns.max(1) as f64),
        (OVER, seconds(times.process_ns.saturating_sub(times.items_ns))),
        (GENERATORS, seconds(times.generators_ns)),
    ]
}

/// The lateness of the submissions.
pub(super) fn lateness(late: impl Iterator<Item = Duration>) -> Vec<(Metric, f64)> {
    let mut all = histogram();
    late.for_each(|late| record(&mut all, late));
    vec![(LATE_P99, all.value_at_quantile(0.99) as f64 / 1e3), (LATE_MAX, all.max() as f64 / 1e3)]
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("an hour in three digits")
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record((time.as_nanos() as u64).max(1));
}

fn percentiles(metrics: &[Metric; 4], histogram: &Histogram<u64>) -> Vec<(Metric, f64)> {
    let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    metrics.iter().copied().zip(QUANTILES.map(us)).collect()
}

/// A sample, in which lower figures are better.
pub(super) struct Sojourns(pub(super) Measured);

impl Sampled for Sojourns {
    const LOWER_IS_BETTER: bool = true;

    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        summary::medians(samples, |sample| sample.0.metrics().to_vec())
    }

    /// CPUs that are saturated, which make generators late, and generators that did not keep to the
    /// plan; each with the runner that has the highest figure.
    fn doubts(group: &GroupOutcome<Self>) -> Vec<Warning> {
        let highest = |wanted: Metric| {
            let value = |outcome: &Outcome<Self>| {
                let figures = summary::all(outcome);
                let found = figures.iter().find(|(metric, _)| metric.name == wanted.name);
                found.map(|(_, figure)| (figure.median, outcome.names.spoken()))
            };
            group.outcomes.iter().filter_map(value).max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let saturated = highest(CPU_PERCENT)
            .filter(|&(percent, _)| percent > SATURATED)
            .map(|(percent, runner)| Warning::SaturatedCpus { runner, percent });
        let late = highest(LATE_P99)
            .filter(|&(p99_us, _)| p99_us > LATE.as_micros() as f64)
            .map(|(p99_us, runner)| Warning::LateGenerator { runner, p99_us });
        saturated.into_iter().chain(late).collect()
    }

    fn said(&self) -> &[String] {
        self.0.said()
    }
}

/// The legend and the verdicts below a table.
pub(super) fn below(group: &GroupOutcome<Sojourns>) -> String {
    legend::below(group, &WORDS) + &targets::verdicts(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};

    #[test]
    fn each_queue_has_its_percentiles() {
        let times = (1..=1_000).map(|us| (Duration::from_micros(us), us > 900));
        let figures = sojourns(times);
        let value = |name: &str| {
            let (_, value) = figures.iter().find(|(metric, _)| metric.name == name).expect(name);
            // Histograms have three digits.
            (value / 10.0).round() as u64 * 10
        };
        assert_eq!(["sojourn_p50_us", "sojourn_p90_us"].map(value), [450, 810]);
        assert_eq!(["critical_p50_us", "critical_p90_us"].map(value), [950, 990]);
        assert_eq!(sojourns([(Duration::from_micros(1), false)].into_iter()).len(), 4);
    }

    #[test]
    fn the_time_beyond_the_items_is_the_rest_of_the_process() {
        let times = CpuTimes {
            available_ns: 6_250_000_000,
            process_ns: 5_000_000_000,
            items_ns: 3_000_000_000,
            generators_ns: 500_000_000,
        };
        let values: Vec<f64> = cpu_times(&times).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [5.0, 80.0, 2.0, 0.5]);
    }

    #[test]
    fn saturated_cpus_and_generators_that_do_not_keep_to_the_plan_are_reported() {
        let with = |runner, metrics| Outcome {
            names: Names { case: "burst", runner, variant: String::new() },
            standing: None,
            samples: vec![Sojourns(Measured::new(metrics))],
        };
        let outcome =
            |runner, late_us| with(runner, lateness([Duration::from_micros(late_us)].into_iter()));
        let group = |outcomes| GroupOutcome {
            title: String::new(),
            outcomes,
            ratio_to: RatioTo::FastestRival,
        };
        assert_eq!(Sojourns::doubts(&group(vec![outcome("uwork", 900)])), []);
        let late = group(vec![outcome("uwork", 900), outcome("rayon", 5_000)]);
        let doubts = Sojourns::doubts(&late);
        let [line] = &doubts[..] else { panic!("rayon's generator was late: {doubts:?}") };
        let line = line.to_string();
        assert!(line.contains("rayon (burst)") && line.contains("5.0 ms late"), "{line}");

        let saturated = with("tokio", vec![(CPU_PERCENT, 97.0)]);
        let both = group(vec![saturated, outcome("rayon", 5_000)]);
        let doubts = Sojourns::doubts(&both);
        let [line, late] = &doubts[..] else { panic!("both: {doubts:?}") };
        let (line, late) = (line.to_string(), late.to_string());
        assert!(late.contains("rayon (burst)"), "{late}");
        assert!(line.contains("tokio (burst)") && line.contains("97 %"), "{line}");
        assert_eq!(Sojourns::doubts(&group(vec![with("tokio", vec![(CPU_PERCENT, 90.0)])])), []);
    }
}
