//! rayon: `spawn` (LIFO on the local deque, injected from outside) and `spawn_fifo`.

use std::sync::{Arc, Barrier};

use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// `FIFO` chooses `spawn_fifo`.
pub(crate) struct Rayon<const FIFO: bool> {
    /// `None` only while dropping.
    pool: Option<rayon::ThreadPool>,
    /// A barrier for the pool's threads and its owner: the drop waits for the threads, which rayon
    /// itself does not do.
    exit: Arc<Barrier>,
}

impl<const FIFO: bool> Rayon<FIFO> {
    pub(crate) fn new(workers: usize) -> Self {
        let exit = Arc::new(Barrier::new(workers + 1));
        let theirs = Arc::clone(&exit);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .exit_handler(move |_| {
                theirs.wait();
            })
            .build()
            .expect("rayon starts its threads");
        Self { pool: Some(pool), exit }
    }

    pub(crate) fn pool(&self) -> &rayon::ThreadPool {
        self.pool.as_ref().expect("lives until the drop")
    }
}

impl<const FIFO: bool> Drop for Rayon<FIFO> {
    fn drop(&mut self) {
        self.pool = None;
        self.exit.wait();
    }
}

/// One producer.
pub(crate) struct Spawner<'a, const FIFO: bool> {
    pool: &'a rayon::ThreadPool,
    progress: &'static Progress,
}

impl<const FIFO: bool> Pool for Rayon<FIFO> {
    type Producer<'a> = Spawner<'a, FIFO>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        _outstanding: usize,
    ) -> Spawner<'a, FIFO> {
        Spawner { pool: self.pool(), progress }
    }
}

impl<const FIFO: bool> Producer for Spawner<'_, FIFO> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        if FIFO {
            self.pool.spawn_fifo(move || progress.complete());
        } else {
            self.pool.spawn(move || progress.complete());
        }
    }
}
