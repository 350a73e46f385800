//! Closures that may block, for the benchmark of blocking items.
//!
//! They are boxed and called through a trait object, because each takes microseconds or more. The
//! load of tiny items has its own interface in [`load`](crate::load).

mod pools;
mod tokio;

pub use pools::{JobRival, job_rivals};

/// An item.
pub type Job = Box<dyn FnOnce() + Send>;

/// How an item of a pool waits: calls the closure once, inside the pool's own facility for blocking
/// calls, if it has one.
pub type Wait = fn(&mut dyn FnMut());

/// A pool that runs jobs. Whether dropping it waits for submitted jobs or discards them depends on
/// the pool.
pub trait JobPool: Sync {
    /// Queues a job. `blocks` announces that the job will block, for pools whose users submit such
    /// jobs differently.
    fn submit(&self, job: Job, blocks: bool);

    /// How its items wait. By default they simply block, unknown to the pool.
    fn wait(&self) -> Wait {
        |wait| wait()
    }
}
