//! The lateness of items: the figures of a variant.

use std::time::Duration;

use super::plan::Order;
use crate::UserError;
use crate::bench::measured::lines;
use crate::bench::summary::{Figure, Metric, Sampled};

const fn late(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "us", title, decimals: 1 }
}

const fn number(name: &'static str, unit: &'static str, title: &'static str) -> Metric {
    Metric { name, unit, title, decimals: 0 }
}

pub(super) const P50: Metric = late("late_p50_us", "p50 us");
pub(super) const P99: Metric = late("late_p99_us", "p99 us");
pub(super) const MAX: Metric = late("late_max_us", "max us");
/// Number of tries behind the figures.
pub(super) const TRIES: Metric = number("samples", "tries", "samples");
/// Pools that the engine's backstop found without a worker that they should have had.
pub(super) const RESCUES: Metric = number("rescues", "pools", "rescues");
/// All metrics, in table order.
pub(super) const METRICS: [Metric; 5] = [P50, P99, MAX, TRIES, RESCUES];

/// Tries of a variant.
pub(super) struct Tries {
    pub(super) order: Order,
    late: Vec<Duration>,
    rescues: u64,
    /// The lines that the child wrote to standard error.
    said: Vec<String>,
}

/// The output of a child.
#[derive(serde::Serialize, serde::Deserialize)]
struct Printed {
    late_ns: Vec<u64>,
    rescues: u64,
}

/// Prints this process's tries for the parent.
pub(super) fn print(late: &[Duration]) {
    let late_ns = late.iter().map(|late| late.as_nanos() as u64).collect();
    let printed = Printed { late_ns, rescues: uwork::rescues() };
    println!("{}", serde_json::to_string(&printed).expect("plain numbers"));
}

impl Tries {
    /// Reads what a child has printed.
    pub(super) fn read(order: &Order, printed: &str, said: &str) -> Result<Self, UserError> {
        let Printed { late_ns, rescues } = serde_json::from_str(printed)
            .map_err(|error| UserError(format!("a child's figures cannot be read: {error}")))?;
        Ok(Self {
            order: order.clone(),
            late: late_ns.into_iter().map(Duration::from_nanos).collect(),
            rescues,
            said: lines(said).map(str::to_owned).collect(),
        })
    }
}

impl Sampled for Tries {
    /// Over the tries of all children.
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        let mut late: Vec<Duration> =
            samples.iter().flat_map(|tries| &tries.late).copied().collect();
        late.sort_unstable();
        let us = |percent| percentile(&late, percent).as_secs_f64() * 1e6;
        let rescues: u64 = samples.iter().map(|tries| tries.rescues).sum();
        let values = [us(50), us(99), us(100), late.len() as f64, rescues as f64];
        METRICS.into_iter().zip(values.map(Figure::single)).collect()
    }

    fn said(&self) -> &[String] {
        &self.said
    }
}

/// The smallest of these sorted values that at least `percent` of them do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::super::plan::{READY, orders};
    use super::*;

    #[test]
    fn the_tries_of_all_children_count() {
        let order = &orders(READY, &["events"], &[1], 3)[0];
        let first = Tries::read(order, "{\"late_ns\":[3000,1000],\"rescues\":1}", "a line\n");
        let second = Tries::read(order, "{\"late_ns\":[7500],\"rescues\":2}", "uwork: another\n");
        let tries = [first.unwrap(), second.unwrap()];
        let values = Tries::figures(&tries).into_iter().map(|(_, figure)| figure.median);
        assert_eq!(values.collect::<Vec<_>>(), [3.0, 7.5, 7.5, 3.0, 3.0]);
        assert_eq!(tries.map(|tries| tries.said), [["a line"], ["another"]]);
        assert!(Tries::read(order, "", "").is_err());
    }

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
