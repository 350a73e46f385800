//! async-executor: one shared executor, run by plain threads.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use async_executor::Executor;
use futures_lite::future::block_on;

use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// An executor and the threads that run it.
pub(crate) struct AsyncExecutor {
    executor: Arc<Executor<'static>>,
    /// Closing it ends the workers.
    stop: async_channel::Sender<()>,
    workers: Vec<JoinHandle<()>>,
}

impl AsyncExecutor {
    pub(crate) fn new(workers: usize) -> Self {
        let executor = Arc::new(Executor::new());
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let workers = (0..workers)
            .map(|_| {
                let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
                thread::spawn(move || {
                    // The error reports the closed channel, which tells the worker to end.
                    let _ = block_on(executor.run(stopped.recv()));
                })
            })
            .collect();
        Self { executor, stop, workers }
    }

    pub(crate) fn executor(&self) -> &Executor<'static> {
        &self.executor
    }
}

impl Drop for AsyncExecutor {
    fn drop(&mut self) {
        self.stop.close();
        for worker in self.workers.drain(..) {
            worker.join().expect("the load's futures do not panic");
        }
    }
}

/// One producer.
pub(crate) struct Spawner<'a> {
    executor: &'a Executor<'static>,
    progress: &'static Progress,
}

impl Pool for AsyncExecutor {
    type Producer<'a> = Spawner<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, _outstanding: usize) -> Spawner<'a> {
        Spawner { executor: &self.executor, progress }
    }
}

impl Producer for Spawner<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        self.executor.spawn(async move { progress.complete() }).detach();
    }
}
