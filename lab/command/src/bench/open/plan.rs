//! The plan of arrivals: when each item arrives, and what it demands. The same seed makes the same
//! plan, on every machine with as many CPUs.

use std::time::Duration;

use super::cases::{Demand, Pattern, Stream};
use crate::bench::timers::Draw;

/// A planned arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Since the start.
    pub(super) at: Duration,
    pub(super) demand: Demand,
    /// Whether the item goes to the latency-critical queue.
    pub(super) critical: bool,
}

/// The arrivals of all streams until `end`, in the order of their times. `seed` must not be zero.
pub(super) fn arrivals(streams: &[Stream], cpus: usize, end: Duration, seed: u64) -> Vec<Arrival> {
    let numbered = streams.iter().zip(1..);
    let mut all: Vec<Arrival> = numbered
        .flat_map(|(stream, number)| stream_arrivals(stream, cpus, end, seed * number))
        .collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

fn stream_arrivals(stream: &Stream, cpus: usize, end: Duration, seed: u64) -> Vec<Arrival> {
    let mut random = Random::new(seed);
    let mut next = Duration::ZERO;
    let mut arrivals = Vec::new();
    loop {
        let at_once = match stream.pattern {
            Pattern::Poisson { .. } => {
                next += random.interval(stream.per_second(cpus));
                1
            }
            Pattern::Bursts { size, every } => {
                next += every;
                size
            }
        };
        if next >= end {
            return arrivals;
        }
        arrivals.extend((0..at_once).map(|_| {
            let is_long = random.percent() < stream.mix.long_percent;
            let demand = if is_long { stream.mix.long } else { stream.mix.short };
            Arrival { at: next, demand, critical: stream.critical }
        }));
    }
}

/// The generator, for each arrival, of `generators`. Each generator gets a random part, so that the
/// parts of a Poisson stream are Poisson streams too.
pub(super) fn divide(arrivals: usize, generators: usize, seed: u64) -> Vec<usize> {
    // Another sequence than that of the times.
    let mut random = Random::new(!seed);
    (0..arrivals).map(|_| random.0.below(generators as u64) as usize).collect()
}

struct Random(Draw);

impl Random {
    fn new(seed: u64) -> Self {
        // The first numbers of small and of neighbouring seeds resemble each other.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut draw = Draw(seed.wrapping_mul(SPREAD));
        for _ in 0..8 {
            draw.below(1);
        }
        Self(draw)
    }

    /// The exponentially distributed interval between two arrivals.
    fn interval(&mut self, per_second: f64) -> Duration {
        const STEPS: u64 = 1 << 53;
        // Above 0 and at most 1, so that the logarithm is finite.
        let part = (self.0.below(STEPS) + 1) as f64 / STEPS as f64;
        Duration::from_secs_f64(-part.ln() / per_second)
    }

    fn percent(&mut self) -> u64 {
        self.0.below(100)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{self, streams};
    use super::*;

    const END: Duration = Duration::from_secs(10);

    fn plan(case: &str, seed: u64) -> Vec<Arrival> {
        arrivals(&streams(case), 2, END, seed)
    }

    #[test]
    fn the_same_seed_makes_the_same_plan_and_another_seed_another() {
        for case in cases::ALL {
            assert_eq!(plan(case, 7), plan(case, 7), "{case}");
            assert_eq!(divide(100, 3, 7), divide(100, 3, 7));
        }
        assert_ne!(plan("bimodal-30", 7), plan("bimodal-30", 8));
        assert_ne!(divide(100, 3, 7), divide(100, 3, 8));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_the_spread_and_the_load_of_their_case() {
        for (case, percent) in [("bimodal-60", 60.0), ("heavy-60", 60.0), ("sleep-40", 40.0)] {
            let plan = plan(case, 1);
            let rate = plan.len() as f64 / END.as_secs_f64();
            let wanted = streams(case)[0].per_second(2);
            assert!((rate / wanted - 1.0).abs() < 0.02, "{case}: {rate} instead of {wanted}");

            // The standard deviation of exponential intervals equals their mean.
            let gaps: Vec<f64> =
                plan.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{case}");

            let busy: Duration =
                plan.iter().map(|arrival| arrival.demand.compute + arrival.demand.sleep).sum();
            let load = busy.as_secs_f64() / (2.0 * END.as_secs_f64()) * 100.0;
            assert!((load / percent - 1.0).abs() < 0.1, "{case}: a load of {load} %");
        }
    }

    #[test]
    fn a_burst_arrives_at_once() {
        let plan = plan("burst", 1);
        assert_eq!(plan.len() % 100, 0);
        for (burst, number) in plan.chunks(100).zip(1..) {
            let at = number * Duration::from_millis(10);
            assert!(burst.iter().all(|arrival| arrival.at == at), "burst {number}");
        }
    }

    #[test]
    fn the_streams_of_two_queues_are_merged_in_the_order_of_time() {
        let plan = plan("mixed", 1);
        assert!(plan.is_sorted_by_key(|arrival| arrival.at));
        let critical = plan.iter().filter(|arrival| arrival.critical).count() as f64;
        assert!((critical / END.as_secs_f64() / 10_000.0 - 1.0).abs() < 0.05, "{critical}");
    }

    #[test]
    fn each_generator_gets_its_part() {
        let parts = divide(30_000, 3, 1);
        for generator in 0..3 {
            let part = parts.iter().filter(|&&of| of == generator).count();
            assert!((9_500..10_500).contains(&part), "generator {generator}: {part}");
        }
        assert!(divide(100, 1, 1).iter().all(|&of| of == 0));
    }
}
