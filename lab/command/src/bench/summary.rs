//! From samples to figures: the median, the minimum and the maximum of each metric.

use std::collections::BTreeMap;

use uwork_rivals::{Latency, Sample, Standing};

use super::interleave::{GroupOutcome, Outcome};
use super::warning::Warning;

/// One metric over all samples of a contestant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Figure {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self { median, min: values[0], max: values[values.len() - 1] }
    }

    /// The distance between minimum and maximum, relative to the median.
    pub(super) fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// A metric's fixed name and unit, and its form in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) title: &'static str,
    pub(super) decimals: usize,
}

/// Items per second.
pub(super) const RATE: Metric =
    Metric { name: "items_per_s", unit: "items/s", title: "items/s", decimals: 0 };
/// CPU-seconds of the process per million items.
pub(super) const CPU: Metric =
    Metric { name: "cpu_s_per_mitem", unit: "s/Mitem", title: "CPU-s/Mitem", decimals: 3 };

/// The result of one measurement: always the same metrics, including the rate.
pub(super) trait Sampled {
    /// The metric that tables are sorted by.
    const RATE: Metric = RATE;

    fn metrics(&self) -> Vec<(Metric, f64)>;

    /// Reasons to doubt the figures of a group, in addition to the general ones.
    fn doubts(_group: &GroupOutcome<Self>) -> Option<Warning>
    where
        Self: Sized,
    {
        None
    }

    /// The lines that the runner wrote to standard error.
    fn said(&self) -> &[String] {
        &[]
    }
}

type Take = fn(&Latency) -> u64;

const fn enqueue(name: &'static str, title: &'static str, take: Take) -> (Metric, Take) {
    (Metric { name, unit: "ns", title, decimals: 0 }, take)
}

const ENQUEUE: [(Metric, Take); 4] = [
    enqueue("enqueue_p50_ns", "p50 ns", |latency| latency.p50_ns),
    enqueue("enqueue_p90_ns", "p90 ns", |latency| latency.p90_ns),
    enqueue("enqueue_p95_ns", "p95 ns", |latency| latency.p95_ns),
    enqueue("enqueue_p99_ns", "p99 ns", |latency| latency.p99_ns),
];

impl Sampled for Sample {
    fn metrics(&self) -> Vec<(Metric, f64)> {
        let mut metrics = vec![
            (RATE, self.items as f64 / self.wall.as_secs_f64().max(1e-9)),
            (CPU, self.cpu.as_secs_f64() * 1e6 / self.items as f64),
        ];
        let latency = self.latency.iter();
        metrics
            .extend(latency.flat_map(|of| ENQUEUE.map(|(metric, take)| (metric, take(of) as f64))));
        metrics
    }
}

/// Every metric of a contestant, in the order of its samples.
pub(super) fn all<S: Sampled>(outcome: &Outcome<S>) -> Vec<(Metric, Figure)> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut order: Vec<Metric> = Vec::new();
    for (metric, value) in outcome.samples.iter().flat_map(Sampled::metrics) {
        let values = values.entry(metric.name).or_default();
        if values.is_empty() {
            order.push(metric);
        }
        values.push(value);
    }
    let figure = |metric: &Metric| Figure::of(values.remove(metric.name).expect("it has values"));
    let figures: Vec<Figure> = order.iter().map(figure).collect();
    order.into_iter().zip(figures).collect()
}

/// The rate: items, or other units, per second.
pub(super) fn rate<S: Sampled>(outcome: &Outcome<S>) -> Figure {
    let mut all = all(outcome).into_iter();
    all.find(|(metric, _)| metric.name == S::RATE.name).expect("every sample has a rate").1
}

/// The fastest contestant of a standing, by median.
pub(super) fn fastest<S: Sampled>(
    outcomes: &[Outcome<S>],
    standing: Standing,
) -> Option<&Outcome<S>> {
    let those = outcomes.iter().filter(|outcome| outcome.standing == Some(standing));
    those.max_by(|a, b| rate(a).median.total_cmp(&rate(b).median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let figure = Figure::of(vec![4.0, 1.0, 3.0, 100.0]);
        assert_eq!(figure, Figure { median: 3.5, min: 1.0, max: 100.0 });
        assert_eq!(Figure::of(vec![7.0]), Figure { median: 7.0, min: 7.0, max: 7.0 });
    }
}
