//! How late items started: the figures of a variant.

use std::time::Duration;

use crate::commands::bench::measured::Figures;
use crate::commands::bench::summary::Metric;

const fn late(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "us", title, decimals: 1 }
}

const fn number(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    Metric { name, unit, title, decimals: 0 }
}

pub(super) const P50: Metric = late("late_p50_us", "p50 us");
pub(super) const P99: Metric = late("late_p99_us", "p99 us");
pub(super) const MAX: Metric = late("late_max_us", "max us");
/// Tries that the figures are of.
pub(super) const TRIES: Metric = number("samples", "tries", "samples");
/// Pools that the engine's backstop found without a worker that they should have had.
pub(super) const RESCUES: Metric = number("rescues", "pools", "rescues");
/// In the order of the table.
pub(super) const METRICS: [Metric; 5] = [P50, P99, MAX, TRIES, RESCUES];

/// Prints the figures of these tries, at least one, for the parent.
pub(super) fn print(mut late: Vec<Duration>) {
    late.sort_unstable();
    let mut figures = Figures::default();
    for (metric, percent) in [(P50, 50), (P99, 99), (MAX, 100)] {
        figures.set(metric, percentile(&late, percent).as_secs_f64() * 1e6);
    }
    figures.set(TRIES, late.len() as f64);
    figures.set(RESCUES, uwork::rescues() as f64);
    figures.print();
}

/// The least value that `percent` of these sorted values do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values_of_the_list() {
        let of = |count: u64, percent| {
            let sorted: Vec<_> = (1..=count).map(Duration::from_secs).collect();
            percentile(&sorted, percent).as_secs()
        };
        assert_eq!([of(1, 50), of(1, 99), of(1, 100)], [1, 1, 1]);
        assert_eq!([of(2, 50), of(2, 99), of(2, 100)], [1, 2, 2]);
        assert_eq!([of(1000, 50), of(1000, 99), of(1000, 100)], [500, 990, 1000]);
    }
}
