//! The results of a run of redis-benchmark, and the latency tables below the figures.

use std::fmt::Write;
use std::time::Duration;

use super::client::Drive;
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::summary::{self, CPU, Figure, Metric, Sampled};
use crate::bench::warning::Warning;

const REQUESTS: Metric =
    Metric { name: "requests_per_s", unit: "requests/s", title: "requests/s", decimals: 0 };
const SERVER_CPU: Metric = Metric { title: "server CPU-s/M", ..CPU };
const P50: Metric = Metric { name: "latency_p50_us", unit: "us", title: "p50 us", decimals: 0 };
const P99: Metric = Metric { name: "latency_p99_us", unit: "us", title: "p99 us", decimals: 0 };

/// Shares of the requests that took no longer than so many milliseconds.
const WITHIN: [(Metric, f64); 9] = [
    (within("within_0.1_ms"), 0.1),
    (within("within_0.2_ms"), 0.2),
    (within("within_0.3_ms"), 0.3),
    (within("within_0.4_ms"), 0.4),
    (within("within_0.5_ms"), 0.5),
    (within("within_1_ms"), 1.0),
    (within("within_2_ms"), 2.0),
    (within("within_3_ms"), 3.0),
    (within("within_10_ms"), 10.0),
];

const fn within(name: &'static str) -> Metric {
    Metric { name, unit: "%", title: name, decimals: 2 }
}

/// With several threads, redis-benchmark checks only so often whether it is over: the rate is that of
/// a whole number of these steps.
const STEP_SECONDS: f64 = 0.25;
/// A run is too short if two neighbouring rates differ by more than this part.
const STEP_PART_MAX: f64 = 0.025;
const SECONDS_MIN: f64 = STEP_SECONDS / STEP_PART_MAX;
/// The legend below each table.
const LEGEND: &str = "\
requests/s, p50, p99 (from a request until its reply): as redis-benchmark counts them
server CPU-s/M: CPU-seconds of the server, system calls included, for a million requests
";

/// The results of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served {
    requests: usize,
    /// With several threads, redis-benchmark detects its end only in steps.
    is_in_steps: bool,
    requests_per_s: f64,
    cpu: Duration,
    wall: Duration,
    p50_us: f64,
    p99_us: f64,
    /// Pairs of a percentage of the requests and their maximum latency in milliseconds.
    cumulative: Vec<(f64, f64)>,
}

impl Sampled for Served {
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        summary::medians(samples, Self::metrics)
    }

    fn more(samples: &[Self]) -> Vec<(Metric, Figure)> {
        summary::medians(samples, |sample| {
            WITHIN.iter().map(|&(metric, ms)| (metric, sample.percent_within(ms))).collect()
        })
    }

    fn doubts(group: &GroupOutcome<Self>) -> Vec<Warning> {
        let runs = group
            .outcomes
            .iter()
            .flat_map(|outcome| outcome.samples.iter().map(|sample| (outcome.names.case, sample)));
        let shortest = runs.min_by(|a, b| a.1.seconds().total_cmp(&b.1.seconds()));
        let is_short = |run: &(_, &Self)| run.1.is_in_steps && run.1.seconds() < SECONDS_MIN;
        let doubt = shortest.filter(is_short).map(|(case, shortest)| {
            let seconds = shortest.seconds();
            let enough = (shortest.requests as f64 * SECONDS_MIN / seconds) as usize + 1;
            let unit = 10_usize.pow(enough.ilog10());
            let step_percent = STEP_SECONDS / seconds * 100.0;
            Warning::ShortRun {
                case,
                seconds,
                step_percent,
                requests: enough.div_ceil(unit) * unit,
            }
        });
        doubt.into_iter().collect()
    }
}

impl Served {
    fn metrics(&self) -> Vec<(Metric, f64)> {
        let cpu = self.cpu.as_secs_f64() * 1e6 / self.requests as f64;
        vec![
            (REQUESTS, self.requests_per_s),
            (SERVER_CPU, cpu),
            (P50, self.p50_us),
            (P99, self.p99_us),
        ]
    }

    /// Parses the output of redis-benchmark.
    pub(super) fn read(text: &str, drive: &Drive, cpu: Duration, wall: Duration) -> Option<Self> {
        // Progress is printed before the first line of the result, separated by carriage returns.
        let lines = || text.split(['\n', '\r']).map(str::trim);
        let rate = lines().find_map(|line| line.strip_prefix("throughput summary: "))?;
        let requests_per_s = rate.split_whitespace().next()?.parse().ok()?;
        // The values avg, min, p50, p95, p99, max are below their names.
        let summary = lines().skip_while(|line| !line.starts_with("latency summary")).nth(2)?;
        let latencies: Vec<f64> =
            summary.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let [_, _, p50, _, p99, _] = latencies[..] else { return None };
        let table = lines().skip_while(|line| !line.starts_with("Cumulative distribution"));
        let cumulative = table.skip(1).map_while(|line| {
            let (percent, rest) = line.split_once("% <= ")?;
            let (ms, _) = rest.split_once(" milliseconds")?;
            Some((percent.parse().ok()?, ms.parse().ok()?))
        });
        Some(Self {
            requests: drive.requests,
            is_in_steps: drive.threads > 1,
            requests_per_s,
            cpu,
            wall,
            p50_us: p50 * 1e3,
            p99_us: p99 * 1e3,
            cumulative: cumulative.collect(),
        })
    }

