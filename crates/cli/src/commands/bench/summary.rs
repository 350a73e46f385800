//! From samples to figures: the median of each metric, with its least and greatest.

use uwork_rivals::{Latency, Sample, Standing};

use super::interleave::Outcome;

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

    /// The distance from least to greatest, as a part of the median.
    pub(super) fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// A metric's fixed name and unit.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
}

type Take = fn(&Latency) -> u64;

const ENQUEUE: [(Metric, Take); 4] = [
    (Metric { name: "enqueue_p50_ns", unit: "ns" }, |latency| latency.p50_ns),
    (Metric { name: "enqueue_p90_ns", unit: "ns" }, |latency| latency.p90_ns),
    (Metric { name: "enqueue_p95_ns", unit: "ns" }, |latency| latency.p95_ns),
    (Metric { name: "enqueue_p99_ns", unit: "ns" }, |latency| latency.p99_ns),
];

/// Items per second.
pub(super) fn rate(outcome: &Outcome) -> Figure {
    let of = |sample: &Sample| sample.items as f64 / sample.wall.as_secs_f64().max(1e-9);
    Figure::of(outcome.samples.iter().map(of).collect())
}

/// CPU-seconds of the process per million items.
pub(super) fn cpu(outcome: &Outcome) -> Figure {
    let of = |sample: &Sample| sample.cpu.as_secs_f64() * 1e6 / sample.items as f64;
    Figure::of(outcome.samples.iter().map(of).collect())
}

/// The percentiles of the enqueue time, p50 to p99; none where it was not taken.
pub(super) fn enqueue(outcome: &Outcome) -> Vec<(Metric, Figure)> {
    let clocked: Vec<Latency> =
        outcome.samples.iter().filter_map(|sample| sample.latency).collect();
    if clocked.is_empty() {
        return Vec::new();
    }
    let figure =
        |take: Take| Figure::of(clocked.iter().map(|latency| take(latency) as f64).collect());
    ENQUEUE.iter().map(|(metric, take)| (*metric, figure(*take))).collect()
}

/// Every metric of a contestant.
pub(super) fn all(outcome: &Outcome) -> Vec<(Metric, Figure)> {
    let mut all = vec![
        (Metric { name: "items_per_s", unit: "items/s" }, rate(outcome)),
        (Metric { name: "cpu_s_per_mitem", unit: "s/Mitem" }, cpu(outcome)),
    ];
    all.extend(enqueue(outcome));
    all
}

/// The fastest of a standing, by median.
pub(super) fn fastest(outcomes: &[Outcome], standing: Standing) -> Option<&Outcome> {
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
