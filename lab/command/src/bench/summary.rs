//! From samples to figures: the median, the minimum and the maximum of each metric.

use std::cmp::Ordering;
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
    /// The number of values behind it.
    pub(super) samples: usize,
}

impl Figure {
    /// A single value.
    pub(super) fn single(value: f64) -> Self {
        Self { median: value, min: value, max: value, samples: 1 }
    }

    /// The median, minimum and maximum of the values, of which there must be one.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self { median, min: values[0], max: values[values.len() - 1], samples: values.len() }
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

/// The result of one measurement.
pub(super) trait Sampled: Sized {
    /// Whether lower values of the first figure are better, as of a time. Of a rate, higher ones
    /// are.
    const LOWER_IS_BETTER: bool = false;

    /// The figures of a contestant, of which there is at least one. Tables are sorted by the first.
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)>;

    /// Further figures, for the records only.
    fn more(_samples: &[Self]) -> Vec<(Metric, Figure)> {
        Vec::new()
    }

    /// Reasons to doubt the figures of a group, in addition to the general ones.
    fn doubts(_group: &GroupOutcome<Self>) -> Vec<Warning> {
        Vec::new()
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
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        medians(samples, |sample| {
            let mut metrics = vec![
                (RATE, sample.items as f64 / sample.wall.as_secs_f64().max(1e-9)),
                (CPU, sample.cpu.as_secs_f64() * 1e6 / sample.items as f64),
            ];
            let latency = sample.latency.iter();
            metrics.extend(
                latency.flat_map(|of| ENQUEUE.map(|(metric, take)| (metric, take(of) as f64))),
            );
            metrics
        })
    }
}

/// For each metric the median of the samples, in the order in which the metrics first occur.
pub(super) fn medians<S>(
    samples: &[S],
    metrics: impl Fn(&S) -> Vec<(Metric, f64)>,
) -> Vec<(Metric, Figure)> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut order: Vec<Metric> = Vec::new();
    for (metric, value) in samples.iter().flat_map(metrics) {
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

/// Every figure of a contestant.
pub(super) fn all<S: Sampled>(outcome: &Outcome<S>) -> Vec<(Metric, Figure)> {
    S::figures(&outcome.samples)
}

/// All figures, and those for the records only.
pub(super) fn recorded<S: Sampled>(outcome: &Outcome<S>) -> Vec<(Metric, Figure)> {
    all(outcome).into_iter().chain(S::more(&outcome.samples)).collect()
}

/// The first figure: in most benchmarks the rate, items or other units per second.
pub(super) fn lead<S: Sampled>(outcome: &Outcome<S>) -> (Metric, Figure) {
    all(outcome).into_iter().next().expect("a contestant has a figure")
}

/// The median of the first figure.
pub(super) fn lead_median<S: Sampled>(outcome: &Outcome<S>) -> f64 {
    lead(outcome).1.median
}

/// The fastest contestant of a standing, by median.
pub(super) fn fastest<'a, S: Sampled + 'a>(
    outcomes: impl IntoIterator<Item = &'a Outcome<S>>,
    standing: Standing,
) -> Option<&'a Outcome<S>> {
    let those = outcomes.into_iter().filter(|outcome| outcome.standing == Some(standing));
    those.min_by(|a, b| faster_first::<S>(lead_median(a), lead_median(b)))
}

/// The order of two medians of the first figure, the better one first.
pub(super) fn faster_first<S: Sampled>(a: f64, b: f64) -> Ordering {
    if S::LOWER_IS_BETTER { a.total_cmp(&b) } else { b.total_cmp(&a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let figure = Figure::of(vec![4.0, 1.0, 3.0, 100.0]);
        assert_eq!(figure, Figure { median: 3.5, min: 1.0, max: 100.0, samples: 4 });
        assert_eq!(Figure::of(vec![7.0]), Figure::single(7.0));
    }
}
