//! The metrics of this benchmark.

use crate::bench::summary::{CPU, Metric, RATE};

const fn metric(
    name: &'static str,
    unit: &'static str,
    title: &'static str,
    decimals: usize,
) -> Metric {
    Metric { name, unit, title, decimals }
}

pub(super) const WALL: Metric = metric("wall_s", "s", "wall s", 3);
/// Threads of the process, excluding those of the benchmark itself.
pub(super) const THREADS: Metric = metric("threads_peak", "threads", "threads", 0);
pub(super) const LATENCY_P50: Metric = metric("latency_p50_us", "us", "p50 us", 1);
pub(super) const LATENCY_P90: Metric = metric("latency_p90_us", "us", "p90 us", 1);
pub(super) const LATENCY_P99: Metric = metric("latency_p99_us", "us", "p99 us", 1);
/// Number of latencies in a sample.
pub(super) const LATENCIES: Metric = metric("latencies", "blocks", "latencies", 0);
/// The duration, as a multiple of the minimum that the limit allows.
pub(super) const OVER_IDEAL: Metric = metric("over_ideal", "x", "x ideal", 3);
/// The peak number of workers in a pool.
pub(super) const WORKERS: Metric = metric("workers_peak", "workers", "workers", 0);
/// The peak of a pool's workers above its target.
pub(super) const OVER_TARGET: Metric = metric("workers_over_target", "workers", "over target", 0);

/// All metrics, in table order.
pub(super) const ALL: [Metric; 11] = [
    RATE,
    CPU,
    WALL,
    OVER_IDEAL,
    THREADS,
    LATENCY_P50,
    LATENCY_P90,
    LATENCY_P99,
    LATENCIES,
    WORKERS,
    OVER_TARGET,
];
