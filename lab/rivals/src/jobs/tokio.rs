//! tokio, in the three ways in which its users run blocking code.

use tokio::runtime::{Builder, Runtime};

use super::{Job, JobPool, Wait};

/// How blocking items run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As all other items.
    Spawn,
    /// On the blocking pool; other items do not.
    SpawnBlocking,
    /// As all other items, but with `block_in_place` around the blocking call.
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
