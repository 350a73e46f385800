//! The counters of all queues and functions as plain values, and as text for a monitoring system.

use std::fmt::Write as _;
use std::time::Duration;

use uwork_engine::FunctionTimes;
use uwork_engine::dump::{PwqDump, QueueDump};
use uwork_linux::engine;
use uwork_linux::symbols::names;
use uwork_policy::histogram::Histogram;

/// The powers of two of the exported classes, in nanoseconds: 1 us to 17 s, in steps of four.
const EXPORTED: [usize; 13] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

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
    /// Every function that has run, most run time first.
    pub functions: Vec<FunctionCounters>,
}

/// The counters of a queue, since it was created. A change of its attributes keeps them. These are
/// states and not counters: `in_flight`, `pending`, `running`, `max_active`, `saturated`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueCounters {
    /// Its name.
    pub name: String,
    /// Items that workers have taken. An item that was given back and taken again counts twice.
    pub started: u64,
    /// Runs that have ended, counted at the end of each batch.
    pub ran: u64,
    /// The time of those runs, sleeps included.
    pub run_time: Duration,
    /// The CPU time of those runs. It is measured for items that take 0.1 ms and more. Of shorter
    /// ones the run time counts, up to 1 ms for a batch.
    pub cpu_time: Duration,
    /// Those runs by their time. The runs of a batch count with their mean.
    pub run_times: Times,
    /// Runs by the time from their submission to the start of their batch: the wait of its first
    /// item, which counts for all. Items that a waiting thread ran itself are not counted.
    pub waits: Times,
    /// Batches that used as much CPU time as `module/parameters/cpu_intensive_thresh_us` says.
    pub cpu_intensive: u64,
    /// Workers that stopped counting as running inside an item, so that another worker could take
    /// over: in a declared wait, found asleep, or computing for too long.
    pub replaced: u64,
    /// Items that workers of another pool took, also of the same pod.
    pub stolen: u64,
    /// Calls of the rescuer, since no worker could be created.
    pub maydays: u64,
    /// Items that the rescuer ran.
    pub rescued: u64,
    /// Items that were queued and are not known to have ended.
    pub in_flight: u64,
    /// Items that no worker has taken.
    pub pending: u64,
    /// Workers in an item of the queue.
    pub running: u64,
    /// The limit.
    pub max_active: u32,
    /// Pools in which the queue has no free permit. The pods of a node share their permits, so all
    /// of their pools count at the same time.
    pub saturated: u64,
}

/// The counters of an item's function, in all queues. In a batch with several functions the runs
/// after the fourth change are not counted here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionCounters {
    /// The type whose items it runs, or its symbol; its address where no name is known.
    pub name: String,
    /// Its address. 0: the functions beyond the first 1,024.
    pub address: usize,
    /// Runs that have ended.
    pub ran: u64,
    /// The time of those runs, sleeps included.
    pub run_time: Duration,
    /// Those runs by their time. Consecutive runs of a batch count with their mean.
    pub run_times: Times,
    /// Runs by the time from their submission to their start.
    pub waits: Times,
}

/// How often something took how long. The classes are log-linear, two to each power of two of
/// nanoseconds, from 64 ns to 34 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times(Histogram);

impl Times {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.sum_ns())
    }

    /// The time that `percent` of them did not exceed, to a factor of 1.5: the upper end of its
    /// class. None without any.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        self.0.percentile_ns(percent).map(Duration::from_nanos)
    }

    /// How many took less than 2^`power` nanoseconds. Below 6: none. From 36 on: all.
    pub fn below(&self, power: usize) -> u64 {
        self.0.below(power)
    }

    /// The classes in order: the first time that is too long for the class, and how many are in it.
    /// The last class has no end.
    pub fn classes(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        self.0.classes().map(|(end, count)| (end.map(Duration::from_nanos), count))
    }
}