    /// The share of the requests that took no longer than this. redis-benchmark counts in steps, and
    /// prints them with some microseconds more: 0.103 for 0.1.
    fn percent_within(&self, ms: f64) -> f64 {
        let known = self.cumulative.iter().rev().find(|&&(_, limit)| limit < ms * 1.05);
        known.map_or(0.0, |&(percent, _)| percent)
    }

    /// The duration as redis-benchmark computes it.
    fn seconds(&self) -> f64 {
        self.requests as f64 / self.requests_per_s
    }

    fn cpus_used(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The legend, and the latency table of each server for its sample with the median rate.
pub(super) fn below(group: &GroupOutcome<Served>) -> String {
    let tables: String = group.outcomes.iter().map(table).collect();
    format!("{LEGEND}{tables}")
}

fn table(outcome: &Outcome<Served>) -> String {
    let median = summary::lead_median(outcome);
    let distance = |sample: &Served| (sample.requests_per_s - median).abs();
    let nearest = outcome.samples.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some(sample) = nearest else { return String::new() };
    let mut text = format!("\n{}: requests that took no longer than\n", outcome.names.spoken());
    for (percent, ms) in &sample.cumulative {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{percent:.2}% <= {ms:.1} milliseconds");
    }
    let _ = writeln!(text, "{:.2} requests per second", sample.requests_per_s);
    let _ = writeln!(text, "~{:.0}% CPU", sample.cpus_used() * 100.0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::serve::client::Request;

    const PRINTED: &str = "GET: rps=0.0 (overall: nan)\r====== GET ======\n  \
        2000 requests completed in 0.04 seconds\n\n\
        Latency by percentile distribution:\n0.000% <= 0.071 milliseconds (cumulative count 1)\n\n\
        Cumulative distribution of latencies:\n\
        2.500% <= 0.103 milliseconds (cumulative count 50)\n\
        100.000% <= 0.207 milliseconds (cumulative count 2000)\n\n\
        Summary:\n  throughput summary: 47619.05 requests per second\n  \
        latency summary (msec):\n          avg       min       p50       p95       p99       max\n        \
        0.226     0.064     0.183     0.271     2.559     4.831\n";

    fn drive(threads: usize) -> Drive {
        Drive { request: Request::Get, clients: 16, pipeline: 1, requests: 2000, threads }
    }

    fn served(threads: usize) -> Served {
        let (cpu, wall) = (Duration::from_millis(30), Duration::from_millis(40));
        Served::read(PRINTED, &drive(threads), cpu, wall).unwrap()
    }

    fn group(samples: Vec<Served>) -> GroupOutcome<Served> {
        let names = Names { case: "get", runner: "uwork", variant: "light".to_owned() };
        let outcomes = vec![Outcome { names, standing: None, samples }];
        GroupOutcome { title: String::new(), outcomes, ratio_to: RatioTo::FastestRival }
    }

    #[test]
    fn the_output_of_redis_benchmark_is_parsed() {
        let values: Vec<f64> = served(1).metrics().into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [47619.05, 15.0, 183.0, 2559.0]);
        assert_eq!(served(1).cumulative, [(2.5, 0.103), (100.0, 0.207)]);
        let nothing = Served::read("Could not connect", &drive(1), Duration::ZERO, Duration::ZERO);
        assert_eq!(nothing, None);
    }

    #[test]
    fn shares_are_those_of_the_steps_below() {
        let within = [0.05, 0.1, 0.15, 0.2, 3.0].map(|ms| served(1).percent_within(ms));
        assert_eq!(within, [0.0, 2.5, 2.5, 100.0, 100.0]);
        assert_eq!(Served::more(&[served(1)]).len(), WITHIN.len());
    }

    #[test]
    fn the_table_has_the_form_of_the_report() {
        assert_eq!(
            below(&group(vec![served(1)])).strip_prefix(LEGEND),
            Some(
                "\nuwork light (get): requests that took no longer than\n\
                 2.50% <= 0.1 milliseconds\n100.00% <= 0.2 milliseconds\n\
                 47619.05 requests per second\n~75% CPU\n"
            )
        );
    }

    #[test]
    fn the_warning_about_a_short_run_suggests_a_number_of_requests() {
        let [long, short] =
            [199.0, 2000.0].map(|requests_per_s| Served { requests_per_s, ..served(2) });
        assert_eq!(Served::doubts(&group(vec![long.clone(), long.clone()])), []);
        let warning = Served::doubts(&group(vec![long, short]))[0].to_string();
        let start = "get: a run took 1.0 s, and redis-benchmark with several threads counts in steps of \
                     0.25 s, 25 % of it: ";
        assert_eq!(warning, format!("{start}use --requests 30000 or more, or --client-threads 1"));
        // With a single thread, redis-benchmark detects its end at once.
        assert_eq!(Served::doubts(&group(vec![served(1)])), []);
    }
}
