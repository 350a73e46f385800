//! The metrics of each way to post, and the sizes of the measurements.

use uwork_rivals::posts::{Placement, Posts, Size, Way, measure};

use super::COMBINER;
use crate::bench::contestant::cpus;
use crate::bench::interleave::GroupOutcome;
use crate::bench::measured::Measured;
use crate::bench::summary::{CPU, Metric, RATE};

const fn micros(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "us", title, decimals: 1 }
}

/// Of all threads together.
pub(super) const P50: Metric = micros("latency_p50_us", "all p50 us");
pub(super) const P99: Metric = micros("latency_p99_us", "all p99 us");
const SAME_P50: Metric = micros("same_cpu_p50_us", "same CPU p50 us");
const SAME_P99: Metric = micros("same_cpu_p99_us", "same CPU p99 us");
const ACROSS_P50: Metric = micros("across_cpus_p50_us", "across p50 us");
const ACROSS_P99: Metric = micros("across_cpus_p99_us", "across p99 us");
/// The legends below the tables.
const POSTS_LEGEND: &str = "\
an item is a post; all: the time from a post until it is run, with all threads active
same CPU, across: the same time with one post at a time between two threads, on one CPU and on two
";
const SENDS_LEGEND: &str = "\
an item is a message, sent at full speed; all: in bursts, the time from a message's creation until it is in the socket
";

/// The legend of the group's table.
pub(super) fn legend(group: &GroupOutcome<Measured>) -> String {
    let sends = group.outcomes.iter().any(|outcome| outcome.names.case == COMBINER);
    if sends { SENDS_LEGEND } else { POSTS_LEGEND }.to_owned()
}

/// The rate, the CPU cost, and two latencies.
pub(super) fn rate_of(posts: &Posts, latencies: [Metric; 2]) -> Vec<(Metric, f64)> {
    vec![
        (RATE, posts.posts as f64 / posts.wall.as_secs_f64().max(1e-9)),
        (CPU, posts.cpu.as_secs_f64() * 1e6 / posts.posts as f64),
        (latencies[0], posts.p50_ns as f64 / 1e3),
        (latencies[1], posts.p99_ns as f64 / 1e3),
    ]
}

/// The sizes of a sample's parts.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    many: Size,
    pair: Size,
}

impl Sizes {
    pub(super) fn of(quick: bool, threads: usize) -> Sizes {
        const TOKENS_PER_THREAD: usize = 4;
        let (hops, pair_hops) = if quick { (500, 1_000) } else { (5_000, 20_000) };
        let placement = Placement::Free;
        Sizes {
            many: Size { threads, tokens: threads * TOKENS_PER_THREAD, hops, placement },
            pair: Size { threads: 2, tokens: 1, hops: pair_hops, placement },
        }
    }

    /// Measures all parts: many threads, a pair on one CPU and, if possible, a pair on two CPUs.
    pub(super) fn measure<W: Way>(&self, make: &impl Fn(usize) -> W) -> Measured {
        let mut figures = rate_of(&measure(make(self.many.threads), &self.many), [P50, P99]);
        let mut pair = |placement, metrics: [Metric; 2]| {
            let posts = measure(make(2), &Size { placement, ..self.pair });
            figures.extend(rate_of(&posts, metrics).split_off(2));
        };
        pair(Placement::Same, [SAME_P50, SAME_P99]);
        if cpus() > 1 {
            pair(Placement::Across, [ACROSS_P50, ACROSS_P99]);
        }
        Measured::new(figures)
    }
}
