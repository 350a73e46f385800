//! tokio, in the three ways in which its users run what blocks.

use tokio::runtime::{Builder, Runtime};

use super::{Job, JobPool, Wait};

/// What becomes of items that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing: they run among the others.
    Spawn,
    /// They go to the blocking pool; the others do not.
    SpawnBlocking,
    /// They run among the others and say `block_in_place` when they wait.
    BlockInPlace,
}

pub(super) struct TokioJobs {
    runtime: Runtime,
    way: Way,
}

impl TokioJobs {
    pub(super) fn new(way: Way, workers: usize, blocked_max: usize) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers)
            .max_blocking_threads(blocked_max)
            .build()
            .expect("tokio starts its threads");
        Self { runtime, way }
    }
}

impl JobPool for TokioJobs {
    fn submit(&self, job: Job, blocks: bool) {
        if blocks && self.way == Way::SpawnBlocking {
            drop(self.runtime.spawn_blocking(job));
        } else {
            drop(self.runtime.spawn(async move { job() }));
        }
    }

    fn wait(&self) -> Wait {
        match self.way {
            Way::BlockInPlace => |wait| tokio::task::block_in_place(wait),
            Way::Spawn | Way::SpawnBlocking => |wait| wait(),
        }
    }
}
