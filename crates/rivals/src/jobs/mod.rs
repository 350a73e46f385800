//! Closures that may block: what the benchmark of blocking items gives to a pool.
//!
//! Boxed and called through a trait object, since these items take microseconds and more each; the
//! load of tiny items has its own interface in [`load`](crate::load).

mod pools;
mod tokio;

pub use pools::{JobRival, job_rivals};

/// An item.
pub type Job = Box<dyn FnOnce() + Send>;

/// How an item of a pool waits: calls the closure once, from within what the pool has for that, if
/// it has something.
pub type Wait = fn(&mut dyn FnMut());

/// A pool that runs jobs. Dropping it waits for those that were submitted, or loses them, as it is
/// the pool's custom.
pub trait JobPool: Sync {
    /// Queues a job. `blocks` says whether it will wait for something: a pool whose users put such
    /// jobs elsewhere does so.
    fn submit(&self, job: Job, blocks: bool);

    /// How its items wait. By default they just do, and the pool does not know.
    fn wait(&self) -> Wait {
        |wait| wait()
    }
}
