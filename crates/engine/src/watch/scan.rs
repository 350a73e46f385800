//! One scan of the watcher, and the state that it keeps between scans. `uwork_policy::scan` decides.

use uwork_policy::blocking::Tier;
use uwork_policy::scan::{
    Backlog, Leftover, Retry, Scanned, Starved, looks_again_at, retry, something_waits,
    wakes_neighbour,
};

use uwork_policy::saving::ALONE_NS;

use super::Watch;
use super::hogs::Runs;
use super::samples::Samples;
use crate::engine::Engine;
use crate::pool::progress::Maker;
use crate::pool::{NEVER, Pool};
use crate::words::host::{Host, Observer};
use crate::worker::rescuer::MAYDAY_INTERVAL_NS;

/// The result of a scan.
pub(super) struct Scan {
    /// For the choice of the next scan.
    pub(super) scanned: Scanned,
    /// When a pool that lacks a worker without reason is to be checked again.
    pub(super) stranded_at: u64,
}

/// The watcher's state between scans.
pub(super) struct ScanState<H: Host> {
    pub(super) runs: Runs,
    pub(super) samples: Samples<H::Observer>,
    /// When samples of workers that have begun no run for long are dropped next.
    tidy_at: u64,
    /// The pools that share their work and have room for another running worker, each after the first
    /// pool with which it shares, in order. Of use within one scan.
    room: Vec<(u32, u32)>,
    /// When all samples are dropped, if the watcher sleeps until then.
    pub(super) clear_at: u64,
}

impl<H: Host> ScanState<H> {
    pub(super) fn new() -> ScanState<H> {
        ScanState {
            runs: Runs::default(),
            samples: Samples::new(),
            tidy_at: 0,
            room: Vec::new(),
            clear_at: NEVER,
        }
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.samples.clear();
        self.clear_at = NEVER;
    }
}

/// How long the samples of a worker are kept that begins no run which the watcher samples.
pub(super) const REMEMBER_NS: u64 = 1_000_000_000;

impl<H: Host> Watch<H> {
    /// One scan: gives back stuck batches, finds sleepers and hogs, and tries again for pools that
    /// could not get a worker.
    pub(super) fn scan(&self, engine: &Engine<H>, now: u64, state: &mut ScanState<H>) -> Scan {
        let (mut waiting, mut suspect) = (Vec::new(), false);
        state.samples.begin(now);
        state.room.clear();
        if state.tidy_at <= now {
            state.tidy_at = now.saturating_add(REMEMBER_NS);
            state.samples.forget_before(now.saturating_sub(REMEMBER_NS));
        }
        // Expired timers first: the items that they make ready count as waiting in this scan.
        let mut next = self.serve_timers(engine, now, false);
        engine.for_each_pool(|pool| {
            // SeqCst, as are the loads of `looks_ready`: R2 of the diagram in `watch/mod.rs`.
            let scheduled = pool.has_scheduled_batches();
            let ready = pool.looks_ready();
            let starved = pool.create_again_at() != 0;
            if pool.spec().shares && pool.state.counts().running < pool.target_for_neighbours() {
                state.room.push((pool.spec().first, pool.id));
            }
            let watcher_helps = pool.watcher_helps(engine);
            if something_waits(Backlog { ready, scheduled, starved, watcher_helps }) {
                waiting.push(pool.id);
            }
        });
        state.room.sort_unstable();
        let stranded_at = self.find_stranded(engine);
        // A sleeper in a pool that shares its work keeps that pool from taking the work that waits here.
        for id in self.helpers_of(engine, &waiting) {
            let pool = engine.pool(id);
            next = next.min(pool.find_blocked_workers(engine, &mut state.samples, now));
            if pool.blocking.expects_at(now) {
                engine.standbys.ensure(engine, pool, now);
            }
        }
        for &id in &waiting {
            let pool = engine.pool(id);
            if pool.spec().saves && pool.since_progress(now) >= ALONE_NS {
                pool.use_all_workers(engine);
                pool.settle(engine);
            }
            if pool.others_may_help() {
                pool.take_back_overdue(engine, now);
            }
            if !pool.spec().single {
                next = next.min(pool.find_blocked_workers(engine, &mut state.samples, now));
                next = next.min(engine.hogs.find(engine, pool, &mut state.runs, now));
                if pool.blocking.expects_at(now) {
                    engine.standbys.ensure(engine, pool, now);
                    suspect |= !engine.standbys.serve(engine, pool, now);
                }
            }
            // Two more cases need a thread. A pool that could not get a worker tries again. If the pool's
            // workers take no ready pwq, a neighbour's worker is woken for it.
            pool.retry_starved(engine, now);
            let left = pool.leftover(now, &state.room);
            next = next.min(looks_again_at(left, now));
            if wakes_neighbour(left) {
                pool.wake_neighbour_worker(engine, Maker::Caller);
            }
        }
        let scanned = Scanned { waiting: !waiting.is_empty(), suspect, next };
        Scan { scanned, stranded_at }
    }

    /// Whether sleeps are expected anywhere.
    pub(super) fn is_any_suspect(&self, engine: &Engine<H>, now: u64) -> bool {
        let mut any = false;
        engine.for_each_pool(|pool| {
            any |= pool.blocking.expects_at(now) && !engine.standbys.serve(engine, pool, now)
        });
        any
    }

    /// Pools in which nothing waits, and whose workers may take the work that waits in `waiting`.
    fn helpers_of(&self, engine: &Engine<H>, waiting: &[u32]) -> Vec<u32> {
        let mut helpers = Vec::new();
        if engine.observer().tier() != Tier::Declared {
            let sharing =
                waiting.iter().map(|&id| engine.pool(id)).filter(|pool| pool.spec().shares);
            let mut of_sets: Vec<_> = sharing.map(|pool| (pool.spec().first, pool)).collect();
            of_sets.sort_unstable_by_key(|&(first, _)| first);
            // Any pool of a set stands for the others.
            of_sets.dedup_by_key(|&mut (first, _)| first);
            of_sets.iter().for_each(|(_, pool)| helpers.extend(&pool.spec().neighbours));
            helpers.sort_unstable();
            // `waiting` has the pools in the order of their ids.
            helpers
                .retain(|id| waiting.binary_search(id).is_err() && !engine.pool(*id).spec().single);
        }
        helpers
    }
}

impl<H: Host> Pool<H> {
    /// `room`: see [`ScanState::room`].
    fn leftover(&self, now: u64, room: &[(u32, u32)]) -> Leftover {
        let (shares, ready, first) = (self.spec().shares, self.looks_ready(), self.spec().first);
        let of_set = &room[room.partition_point(|&(of, _)| of < first)..];
        let neighbours = of_set.iter().take_while(|&&(of, _)| of == first);
        Leftover {
            shares,
            room: shares && ready && neighbours.take(2).any(|&(_, id)| id != self.id),
            ready,
            since_progress_ns: self.since_progress(now),
        }
    }

    /// Tries again to get a worker for a pool that could not have one, or calls the rescuers.
    fn retry_starved(&self, engine: &Engine<H>, now: u64) {
        let (again_at, ready) = (self.create_again_at(), self.looks_ready());
        match retry(Starved { again_at, ready, now }) {
            Retry::Nothing => {}
            Retry::Settle => self.settle(engine),
            Retry::Mayday => {
                if self.claim_maydays(now, MAYDAY_INTERVAL_NS) {
                    self.send_maydays(engine);
                }
            }
        }
    }
}
