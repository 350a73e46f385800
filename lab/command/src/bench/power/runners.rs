//! uwork as a runner of periodic tasks: a queue for each ten tasks, as modules of a program have
//! them, and an item that arms itself again.

use std::sync::OnceLock;
use std::time::Instant;

use uwork::{DelayedWork, Queue, Work, WorkItem, housekeeping};

use super::EFFICIENT;
use super::tasks::Planned;
use crate::UserError;
use crate::bench::contestant::cpus;
use crate::bench::uwork_pool;
use uwork_rivals::periodic::{self, Run, Task};

/// Tasks of one queue.
const TASKS_PER_QUEUE: usize = 10;
/// Queues of the case without tasks.
const IDLE_QUEUES: usize = 200;

struct Item {
    work: DelayedWork<Item>,
    number: usize,
    task: Task,
    queue: &'static Queue,
    run: Run,
    /// How many runs are planned before the next one.
    runs: std::sync::atomic::AtomicU32,
}

uwork::has_work!(impl HasDelayedWork for Item { work });

impl WorkItem for Item {
    type Pointer = &'static Item;

    fn run(this: &'static Item) {
        (this.run)(this.number);
        let runs = this.runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        this.arm(this.task.first + this.task.period * runs);
    }
}

impl Item {
    fn arm(&'static self, at: Instant) {
        let delay = at.saturating_duration_since(Instant::now());
        assert!(self.queue.enqueue_delayed(self, delay).is_queued(), "an idle item is armed");
    }
}

/// Starts the tasks.
pub(super) fn start(
    (runner, variant): (&str, &str),
    planned: &[Planned],
    start: Instant,
    run: Run,
) -> Result<(), UserError> {
    let task = |task: &Planned| Task { first: start + task.phase, period: task.period };
    let tasks: &'static [Task] = Vec::leak(planned.iter().map(task).collect());
    if runner == uwork_pool::RUNNER {
        return start_uwork(variant, planned, tasks, run);
    }
    match periodic::start(runner, cpus(), tasks, run) {
        Ok(true) => Ok(()),
        Ok(false) => Err(UserError(format!("{runner} is no runner"))),
        Err(error) => Err(UserError(format!("{runner}: {error}"))),
    }
}

fn start_uwork(
    variant: &str,
    planned: &[Planned],
    tasks: &'static [Task],
    run: Run,
) -> Result<(), UserError> {
    static QUEUES: OnceLock<Vec<Queue>> = OnceLock::new();
    housekeeping::set_power_efficient(variant.starts_with(EFFICIENT));
    let count = if tasks.is_empty() { IDLE_QUEUES } else { tasks.len().div_ceil(TASKS_PER_QUEUE) };
    let make = |number| Queue::builder(format!("power-{number}")).power_efficient().build();
    let queues: Result<Vec<_>, _> = (0..count).map(make).collect();
    let queues = queues.map_err(|error| UserError(error.to_string()))?;
    let queues = QUEUES.get_or_init(|| queues);
    for (number, (task, planned)) in tasks.iter().zip(planned).enumerate() {
        let item: &'static Item = Box::leak(Box::new(Item {
            work: DelayedWork::new().with_slack(planned.slack()),
            number,
            task: *task,
            queue: &queues[number / TASKS_PER_QUEUE],
            run,
            runs: 0.into(),
        }));
        item.arm(task.first);
    }
    Ok(())
}

/// Keeps this CPU awake until the process ends.
pub(super) fn keep_awake(cpu: u32) -> Result<(), UserError> {
    let refused = |error: &dyn std::fmt::Display| UserError(format!("CPU {cpu}: {error}"));
    let queue = Queue::builder("awake").per_cpu().build().map_err(|error| refused(&error))?;
    let hog: &'static Hog = Box::leak(Box::new(Hog { work: Work::new() }));
    let queued = queue.enqueue_on(cpu, hog).map_err(|error| refused(&error.error))?;
    assert!(queued.is_queued(), "a new item is queued");
    std::mem::forget(queue);
    Ok(())
}

struct Hog {
    work: Work<Hog>,
}

uwork::has_work!(impl HasWork for Hog { work });

impl WorkItem for Hog {
    type Pointer = &'static Hog;

    fn run(_: &'static Hog) {
        loop {
            std::hint::spin_loop();
        }
    }
}
