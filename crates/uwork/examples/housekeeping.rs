//! Twenty housekeeping tasks: first as threads that sleep, then as items of one power-efficient
//! queue. Prints how often the process was woken for each.
//!
//! The body of a thread's loop becomes an item's function, which ends by queueing itself for the next
//! period. The items share a queue that saves power, and say how late they may be: a quarter of the
//! period is a good start. `disable_sync` ends a task at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use uwork::{DelayedWork, Queue, Setup, WorkItem};

const TASKS: u64 = 20;
const OBSERVED: Duration = Duration::from_secs(1);

/// The periods, from 50 ms to 1 s.
fn periods() -> impl Iterator<Item = Duration> {
    (1..=TASKS).map(|n| Duration::from_millis(50 * n))
}

/// What a task does: it collects statistics.
#[derive(Default)]
struct Statistics {
    collected: AtomicU64,
}

impl Statistics {
    fn collect(&self) {
        self.collected.fetch_add(1, Ordering::Relaxed);
    }
}

/// Before: a thread for each task.
fn as_threads(statistics: &Arc<Statistics>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for period in periods() {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    statistics.collect();
                    std::thread::sleep(period);
                }
            });
        }
        report("20 threads", statistics);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// After: an item for each task.
struct Task {
    work: DelayedWork<Task>,
    queue: Queue,
    period: Duration,
    statistics: Arc<Statistics>,
}

uwork::has_work!(impl HasDelayedWork for Task { work });

impl WorkItem for Task {
    type Pointer = Arc<Task>;

    fn run(this: Arc<Task>) {
        this.statistics.collect();
        let (queue, period) = (this.queue.clone(), this.period);
        // Refused once the task is disabled; then the period ends.
        let _ = queue.enqueue_delayed(this, period);
    }
}

fn as_items(statistics: &Arc<Statistics>) -> Result<(), uwork::Error> {
    let queue = Queue::builder("housekeeping").power_efficient().build()?;
    let tasks: Vec<Arc<Task>> = periods()
        .map(|period| {
            let work = DelayedWork::new().with_slack(period / 4);
            let (queue, statistics) = (queue.clone(), statistics.clone());
            Arc::new(Task { work, queue, period, statistics })
        })
        .collect();
    for task in &tasks {
        let _ = queue.enqueue_delayed(task.clone(), task.period);
    }
    report("20 items", statistics);
    for task in &tasks {
        // Unlike a thread that sleeps, an item ends at once.
        task.work.disable_sync().expect("the first disable");
    }
    Ok(())
}

/// Sleeps of the process's threads that have ended.
fn sleeps() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let of_thread = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    threads.filter_map(|entry| of_thread(entry.ok()?.path())).sum()
}

fn report(what: &str, statistics: &Statistics) {
    let (collected, slept) = (statistics.collected.load(Ordering::Relaxed), sleeps());
    std::thread::sleep(OBSERVED);
    let collected = statistics.collected.load(Ordering::Relaxed) - collected;
    println!("{what}: {collected} runs, {} wakes in {OBSERVED:?}", sleeps() - slept);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // UWORK_POWER_EFFICIENT=0 shows the same items without saved power.
    Setup::new().power_efficient(true).install()?;
    let statistics = Arc::new(Statistics::default());
    as_threads(&statistics);
    as_items(&statistics)?;
    Ok(())
}
