//! Items that arrive by a plan, for the benchmark of open loops.
//!
//! An item exists once for each arrival, in memory of its own, and is submitted once by reference.
//! So a pool allocates only what its interface makes its users allocate: rayon a box, tokio and
//! async-executor a task, a channel nothing.

use ::tokio::runtime::{Builder, Runtime};

use crate::async_executor::AsyncExecutor;
use crate::crossbeam::Crossbeam;
use crate::rayon::Rayon;
use crate::tokio::Tokio;

/// The item of an arrival.
pub trait Item: Sync + 'static {
    /// Does the work of the item. A pool calls it once.
    fn run(&'static self);
}

/// A pool that runs items as they arrive. Dropping it requires that all items have run.
pub trait OpenPool<I: Item>: Sync {
    /// Queues an item.
    fn submit(&self, item: &'static I);
}

/// The pools, by their fixed names in tables and records, in the order in which they run.
pub const RUNNERS: [&str; 5] = ["tokio", "tokio-blocking", "rayon", "crossbeam", "async-executor"];

/// Starts a pool of `workers` threads, with this niceness if one is given and the system permits
/// it. tokio's blocking threads are as many as its users get by default, up to 512. `None` if no
/// pool has this name.
///
/// # Panics
///
/// When its threads cannot be started.
pub fn start<I: Item>(
    runner: &str,
    workers: usize,
    nice: Option<i32>,
) -> Option<Box<dyn OpenPool<I>>> {
    // Threads inherit the niceness of the thread that starts them. tokio starts its blocking
    // threads later, so these set it themselves.
    let before = niceness();
    if let Some(nice) = nice {
        set_niceness(nice);
    }
    let pool: Option<Box<dyn OpenPool<I>>> = match runner {
        "tokio" => Some(Box::new(Tokio::<false>::new(workers))),
        "tokio-blocking" => Some(Box::new(SpawnBlocking::new(nice))),
        "rayon" => Some(Box::new(Rayon::<false>::new(workers))),
        "crossbeam" => Some(Box::new(Crossbeam::calling(workers, I::run))),
        "async-executor" => Some(Box::new(AsyncExecutor::new(workers))),
        _ => None,
    };
    if nice.is_some() {
        set_niceness(before);
    }
    pool
}

/// The niceness of the calling thread.
fn niceness() -> i32 {
    // SAFETY: takes numbers; 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Best effort: without the privilege the calling thread keeps its niceness.
fn set_niceness(nice: i32) {
    // SAFETY: takes numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

impl<I: Item> OpenPool<I> for Tokio<false> {
    fn submit(&self, item: &'static I) {
        drop(self.handle().spawn(async move { item.run() }));
    }
}

/// tokio's `spawn_blocking` with its own limit of threads.
struct SpawnBlocking {
    runtime: Runtime,
}

impl SpawnBlocking {
    fn new(nice: Option<i32>) -> Self {
        let mut builder = Builder::new_multi_thread();
        // The asynchronous worker is idle; the blocking threads do the work.
        builder.worker_threads(1);
        if let Some(nice) = nice {
            builder.on_thread_start(move || set_niceness(nice));
        }
        Self { runtime: builder.build().expect("tokio starts its threads") }
    }
}

impl<I: Item> OpenPool<I> for SpawnBlocking {
    fn submit(&self, item: &'static I) {
        drop(self.runtime.spawn_blocking(move || item.run()));
    }
}

impl<I: Item> OpenPool<I> for Rayon<false> {
    fn submit(&self, item: &'static I) {
        self.pool().spawn(move || item.run());
    }
}

impl<I: Item> OpenPool<I> for Crossbeam<&'static I> {
    fn submit(&self, item: &'static I) {
        self.sender().send(item).expect("the workers hold the receiving end");
    }
}

impl<I: Item> OpenPool<I> for AsyncExecutor {
    fn submit(&self, item: &'static I) {
        self.executor().spawn(async move { item.run() }).detach();
    }
}