/// The counters of all queues and functions: what `uwork monitor` shows. Costs a microsecond or two
/// for each queue, pool and worker. On the path of an item the only cost is a clock where its inbox
/// is empty: workers count once for each batch.
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
    let engine = engine();
    let queues = engine.dump_queues(|_| true).iter().map(QueueCounters::of).collect();
    let mut name = names();
    let functions = engine.function_times().into_iter();
    let functions = functions.map(|times| FunctionCounters::of(times, &mut name)).collect();
    Counters { panics: crate::panics(), workers: engine.nr_workers(), queues, functions }
}

impl QueueCounters {
    pub(crate) fn of(queue: &QueueDump) -> QueueCounters {
        let (mut runs, mut waits) = (Histogram::default(), Histogram::default());
        queue.pwqs.iter().for_each(|pwq| {
            runs.merge(&pwq.runs);
            waits.merge(&pwq.waits);
        });
        let sum = |value: fn(&PwqDump) -> u64| queue.pwqs.iter().map(value).sum();
        QueueCounters {
            name: queue.name.clone(),
            started: sum(|pwq| pwq.started),
            ran: runs.count(),
            run_time: Duration::from_nanos(runs.sum_ns()),
            cpu_time: Duration::from_nanos(sum(|pwq| pwq.cpu_ns)),
            run_times: Times(runs),
            waits: Times(waits),
            cpu_intensive: sum(|pwq| pwq.hogs),
            replaced: sum(|pwq| pwq.replaced),
            stolen: sum(|pwq| pwq.stolen),
            maydays: sum(|pwq| pwq.maydays),
            rescued: sum(|pwq| pwq.rescued),
            in_flight: queue.in_flight(),
            pending: queue.pending() as u64,
            running: queue.slots.len() as u64,
            max_active: queue.max_active,
            saturated: sum(|pwq| pwq.saturated.into()),
        }
    }
}

impl FunctionCounters {
    fn of(
        times: FunctionTimes,
        name: &mut impl FnMut(usize) -> Option<String>,
    ) -> FunctionCounters {
        let address = times.address;
        let known = times.name.as_deref().map(str::to_owned);
        let known = known.or_else(|| name(address).filter(|_| address != 0));
        FunctionCounters {
            name: known.unwrap_or_else(|| match address {
                0 => "others".to_owned(),
                address => format!("{address:#x}"),
            }),
            address,
            ran: times.runs.count(),
            run_time: Duration::from_nanos(times.runs.sum_ns()),
            run_times: Times(times.runs),
            waits: Times(times.waits),
        }
    }
}

/// A metric with one value for each queue: name, help, value.
type Metric = (&'static str, &'static str, fn(&QueueCounters) -> u64);
/// A histogram for each queue or function: name, help, value.
type TimesMetric<T> = (&'static str, &'static str, fn(&T) -> &Times);

const GAUGES: [Metric; 5] = [
    ("uwork_items_in_flight", "Items queued and not known to have ended", |queue| queue.in_flight),
    ("uwork_items_pending", "Items that no worker has taken", |queue| queue.pending),
    ("uwork_items_running", "Workers in an item of the queue", |queue| queue.running),
    ("uwork_max_active", "The limit of active items", |queue| queue.max_active.into()),
    ("uwork_saturated_pools", "Pools in which no permit of the queue is free", |queue| {
        queue.saturated
    }),
];

const COUNTERS: [Metric; 6] = [
    ("uwork_items_started", "Items that workers have taken", |queue| queue.started),
    ("uwork_cpu_intensive", "Batches that computed for too long", |queue| queue.cpu_intensive),
    ("uwork_replaced", "Workers that stopped counting as running in an item", |queue| {
        queue.replaced
    }),
    ("uwork_items_stolen", "Items that workers of another pool took", |queue| queue.stolen),
    ("uwork_maydays", "Calls of the rescuer", |queue| queue.maydays),
    ("uwork_items_rescued", "Items that the rescuer ran", |queue| queue.rescued),
];

const QUEUE_TIMES: [TimesMetric<QueueCounters>; 2] = [
    ("uwork_run_seconds", "Run times of items; a batch counts with its mean", |q| &q.run_times),
    ("uwork_wait_seconds", "Times from the submission of items to the start of their batch", |q| {
        &q.waits
    }),
];

