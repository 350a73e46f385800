//! uwork as a pool of jobs.

use std::sync::{Arc, Mutex, PoisonError};

use uwork::{Queue, Work, WorkItem};
use uwork_rivals::jobs::{Job, JobPool, Wait};

use crate::UserError;

/// The tiers, which are the variants. In the first tier, items declare their blocks.
pub(super) const TIERS: [&str; 4] = [DECLARED, "standby", "events", SAMPLING];
pub(super) const DECLARED: &str = "declared";
pub(super) const SAMPLING: &str = "sampling";

/// A queue, and the CPU of its items.
pub(super) struct UworkJobs {
    queue: Queue,
    /// The CPU to queue all items on; `None` queues them on the submitter's CPU.
    cpu: Option<u32>,
    declared: bool,
}

impl UworkJobs {
    /// An unbound queue.
    pub(super) fn unbound(tier: &str, max_active: usize) -> Result<Self, UserError> {
        let max_active = max_active as u32;
        let queue = Queue::builder("bench-blocking").unbound().max_active(max_active).build();
        let queue = queue.map_err(|error| UserError(error.to_string()))?;
        Ok(Self { queue, cpu: None, declared: tier == DECLARED })
    }

    /// A per-CPU queue that uses one CPU: one item runs at a time, except while an item is blocked.
    pub(super) fn on_one_cpu(tier: &str) -> Result<Self, UserError> {
        let queue = Queue::builder("bench-latency").per_cpu().build();
        let queue = queue.map_err(|error| UserError(error.to_string()))?;
        let cpu = queue.cpumask().last();
        Ok(Self { queue, cpu, declared: tier == DECLARED })
    }
}

impl JobPool for UworkJobs {
    fn submit(&self, job: Job, blocks: bool) {
        match self.cpu {
            // Two closures, as the jobs of a program have: uwork learns for each type whether it
            // blocks. Nothing else tells it.
            None if blocks => drop(self.queue.spawn(move || {
                job();
            })),
            None => drop(self.queue.spawn(job)),
            Some(cpu) => {
                let item = Arc::new(Item { work: Work::new(), job: Mutex::new(Some(job)) });
                let queued = self.queue.enqueue_on(cpu, item);
                assert!(
                    queued.is_ok_and(|queued| queued.is_queued()),
                    "a fresh item on its own CPU"
                );
            }
        }
    }

    fn wait(&self) -> Wait {
        if self.declared { |wait| uwork::blocking(wait) } else { |wait| wait() }
    }
}

struct Item {
    work: Work<Item>,
    job: Mutex<Option<Job>>,
}

uwork::has_work!(impl HasWork for Item { work });

impl WorkItem for Item {
    type Pointer = Arc<Item>;

    fn run(this: Arc<Item>) {
        let job = this.job.lock().unwrap_or_else(PoisonError::into_inner).take();
        job.expect("it is queued once")();
    }
}
