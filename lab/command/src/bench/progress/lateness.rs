//! The lateness of items: the figures of a variant.

use std::time::Duration;

use crate::UserError;
use crate::bench::measured::lines;
use crate::bench::summary::Metric;

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

/// The tries of a variant so far.
#[derive(Default)]
pub(super) struct Tries {
    late: Vec<Duration>,
    rescues: u64,
    /// The lines that the children wrote to standard error.
    pub(super) said: Vec<String>,
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
    /// Adds the tries of a child.
    pub(super) fn add(&mut self, printed: &str, said: &str) -> Result<(), UserError> {
        let Printed { late_ns, rescues } = serde_json::from_str(printed)
            .map_err(|error| UserError(format!("a child's figures cannot be read: {error}")))?;
        self.late.extend(late_ns.into_iter().map(Duration::from_nanos));
        self.rescues += rescues;
        self.said.extend(lines(said).map(str::to_owned));
        Ok(())
    }

    /// The figures. Requires at least one try.
    pub(super) fn metrics(&self) -> [(Metric, f64); 5] {
        let mut late = self.late.clone();
        late.sort_unstable();
        let us = |percent| percentile(&late, percent).as_secs_f64() * 1e6;
        [
            (P50, us(50)),
            (P99, us(99)),
            (MAX, us(100)),
            (TRIES, late.len() as f64),
            (RESCUES, self.rescues as f64),
        ]
    }
}

/// The smallest of these sorted values that at least `percent` of them do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tries_of_all_children_count() {
        let mut tries = Tries::default();
        tries.add("{\"late_ns\":[3000,1000],\"rescues\":1}", "a line\n").unwrap();
        tries.add("{\"late_ns\":[7500],\"rescues\":2}", "uwork: another\n").unwrap();
        let values: Vec<_> = tries.metrics().iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [3.0, 7.5, 7.5, 3.0, 3.0]);
        assert_eq!(tries.said, ["a line", "another"]);
        assert!(tries.add("", "").is_err());
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