const FUNCTION_TIMES: [TimesMetric<FunctionCounters>; 2] = [
    ("uwork_function_run_seconds", "Run times of a function", |f| &f.run_times),
    ("uwork_function_wait_seconds", "Times from submission to start", |f| &f.waits),
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
        let gauges = GAUGES.iter().map(|metric| (metric, "gauge", ""));
        let counters = COUNTERS.iter().map(|metric| (metric, "counter", "_total"));
        for (&(name, help, value), kind, suffix) in gauges.chain(counters) {
            writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}.")?;
            for queue in &self.queues {
                let label = escaped(&queue.name);
                writeln!(text, "{name}{suffix}{{queue=\"{label}\"}} {}", value(queue))?;
            }
        }
        let name = "uwork_cpu_seconds";
        writeln!(text, "# TYPE {name} counter\n# UNIT {name} seconds")?;
        writeln!(text, "# HELP {name} CPU time of runs.")?;
        for queue in &self.queues {
            let (label, seconds) = (escaped(&queue.name), queue.cpu_time.as_secs_f64());
            writeln!(text, "{name}_total{{queue=\"{label}\"}} {seconds}")?;
        }
        for metric in QUEUE_TIMES {
            write_times(text, "queue", metric, &self.queues, |queue| queue.name.clone())?;
        }
        for metric in FUNCTION_TIMES {
            // Functions of one type may be several; together they would be one series.
            let name = |f: &FunctionCounters| format!("{} {:#x}", f.name, f.address);
            write_times(text, "function", metric, &self.functions, name)?;
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

fn write_times<T>(
    text: &mut String,
    label: &str,
    (name, help, times): TimesMetric<T>,
    rows: &[T],
    row_name: impl Fn(&T) -> String,
) -> std::fmt::Result {
    writeln!(text, "# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} {help}.")?;
    for row in rows {
        let (times, of) = (times(row), format!("{label}=\"{}\"", escaped(&row_name(row))));
        for power in EXPORTED {
            let (bound, count) = ((1_u64 << power) as f64 / 1e9, times.below(power));
            writeln!(text, "{name}_bucket{{{of},le=\"{bound}\"}} {count}")?;
        }
        let (count, sum) = (times.count(), times.sum().as_secs_f64());
        writeln!(text, "{name}_bucket{{{of},le=\"+Inf\"}} {count}")?;
        writeln!(text, "{name}_count{{{of}}} {count}\n{name}_sum{{{of}}} {sum}")?;
    }
    Ok(())
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
            run_times: Times(runs),
            cpu_time: Duration::from_millis(2),
            in_flight: 4,
            stolen: 7,
            ..QueueCounters::default()
        };
        let function = FunctionCounters {
            name: "f<\"x\">".to_owned(),
            address: 16,
            ran: 0,
            run_time: Duration::ZERO,
            run_times: Times::default(),
            waits: Times(runs),
        };
        let counters =
            Counters { panics: 5, workers: 6, queues: vec![queue], functions: vec![function] };
        let text = counters.to_openmetrics();
        for line in [
            "uwork_items_in_flight{queue=\"a\\\"b\\\\\"} 4",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"0.000001024\"} 0",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"0.000004096\"} 1",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"1.073741824\"} 3",
            "uwork_run_seconds_bucket{queue=\"a\\\"b\\\\\",le=\"+Inf\"} 3",
            "uwork_run_seconds_sum{queue=\"a\\\"b\\\\\"} 0.003002",
            "uwork_items_stolen_total{queue=\"a\\\"b\\\\\"} 7",
            "uwork_cpu_seconds_total{queue=\"a\\\"b\\\\\"} 0.002",
            "uwork_wait_seconds_count{queue=\"a\\\"b\\\\\"} 0",
            "uwork_function_wait_seconds_count{function=\"f<\\\"x\\\"> 0x10\"} 3",
            "uwork_workers 6",
            "uwork_panics_total 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
