//! rayon: `spawn` (LIFO on the local deque, injected from outside), `spawn_fifo`, and `join`.

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

/// `rayon::join` of an item and of nothing, as a program calls it whose work runs in rayon: the
/// caller offers the item to thieves, and runs it itself if none has taken it. The producers are
/// threads of the pool, because a call from outside would send the whole join to a worker and sleep.
/// Further threads of the pool are free to steal, as uwork's workers are free to take an item.
pub(crate) struct RayonJoin(Rayon<false>);

impl RayonJoin {
    pub(crate) fn new(workers: usize, producers: usize) -> Self {
        Self(Rayon::new(workers + producers))
    }
}

impl Pool for RayonJoin {
    type Producer<'a> = Joiner;

    fn producer(&self, progress: &'static Progress, _outstanding: usize) -> Joiner {
        Joiner { progress }
    }

    fn on_threads<R: Send>(&self, threads: usize, call: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let results = self.0.pool().broadcast(|thread| {
            let number = thread.index();
            (number < threads).then(|| call(number))
        });
        results.into_iter().flatten().collect()
    }
}

/// One producer, on a thread of the pool.
pub(crate) struct Joiner {
    progress: &'static Progress,
}

impl Producer for Joiner {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        rayon::join(|| (), || progress.complete());
    }

    /// Each item has run when its `join` returns.
    fn settle(&mut self, _progress: &'static Progress) {}
}
