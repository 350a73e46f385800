//! `uwork-lab bench golden`: the kernel's concurrency scenarios, and how far their finish times deviate
//! from the ideal times.
//!
//! Three items are queued at once for one CPU. w0 computes for 5 ms, sleeps for 10 ms and computes
//! for 5 ms; w1 and w2 compute for 5 ms and sleep for 10 ms. The sleeps are declared or, to measure
//! detection, undeclared. The tests in virtual time have the same scenarios exactly; here they run
//! on a real machine.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uwork::{Builder, Queue, Work, WorkItem};

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::interleave::GroupOutcome;
use super::options::count;
use super::pipeline::{Output, Plan};
use super::summary::{self, Figure, Metric, Sampled};
use super::{UserError, uwork_pool};

const MS: Duration = Duration::from_millis(1);

const fn late(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "us", title, decimals: 1 }
}

const LATE_P50: Metric = late("late_p50_us", "late p50 us");
const LATE_MAX: Metric = late("late_max_us", "late max us");

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Runs of each scenario
    #[arg(long, value_name = "N", default_value = "20", allow_hyphen_values = true)]
    samples: String,
    /// The items do not declare their sleeps
    #[arg(long)]
    undeclared: bool,
    #[command(flatten)]
    output: Output,
}

/// A scenario: its queues, and the ideal finish times of w0, w1 and w2 in milliseconds.
struct Scenario {
    name: &'static str,
    first: fn(Builder) -> Builder,
    others: Option<fn(Builder) -> Builder>,
    finish_ms: [u64; 3],
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "max-active-1",
        first: |queue| queue.max_active(1),
        others: None,
        finish_ms: [20, 35, 50],
    },
    Scenario {
        name: "max-active-2",
        first: |queue| queue.max_active(2),
        others: None,
        finish_ms: [20, 20, 35],
    },
    Scenario {
        name: "max-active-3",
        first: |queue| queue.max_active(3),
        others: None,
        finish_ms: [20, 20, 25],
    },
    Scenario {
        name: "cpu-intensive",
        first: |queue| queue,
        others: Some(Builder::cpu_intensive),
        finish_ms: [20, 20, 25],
    },
];

struct Item {
    work: Work<Item>,
    burns_again: bool,
    undeclared: bool,
    began: Instant,
    finished: Mutex<Option<Duration>>,
}

uwork::has_work!(impl HasWork for Item { work });

impl WorkItem for Item {
    type Pointer = Arc<Item>;

    fn run(this: Arc<Item>) {
        burn(5 * MS);
        let sleep = || std::thread::sleep(10 * MS);
        if this.undeclared {
            sleep()
        } else {
            uwork::blocking(sleep)
        }
        if this.burns_again {
            burn(5 * MS);
        }
        *this.finished.lock().expect("no panic under this lock") = Some(this.began.elapsed());
    }
}

fn burn(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The finish times of the three items of a scenario, in milliseconds.
struct Finish {
    ms: [f64; 3],
    ideal_ms: [u64; 3],
}

impl Finish {
    fn late_ms(&self) -> impl Iterator<Item = f64> {
        self.ms.iter().zip(self.ideal_ms).map(|(ms, ideal)| (ms - ideal as f64).abs())
    }

    /// The median finish time of an item.
    fn median(samples: &[Self], item: usize) -> f64 {
        Figure::of(samples.iter().map(|finish| finish.ms[item]).collect()).median
    }
}

impl Sampled for Finish {
    /// Over the items of all samples.
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        let late_us =
            Figure::of(samples.iter().flat_map(Self::late_ms).map(|ms| ms * 1e3).collect());
        vec![(LATE_P50, Figure::single(late_us.median)), (LATE_MAX, Figure::single(late_us.max))]
    }
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let samples = count("--samples", &args.samples, 1..=10_000)?;
    let undeclared = args.undeclared;
    let variant = if undeclared { "undeclared" } else { "declared" };
    let contestants = SCENARIOS.iter().enumerate().map(|(at, scenario)| Contestant {
        names: Names {
            case: scenario.name,
            runner: uwork_pool::RUNNER,
            variant: variant.to_owned(),
        },
        standing: None,
        measure: Box::new(move |number| {
            let ms = sample_of(scenario, number * SCENARIOS.len() + at, undeclared)?;
            Ok(Finish { ms, ideal_ms: scenario.finish_ms })
        }),
    });
    let by = match undeclared {
        true => format!(", detected by the tier {}", uwork::dump().blocking.tier),
        false => String::new(),
    };
    let group = Group {
        title: format!("golden  (samples {samples}; sleeps {variant}{by}; times in ms)"),
        contestants: contestants.collect(),
        samples,
        ratio_to: RatioTo::Nothing,
    };
    Plan::new("golden", vec![group]).shown_by(table).one_sample_suffices().run(&args.output)
}

fn table(group: &GroupOutcome<Finish>) -> String {
    let title = &group.title;
    let mut text = format!(
        "{title}\ncase          w0 / w1 / w2 finish   should          late, median / worst\n"
    );
    for outcome in &group.outcomes {
        let finish = [0, 1, 2].map(|item| Finish::median(&outcome.samples, item));
        let should = outcome.samples[0].ideal_ms;
        let late: Vec<f64> = summary::all(outcome).iter().map(|(_, us)| us.median / 1e3).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<13} {:>5.2} / {:>5.2} / {:>5.2}  {:>2} / {:>2} / {:>2}     {:.2} / {:.2}",
            outcome.names.case,
            finish[0],
            finish[1],
            finish[2],
            should[0],
            should[1],
            should[2],
            late[0],
            late[1]
        );
    }
    text
}

/// The finish times of the three items, in milliseconds.
fn sample_of(scenario: &Scenario, number: usize, undeclared: bool) -> Result<[f64; 3], UserError> {
    let failed = |error: uwork::Error| UserError(error.to_string());
    let make = |name: &str, how: fn(Builder) -> Builder| {
        how(Queue::builder(format!("golden-{name}-{number}")).per_cpu()).build().map_err(failed)
    };
    let first = make("first", scenario.first)?;
    let others = match scenario.others {
        Some(how) => make("others", how)?,
        None => first.clone(),
    };
    let cpu = first.cpumask().last().expect("a queue has a CPU");
    // Afterwards the CPU's worker exists and is parked again.
    uwork::work_on_cpu(cpu, || ()).map_err(failed)?;
    std::thread::sleep(MS);
    let began = Instant::now();
    let items = [true, false, false].map(|burns_again| {
        let finished = Mutex::new(None);
        Arc::new(Item { work: Work::new(), burns_again, undeclared, began, finished })
    });
    for (item, queue) in items.iter().zip([&first, &others, &others]) {
        let queued = queue.enqueue_on(cpu, item.clone());
        assert!(queued.map_err(|refused| failed(refused.error))?.is_queued());
    }
    first.flush().map_err(failed)?;
    others.flush().map_err(failed)?;
    Ok(items.map(|item| {
        let finished = *item.finished.lock().expect("no panic under this lock");
        finished.expect("it was flushed").as_secs_f64() * 1e3
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_that_of_all_items_of_all_samples() {
        let finish = |ms| Finish { ms, ideal_ms: [20, 20, 25] };
        let samples = [finish([20.0, 21.0, 27.0]), finish([19.5, 20.0, 34.0])];
        let figures = Finish::figures(&samples).into_iter();
        let figures: Vec<_> =
            figures.map(|(metric, f)| (metric.name, f.median, f.samples)).collect();
        assert_eq!(figures, [("late_p50_us", 750.0, 1), ("late_max_us", 9000.0, 1)]);
    }
}
