//! The pools to compare with, under the names used in records.

use crate::async_executor::AsyncExecutor;
use crate::bare::Bare;
use crate::crossbeam::Crossbeam;
use crate::kernel::KernelShape;
use crate::load::{Load, Sample, measure};
use crate::native;
use crate::rayon::{Rayon, RayonJoin};
use crate::threadpool::ThreadPool;
use crate::tokio::Tokio;

/// The role of a runner in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A pool in practical use. Ratios are relative to the fastest of these.
    Pool,
    /// The core of a known design, written for this comparison. It lacks much of what a usable pool
    /// needs.
    Shape,
    /// A bound to measure against, not a usable pool.
    Limit,
}

/// One pool to compare with.
#[derive(Clone, Copy)]
pub struct Rival {
    /// Its fixed name in tables and records.
    pub runner: &'static str,
    /// Empty if the runner has only one variant.
    pub variant: &'static str,
    /// Its role in the comparison.
    pub standing: Standing,
    /// Whether it can be limited to one worker, for a comparison with an ordered queue.
    pub can_be_ordered: bool,
    run: fn(usize, &Load) -> Sample,
}

impl Rival {
    /// Runs the load once on a fresh pool of `workers` threads.
    ///
    /// # Panics
    ///
    /// As [`measure`].
    pub fn measure(&self, workers: usize, load: &Load) -> Sample {
        (self.run)(workers, load)
    }

    pub(crate) const fn pool(runner: &'static str, run: fn(usize, &Load) -> Sample) -> Self {
        Self { runner, variant: "", standing: Standing::Pool, can_be_ordered: true, run }
    }

    const fn variant(mut self, variant: &'static str) -> Self {
        self.variant = variant;
        self
    }

    const fn standing(mut self, standing: Standing) -> Self {
        self.standing = standing;
        self
    }

    /// For a pool whose number of workers cannot be set here.
    pub(crate) const fn never_ordered(mut self) -> Self {
        self.can_be_ordered = false;
        self
    }
}

/// All pools of this build, in the order in which they run.
pub fn catalogue() -> Vec<Rival> {
    let mut all = limits();
    all.extend(shapes());
    all.extend(pools());
    all.extend(native::catalogue());
    all
}

/// Pools whose callers can run the item that they join, as uwork's helping join does. Only for that
/// comparison: their submission and their wait are one call.
pub fn joins() -> Vec<Rival> {
    let run = |workers, load: &Load| measure(|| RayonJoin::new(workers, load.producers), load);
    vec![Rival::pool("rayon", run).never_ordered()]
}

fn limits() -> Vec<Rival> {
    let limit = |variant, run| Rival::pool("bare", run).variant(variant).standing(Standing::Limit);
    vec![
        limit("system", |workers, load| measure(|| Bare::system(workers), load)),
        limit("cpu", |_, load| measure(Bare::per_cpu, load)).never_ordered(),
    ]
}

fn shapes() -> Vec<Rival> {
    type Locked = KernelShape<false>;
    type Deferred = KernelShape<true>;
    let shape =
        |runner, variant, run| Rival::pool(runner, run).variant(variant).standing(Standing::Shape);
    vec![
        shape("kernel-locked", "system", |workers, load| measure(|| Locked::system(workers), load)),
        shape("kernel-locked", "cpu", |_, load| measure(Locked::per_cpu, load)).never_ordered(),
        shape("kernel-deferred", "system", |workers, load| {
            measure(|| Deferred::system(workers), load)
        }),
        shape("kernel-deferred", "cpu", |_, load| measure(Deferred::per_cpu, load)).never_ordered(),
    ]
}

fn pools() -> Vec<Rival> {
    vec![
        Rival::pool("rayon", |workers, load| measure(|| Rayon::<false>::new(workers), load)),
        Rival::pool("rayon-fifo", |workers, load| measure(|| Rayon::<true>::new(workers), load)),
        Rival::pool("tokio", |workers, load| measure(|| Tokio::<false>::new(workers), load)),
        Rival::pool("tokio-blocking", |workers, load| {
            measure(|| Tokio::<true>::new(workers), load)
        }),
        Rival::pool("crossbeam", |workers, load| measure(|| Crossbeam::new(workers), load)),
        Rival::pool("async-executor", |workers, load| {
            measure(|| AsyncExecutor::new(workers), load)
        }),
        Rival::pool("threadpool", |workers, load| measure(|| ThreadPool::new(workers), load)),
    ]
}
