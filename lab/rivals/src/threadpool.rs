//! The threadpool crate: boxed closures through a standard channel.

use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// The pool. Dropping it waits for its jobs.
pub(crate) struct ThreadPool(threadpool::ThreadPool);

impl ThreadPool {
    pub(crate) fn new(workers: usize) -> Self {
        Self(threadpool::ThreadPool::new(workers))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.0.join();
    }
}

/// One producer.
pub(crate) struct Spawner<'a> {
    pool: &'a threadpool::ThreadPool,
    progress: &'static Progress,
}

impl Pool for ThreadPool {
    type Producer<'a> = Spawner<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, _outstanding: usize) -> Spawner<'a> {
        Spawner { pool: &self.0, progress }
    }
}

impl Producer for Spawner<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        self.pool.execute(move || progress.complete());
    }
}
