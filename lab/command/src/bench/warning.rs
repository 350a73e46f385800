//! Reasons to doubt the figures, each with advice.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::Duration;

use uwork_rivals::load::{children_cpu_time, cpu_time};

use super::contestant::cpus;
use super::interleave::GroupOutcome;
use super::summary::{self, Sampled};

const FEW_SAMPLES: usize = 3;
const LARGE_SPREAD: f64 = 0.5;
/// Maximum CPU use of other programs, relative to the number of CPUs.
const OTHER_LOAD: f64 = 0.1;

/// A reason to doubt the figures.
#[derive(Debug, PartialEq)]
pub(super) enum Warning {
    /// Built without optimization.
    DebugBuild,
    /// Too few samples for a meaningful median.
    FewSamples(usize),
    /// Other programs used this many CPUs during the measurement.
    OtherLoad(f64),
    /// This many runners have a large spread; the largest one is named.
    LargeSpread { runners: usize, widest: String, spread: f64 },
    /// Page faults cannot be made to wait, for this reason.
    NoFaults(String),
    /// Variants on this many CPUs are left out, because the process may use fewer.
    FewCpus(usize),
    /// io_uring is unavailable, for this reason.
    NoRing(String),
    /// A run was too short for the resolution of redis-benchmark; `requests` would be enough.
    ShortRun { case: &'static str, seconds: f64, step_percent: f64, requests: usize },
    /// The process used nearly all the time of the CPUs in an open loop.
    SaturatedCpus { runner: String, percent: f64 },
    /// A generator of an open loop did not keep to its plan beside this runner.
    LateGenerator { runner: String, p99_us: f64 },
    /// A runner printed this line, possibly several times.
    Said { who: String, line: String },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DebugBuild => {
                write!(
                    f,
                    "this is a debug build, its figures are meaningless: build with --release"
                )
            }
            Self::FewSamples(samples) => {
                write!(
                    f,
                    "{samples} sample(s) per runner are too few: use --samples {FEW_SAMPLES} or more"
                )
            }
            Self::OtherLoad(used) => write!(
                f,
                "other programs used {used:.1} of {} CPUs meanwhile: stop them and run again, or compare only ratios",
                cpus()
            ),
            Self::LargeSpread { runners, widest, spread } => write!(
                f,
                "{runners} runner(s) spread by more than {:.0} % of their median, {widest} by {:.0} %: \
                 look at [min .. max], use more --samples or more --items",
                LARGE_SPREAD * 100.0,
                spread * 100.0
            ),
            Self::NoFaults(reason) => {
                write!(f, "userfaultfd: {reason}: the case `fault` is left out, in `mixed` as well")
            }
            Self::FewCpus(count) => {
                write!(f, "the variants on {count} CPUs are left out: the process may use fewer")
            }
            Self::NoRing(reason) => write!(f, "{reason}: the case `ring` is left out"),
            Self::ShortRun { case, seconds, step_percent, requests } => write!(
                f,
                "{case}: a run took {seconds:.1} s, and redis-benchmark with several threads counts \
                 in steps of 0.25 s, {step_percent:.0} % of it: use --requests {requests} or more, or \
                 --client-threads 1"
            ),
            Self::SaturatedCpus { runner, percent } => write!(
                f,
                "{runner} and its generator used {percent:.0} % of the CPUs' time: latencies depend on \
                 the length of the run; measure on more CPUs"
            ),
            Self::LateGenerator { runner, p99_us } => write!(
                f,
                "beside {runner} one arrival in a hundred was submitted {:.1} ms late or more, which \
                 is a part of its latency: compare with a lower load or on more CPUs",
                p99_us / 1e3
            ),
            Self::Said { who, line } => write!(f, "{who} said: {line}"),
        }
    }
}

/// CPU time used so far by the whole machine, and by this process with its finished children.
pub(super) struct MachineTime {
    /// `None` if /proc/stat cannot be read.
    busy: Option<Duration>,
    own: Duration,
}

impl MachineTime {
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").ok();
        Self { busy: stat.as_deref().and_then(busy_time), own: cpu_time() + children_cpu_time() }
    }

    /// The average number of CPUs that other programs used between `self` and `later`.
    fn others_until(&self, later: &Self, wall: Duration) -> Option<f64> {
        let busy = later.busy?.saturating_sub(self.busy?);
        let own = later.own.saturating_sub(self.own);
        Some(busy.saturating_sub(own).as_secs_f64() / wall.as_secs_f64().max(1e-9))
    }
}

