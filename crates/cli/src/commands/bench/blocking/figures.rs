//! The metrics of this benchmark, and how a child hands them over.

use std::collections::BTreeMap;

use crate::commands::UserError;
use crate::commands::bench::summary::{CPU, Metric, RATE, Sampled};

const fn metric(
    name: &'static str,
    unit: &'static str,
    title: &'static str,
    decimals: usize,
) -> Metric {
    Metric { name, unit, title, decimals }
}

pub(super) const WALL: Metric = metric("wall_s", "s", "wall s", 3);
/// Threads of the process, without those that the benchmark itself has.
pub(super) const THREADS: Metric = metric("threads_peak", "threads", "threads", 0);
pub(super) const LATENCY_P50: Metric = metric("latency_p50_us", "us", "p50 us", 1);
pub(super) const LATENCY_P99: Metric = metric("latency_p99_us", "us", "p99 us", 1);
/// How many latencies there are in a sample.
pub(super) const LATENCIES: Metric = metric("latencies", "blocks", "latencies", 0);
/// The time taken, as a multiple of the least that the limit allows.
pub(super) const OVER_IDEAL: Metric = metric("over_ideal", "x", "x ideal", 3);
/// The most workers of any pool.
pub(super) const WORKERS: Metric = metric("workers_peak", "workers", "workers", 0);
/// By how many the workers of any pool were more than its target, at most.
pub(super) const OVER_TARGET: Metric = metric("workers_over_target", "workers", "over target", 0);

/// In the order of the table.
const ALL: [Metric; 10] = [
    RATE,
    CPU,
    WALL,
    OVER_IDEAL,
    THREADS,
    LATENCY_P50,
    LATENCY_P99,
    LATENCIES,
    WORKERS,
    OVER_TARGET,
];

/// What a child prints: its metrics by name.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(super) fn set(&mut self, metric: Metric, value: f64) {
        self.0.insert(metric.name.to_owned(), value);
    }
}

/// A child's sample.
pub(super) struct Measured {
    metrics: Vec<(Metric, f64)>,
    /// What it wrote to stderr, line by line.
    said: Vec<String>,
}

impl Measured {
    /// From what a child printed.
    pub(super) fn parse(printed: &str, said: &str) -> Result<Self, UserError> {
        let Figures(mut values) = serde_json::from_str(printed)
            .map_err(|error| UserError(format!("a child's figures cannot be read: {error}")))?;
        let metrics: Vec<_> = ALL
            .into_iter()
            .filter_map(|metric| Some((metric, values.remove(metric.name)?)))
            .collect();
        if let Some(unknown) = values.keys().next() {
            return Err(UserError(format!("a child's figures have an unknown metric '{unknown}'")));
        }
        if metrics.first().is_none_or(|(first, _)| first.name != RATE.name) {
            return Err(UserError("a child's figures have no rate".to_owned()));
        }
        let said = said.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        Ok(Self { metrics, said })
    }
}

impl Sampled for Measured {
    fn metrics(&self) -> Vec<(Metric, f64)> {
        self.metrics.clone()
    }

    fn said(&self) -> &[String] {
        &self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_prints_is_read_back_and_nothing_else() {
        let mut figures = Figures::default();
        figures.set(THREADS, 5.0);
        figures.set(RATE, 2.5);
        let printed = serde_json::to_string(&figures).unwrap();
        let measured = Measured::parse(&printed, "a line\n\nanother\n").unwrap();
        let names: Vec<_> = measured.metrics().iter().map(|(m, value)| (m.name, *value)).collect();
        assert_eq!(names, [("items_per_s", 2.5), ("threads_peak", 5.0)]);
        assert_eq!(measured.said(), ["a line", "another"]);

        for (printed, words) in [
            ("", "cannot be read"),
            ("{\"items_per_s\":1,\"speed\":2}", "unknown metric 'speed'"),
            ("{\"wall_s\":1}", "no rate"),
        ] {
            let UserError(line) = Measured::parse(printed, "").err().expect("refused");
            assert!(line.contains(words), "{line}");
        }
    }
}
