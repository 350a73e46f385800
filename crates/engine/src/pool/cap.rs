//! How many workers a pool may have.
//!
//! By default a pool may have a worker for every item that the limits of its queues let run at
//! once, and a spare one for each CPU. So no item waits for a thread because others block, as long
//! as the process may have that many threads. If a limit is lowered below the number of running
//! items, those items still count. A queue that has ended counts no more, although a visit of all
//! queues may still have its memory. A lower cap retires no worker; idle workers retire after their
//! timeout, as usual.
//!
//! Pools that share their work share the cap as well. An item runs in a single worker, so together
//! they need as many workers as one pool alone would. Pools that spawn workers at the same instant may
//! each exceed the cap by one.

use uwork_policy::blocking::workers_max;

use super::PoolSet;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::pool::state::WORKERS_MAX;
use crate::words::host::{Host, Report};
use crate::words::sync::{AtomicU32, Ordering};

/// The maximum number of workers of a pool.
pub const POOL_WORKERS_LIMIT: u32 = WORKERS_MAX;

/// The cap that the user chose.
pub(crate) struct Cap {
    /// How many workers each pool may have; 0 if that follows from its queues' limits.
    workers_max: AtomicU32,
}

impl Cap {
    pub(crate) fn new() -> Cap {
        Cap { workers_max: AtomicU32::new(0) }
    }
}

impl<H: Host> Engine<H> {
    /// How many workers each pool may have; 0 if that follows from its queues' limits.
    pub fn pool_workers_max(&self) -> u32 {
        self.cap.workers_max.load(Ordering::Relaxed)
    }

    /// Sets how many workers each pool may have, at most [`POOL_WORKERS_LIMIT`]; 0: as many as
    /// follow from its queues' limits. Pools in which work waits for a worker get one at once.
    pub fn set_pool_workers_max(&self, workers: u32) {
        self.cap.workers_max.store(workers.min(POOL_WORKERS_LIMIT), Ordering::SeqCst);
        self.for_each_pool(|pool| {
            pool.full_reported.store(false, Ordering::Relaxed);
            pool.settle(self);
        });
    }
}

impl PoolSet {
    /// Counts this limit of a queue for these pools, in place of `before`.
    pub(crate) fn count_limit<H: Host>(&self, engine: &Engine<H>, limit: u32, before: u32) {
        for pool in self.pools.iter().map(|&id| engine.pool(id)) {
            pool.limits.fetch_add(u64::from(limit), Ordering::SeqCst);
            pool.limits.fetch_sub(u64::from(before), Ordering::SeqCst);
            pool.full_reported.store(false, Ordering::Relaxed);
        }
    }
}

impl<H: Host> Pool<H> {
    /// How many workers a pool may have, together with the pools that it shares work with.
    pub(crate) fn workers_max(&self, engine: &Engine<H>) -> u32 {
        if self.spec().single {
            return 1;
        }
        // SeqCst: a thread that raises a cap settles the pools next. A thread that makes work ready
        // pushes first and reads the cap second. At least one of the two sees the other.
        match engine.cap.workers_max.load(Ordering::SeqCst) {
            0 => {
                let limits = self.limits.load(Ordering::SeqCst);
                let limits = u32::try_from(limits).unwrap_or(u32::MAX);
                let target = self.sum_over_sharers(engine, Pool::kept_workers);
                workers_max(limits, target, engine.config().threads_max).min(WORKERS_MAX)
            }
            chosen => chosen,
        }
    }

    /// Whether a pool has as many workers as it may have.
    pub(crate) fn is_full(&self, engine: &Engine<H>) -> bool {
        let workers = self.sum_over_sharers(engine, |pool| pool.state.counts().workers);
        workers >= self.workers_max(engine)
    }

    /// A pool and the pools that it shares work with.
    fn sharers<'e>(&'e self, engine: &'e Engine<H>) -> impl Iterator<Item = &'e Pool<H>> {
        let others = if self.spec().shares { &self.spec().neighbours[..] } else { &[] };
        std::iter::once(self).chain(others.iter().map(|&id| engine.pool(id)))
    }

    /// The sum of `f` over a pool and the pools that it shares work with.
    fn sum_over_sharers(&self, engine: &Engine<H>, f: impl Fn(&Pool<H>) -> u32) -> u32 {
        self.sharers(engine).map(f).sum()
    }

    /// A full pool needed a worker, for its own items or for those of a pool that it shares work with.
    /// Reports that once if no worker is left to run the waiting items.
    pub(crate) fn note_full(&self, engine: &Engine<H>) {
        let able = |pool: &Pool<H>| {
            let counts = pool.state.counts();
            counts.running + counts.idle
        };
        let Some(waits) = self.sharers(engine).find(|pool| pool.looks_ready()) else { return };
        let stuck = self.sum_over_sharers(engine, able) == 0;
        let reported = &engine.pool(self.spec().first).full_reported;
        if stuck && !reported.swap(true, Ordering::Relaxed) {
            let max = self.workers_max(engine);
            engine.caller().report(Report::WorkersMax { pool: waits.spec().label.clone(), max });
        }
    }
}
