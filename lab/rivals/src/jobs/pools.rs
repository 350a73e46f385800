//! The pools that run blocking jobs, used as their users would use them.

use super::tokio::{TokioJobs, Way};
use super::{Job, JobPool};
use crate::async_executor::AsyncExecutor;
use crate::crossbeam::Crossbeam;
use crate::rayon::Rayon;

/// One pool to compare with.
#[derive(Clone, Copy)]
pub struct JobRival {
    /// Its fixed name in tables and records.
    pub runner: &'static str,
    /// Empty if the runner has only one variant.
    pub variant: &'static str,
    /// Whether the pool adds threads for blocked items; otherwise each blocked item occupies a
    /// worker.
    pub replaces_blocked: bool,
    start: fn(usize, usize) -> Box<dyn JobPool>,
}

impl JobRival {
    /// Starts a pool of `workers` threads. If the pool adds threads for blocked items, up to
    /// `blocked_max` items may block at once.
    ///
    /// # Panics
    ///
    /// When its threads cannot be started.
    pub fn start(&self, workers: usize, blocked_max: usize) -> Box<dyn JobPool> {
        (self.start)(workers, blocked_max)
    }

    const fn replacing(
        runner: &'static str,
        variant: &'static str,
        start: fn(usize, usize) -> Box<dyn JobPool>,
    ) -> Self {
        Self { runner, variant, replaces_blocked: true, start }
    }

    const fn plain(runner: &'static str, start: fn(usize, usize) -> Box<dyn JobPool>) -> Self {
        Self { runner, variant: "", replaces_blocked: false, start }
    }
}

/// All pools, in the order in which they run.
pub fn job_rivals() -> Vec<JobRival> {
    vec![
        JobRival::replacing("tokio-blocking", "", |workers, blocked_max| {
            Box::new(TokioJobs::new(Way::SpawnBlocking, workers, blocked_max))
        }),
        JobRival::replacing("tokio", "block-in-place", |workers, blocked_max| {
            Box::new(TokioJobs::new(Way::BlockInPlace, workers, blocked_max))
        }),
        JobRival::plain("tokio", |workers, blocked_max| {
            Box::new(TokioJobs::new(Way::Spawn, workers, blocked_max))
        }),
        JobRival::plain("rayon", |workers, _| Box::new(Rayon::<false>::new(workers))),
        JobRival::plain("crossbeam", |workers, _| Box::new(Crossbeam::new(workers))),
        JobRival::plain("async-executor", |workers, _| Box::new(AsyncExecutor::new(workers))),
    ]
}

impl<const FIFO: bool> JobPool for Rayon<FIFO> {
    fn submit(&self, job: Job, _blocks: bool) {
        if FIFO {
            self.pool().spawn_fifo(job);
        } else {
            self.pool().spawn(job);
        }
    }
}

impl JobPool for Crossbeam {
    fn submit(&self, job: Job, _blocks: bool) {
        self.sender().send(job).expect("the workers hold the receiving end");
    }
}

impl JobPool for AsyncExecutor {
    fn submit(&self, job: Job, _blocks: bool) {
        self.executor().spawn(async move { job() }).detach();
    }
}
