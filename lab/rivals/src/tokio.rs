//! tokio's multi-thread runtime: `spawn` of a future that is ready at its first poll, and
//! `spawn_blocking`.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// `BLOCKING` chooses `spawn_blocking`, on a blocking pool of `workers` threads.
pub(crate) struct Tokio<const BLOCKING: bool> {
    runtime: Runtime,
}

impl<const BLOCKING: bool> Tokio<BLOCKING> {
    pub(crate) fn new(workers: usize) -> Self {
        let mut builder = Builder::new_multi_thread();
        if BLOCKING {
            // The asynchronous worker is idle; the blocking threads do the work.
            builder.worker_threads(1).max_blocking_threads(workers);
        } else {
            builder.worker_threads(workers);
        }
        Self { runtime: builder.build().expect("tokio starts its threads") }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }
}

/// One producer.
pub(crate) struct Spawner<'a, const BLOCKING: bool> {
    handle: &'a Handle,
    progress: &'static Progress,
}

impl<const BLOCKING: bool> Pool for Tokio<BLOCKING> {
    type Producer<'a> = Spawner<'a, BLOCKING>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        _outstanding: usize,
    ) -> Spawner<'a, BLOCKING> {
        Spawner { handle: self.handle(), progress }
    }
}

impl<const BLOCKING: bool> Producer for Spawner<'_, BLOCKING> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        if BLOCKING {
            drop(self.handle.spawn_blocking(move || progress.complete()));
        } else {
            drop(self.handle.spawn(async move { progress.complete() }));
        }
    }
}