/// The sum of user, nice, system, irq, softirq and steal in the first line of /proc/stat. The unit
/// is 10 ms on every Linux.
fn busy_time(stat: &str) -> Option<Duration> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|field| ticks.get(*field)).sum();
    (ticks.len() >= 4).then(|| Duration::from_millis(busy * 10))
}

/// The warnings that apply; `samples` is the smallest number of samples, if it matters.
pub(super) fn about<S: Sampled>(
    results: &[GroupOutcome<S>],
    samples: Option<usize>,
    before: MachineTime,
    wall: Duration,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if cfg!(debug_assertions) {
        warnings.push(Warning::DebugBuild);
    }
    let few = samples.filter(|&samples| samples < FEW_SAMPLES);
    warnings.extend(few.map(Warning::FewSamples));
    warnings.extend(other_load(&before, wall));
    warnings.extend(large_spread(results));
    warnings.extend(results.iter().flat_map(S::doubts));
    warnings.extend(said(results));
    warnings
}

/// Whether other programs were busy since `before`, which was taken `wall` ago.
fn other_load(before: &MachineTime, wall: Duration) -> Option<Warning> {
    let used = before.others_until(&MachineTime::now(), wall)?;
    (used > OTHER_LOAD * cpus() as f64).then_some(Warning::OtherLoad(used))
}

/// Each line once, attributed to the first runner that printed it.
fn said<S: Sampled>(results: &[GroupOutcome<S>]) -> Vec<Warning> {
    let mut seen = BTreeSet::new();
    let mut warnings = Vec::new();
    for outcome in results.iter().flat_map(|group| &group.outcomes) {
        for line in outcome.samples.iter().flat_map(Sampled::said) {
            if seen.insert(line) {
                let who = outcome.names.spoken();
                warnings.push(Warning::Said { who, line: line.clone() });
            }
        }
    }
    warnings
}

fn large_spread<S: Sampled>(results: &[GroupOutcome<S>]) -> Option<Warning> {
    let outcomes = results.iter().flat_map(|group| &group.outcomes);
    let wide: Vec<_> = outcomes
        .map(|outcome| (summary::lead(outcome).1.spread(), &outcome.names))
        .filter(|(spread, _)| *spread > LARGE_SPREAD)
        .collect();
    let (spread, names) = wide.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Warning::LargeSpread { runners: wide.len(), widest: names.spoken(), spread: *spread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::interleave::Outcome;
    use crate::bench::summary::{Figure, Metric, RATE};

    struct Talk(Vec<String>);

    impl Sampled for Talk {
        fn figures(_samples: &[Self]) -> Vec<(Metric, Figure)> {
            vec![(RATE, Figure::single(1.0))]
        }

        fn said(&self) -> &[String] {
            &self.0
        }
    }

    #[test]
    fn a_line_is_reported_once_with_the_first_runner_that_printed_it() {
        let outcome = |variant: &str, lines: &[&str]| Outcome {
            names: Names { case: "sleep", runner: "uwork", variant: variant.to_owned() },
            standing: None,
            samples: lines.iter().map(|line| Talk(vec![(*line).to_owned()])).collect(),
        };
        let group = GroupOutcome {
            title: String::new(),
            outcomes: vec![outcome("events", &["a", "b", "a"]), outcome("sampling", &["b", "c"])],
            ratio_to: RatioTo::FastestRival,
        };
        let lines: Vec<String> = said(&[group]).iter().map(Warning::to_string).collect();
        let events = ["a", "b"].map(|line| format!("uwork events (sleep) said: {line}"));
        assert_eq!(lines, [&events[..], &["uwork sampling (sleep) said: c".to_owned()]].concat());
    }

    #[test]
    fn busy_time_leaves_out_idle_and_iowait() {
        let stat = "cpu  100 10 50 9999 777 1 2 3 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(busy_time(stat), Some(Duration::from_millis(1660)));
        assert_eq!(busy_time("nonsense"), None);
        assert_eq!(busy_time(""), None);
    }
}
