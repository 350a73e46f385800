//! The counters of all queues as plain values, and as text for a monitoring system.

use std::fmt::Write as _;
use std::time::Duration;

use uwork_engine::dump::{PwqDump, QueueDump};
use uwork_linux::engine;
use uwork_policy::histogram::Histogram;

/// The powers of two of the exported classes, in nanoseconds: 1 us to 1 s, in steps of four.
const EXPORTED: [usize; 11] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

/// The counters of this process. See [`counters`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Items that have panicked.
    pub panics: u64,
    /// Worker threads.
    pub workers: u64,
    /// Every queue, in the order of creation.
    pub queues: Vec<QueueCounters>,
}

/// The counters of a queue. A change of its attributes that moves it to other pools begins `ran`,
/// `run_time` and `run_times` anew.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueCounters {
    /// Its name.
    pub name: String,
    /// Runs that have ended, counted at the end of each batch.
    pub ran: u64,
    /// The time of those runs, sleeps included.
    pub run_time: Duration,
    /// Those runs by their time. The runs of a batch count with their mean.
    pub run_times: RunTimes,
    /// Items that were queued and are not known to have ended.
    pub in_flight: u64,
    /// Items that no worker has taken.
    pub pending: u64,
    /// Workers in an item of the queue.
    pub running: u64,
    /// The limit.
    pub max_active: u32,
    /// Pools in which all permits of the queue are taken.
    pub saturated: u64,
}

/// Runs by their time, in classes of powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes(Histogram);

impl RunTimes {
    /// The time that `percent` of the runs did not exceed, to a factor of two: the upper end of its
    /// class. None without runs.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        self.0.percentile_ns(percent).map(Duration::from_nanos)
    }

    /// The runs that took less than 2^`power` nanoseconds. From 32 on: all runs.
    pub fn below(&self, power: usize) -> u64 {
        self.0.below(power)
    }
}

/// The counters of all queues: what `uwork monitor` shows. Costs a microsecond or two for each queue
/// and pool, and nothing on the path of an item: a worker adds a batch under a lock that it holds
/// anyway.
///
/// ```
/// let queue = uwork::Queue::builder("counted").build()?;
/// queue.spawn(|| ()).join().unwrap();
/// queue.flush()?;
/// let counters = uwork::counters();
/// let counted = counters.queues.iter().find(|queue| queue.name == "counted").unwrap();
/// assert_eq!(counted.pending, 0);
/// assert!(counters.to_openmetrics().ends_with("# EOF\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn counters() -> Counters {
    let workers = engine().nr_workers();
    let queues = engine().dump_queues(|_| true).iter().map(QueueCounters::of).collect();
    Counters { panics: crate::panics(), workers, queues }
}

impl QueueCounters {
    pub(crate) fn of(queue: &QueueDump) -> QueueCounters {
        let mut runs = Histogram::default();
        queue.pwqs.iter().for_each(|pwq| runs.merge(&pwq.runs));
        let saturated = |pwq: &&PwqDump| pwq.saturated;
        QueueCounters {
            name: queue.name.clone(),
            ran: runs.count(),
            run_time: Duration::from_nanos(runs.sum_ns()),
            run_times: RunTimes(runs),
            in_flight: queue.in_flight(),
            pending: queue.pending() as u64,
            running: queue.slots.len() as u64,
            max_active: queue.max_active,
            saturated: queue.pwqs.iter().filter(saturated).count() as u64,
        }
    }
}

/// A metric with one value for each queue.
type Metric = (&'static str, &'static str, fn(&QueueCounters) -> u64);

const GAUGES: [Metric; 5] = [
    ("uwork_items_in_flight", "Items queued and not known to have ended", |queue| queue.in_flight),
    ("uwork_items_pending", "Items that no worker has taken", |queue| queue.pending),
    ("uwork_items_running", "Workers in an item of the queue", |queue| queue.running),
    ("uwork_max_active", "The limit of active items", |queue| queue.max_active.into()),
    ("uwork_saturated_pools", "Pools in which the limit is reached", |queue| queue.saturated),
];

impl Counters {
    /// The counters in the text format of OpenMetrics, for the program's own exporter. The control
    /// socket gives the same text.
    pub fn to_openmetrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        for (name, help, value) in GAUGES {
            writeln!(text, "# TYPE {name} gauge\n# HELP {name} {help}.")?;
            for queue in &self.queues {
                writeln!(text, "{name}{{queue=\"{}\"}} {}", escaped(&queue.name), value(queue))?;
            }
        }
        text.push_str("# TYPE uwork_run_seconds histogram\n# UNIT uwork_run_seconds seconds\n");
        text.push_str(
            "# HELP uwork_run_seconds Run times of items; a batch counts with its mean.\n",
        );
        for queue in &self.queues {
            let name = escaped(&queue.name);
            for power in EXPORTED {
                let (bound, count) = ((1_u64 << power) as f64 / 1e9, queue.run_times.below(power));
                writeln!(
                    text,
                    "uwork_run_seconds_bucket{{queue=\"{name}\",le=\"{bound}\"}} {count}"
                )?;
            }
            let (count, sum) = (queue.ran, queue.run_time.as_secs_f64());
            writeln!(text, "uwork_run_seconds_bucket{{queue=\"{name}\",le=\"+Inf\"}} {count}")?;
            writeln!(text, "uwork_run_seconds_count{{queue=\"{name}\"}} {count}")?;
            writeln!(text, "uwork_run_seconds_sum{{queue=\"{name}\"}} {sum}")?;
        }
        writeln!(text, "# TYPE uwork_workers gauge\n# HELP uwork_workers Worker threads.")?;
        writeln!(text, "uwork_workers {}", self.workers)?;
        writeln!(
            text,
            "# TYPE uwork_panics counter\n# HELP uwork_panics Items that have panicked."
        )?;
        writeln!(text, "uwork_panics_total {}\n# EOF", self.panics)
    }
}

/// A name as the value of a label.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_cumulative_classes_and_escaped_names() {
        let mut runs = Histogram::default();
        runs.add(2_000, 1);
        runs.add(3_000_000, 2);
        let queue = QueueCounters {
            name: "a\"b\\".to_owned(),
            ran: 3,
            run_time: Duration::from_nanos(3_002_000),
            run_times: RunTimes(runs),
            in_flight: 4,
            pending: 2,
            running: 1,
            max_active: 8,
            saturated: 0,
        };
        let text = Counters { panics: 5, workers: 6, queues: vec![queue] }.to_openmetrics();
        for line in [
            "uwork_items_in_flight{queue=\"a\\\"b\\\\\"} 4",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"0.000001024\"} 0",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"0.000004096\"} 1",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"1.073741824\"} 3",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"+Inf\"} 3",
            "uwork_run_seconds_sum{queue=\"a\\\"b\\\\\"} 0.003002",
            "uwork_workers 6",
            "uwork_panics_total 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
