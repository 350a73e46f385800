//! `uwork-lab bench golden`: the kernel's concurrency scenarios, and how far their finish times deviate
//! from the ideal times.
//!
//! Three items are queued at once for one CPU. w0 computes for 5 ms, sleeps for 10 ms and computes
//! for 5 ms; w1 and w2 compute for 5 ms and sleep for 10 ms. The sleeps are declared or, to measure
//! detection, undeclared. The tests in virtual time have the same scenarios exactly; here they run
//! on a real machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uwork::{Builder, Queue, Work, WorkItem};

use super::options::count;
use super::record::{Record, Target};
use super::warning::{MachineTime, other_load};
use super::{UserError, uwork_pool};

const MS: Duration = Duration::from_millis(1);

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Runs of each scenario
    #[arg(long, value_name = "N", default_value = "20", allow_hyphen_values = true)]
    samples: String,
    /// The items do not declare their sleeps
    #[arg(long)]
    undeclared: bool,
    /// Write the records to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let samples = count("--samples", &args.samples, 1..=10_000)?;
    let json = args.json.as_deref().map(Target::check).transpose()?;
    let variant = if args.undeclared { "undeclared" } else { "declared" };
    let by = match args.undeclared {
        true => format!(", detected by the tier {}", uwork::dump().blocking.tier),
        false => String::new(),
    };
    println!("golden  (samples {samples}; sleeps {variant}{by}; times in ms)");
    println!("case          w0 / w1 / w2 finish   should          late, median / worst");
    let mut records = Vec::new();
    let (before, start) = (MachineTime::now(), Instant::now());
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let mut finishes: [Vec<f64>; 3] = Default::default();
        let mut late = Vec::new();
        for sample in 0..samples {
            let times = sample_of(scenario, number * samples + sample, args.undeclared)?;
            for (at, time) in times.into_iter().enumerate() {
                finishes[at].push(time);
                late.push((time - scenario.finish_ms[at] as f64).abs());
            }
        }
        let finish = finishes.map(median);
        let worst = late.iter().copied().fold(0.0, f64::max);
        let (should, late) = (scenario.finish_ms, median(late));
        println!(
            "{:<13} {:>5.2} / {:>5.2} / {:>5.2}  {:>2} / {:>2} / {:>2}     {late:.2} / {worst:.2}",
            scenario.name, finish[0], finish[1], finish[2], should[0], should[1], should[2]
        );
        for (metric, value) in [("late_p50_us", late * 1e3), ("late_max_us", worst * 1e3)] {
            let runner = uwork_pool::RUNNER;
            let metric = (metric, "us");
            records.push(Record::single("golden", scenario.name, runner, variant, metric, value));
        }
    }
    if let Some(warning) = other_load(&before, start.elapsed()) {
        eprintln!("warning: {warning}");
    }
    match json {
        Some(target) => target.write(&records),
        None => Ok(()),
    }
    .map(|()| ExitCode::SUCCESS)
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
