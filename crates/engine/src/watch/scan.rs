//! One scan of the watcher, and the state that it keeps between scans.

use uwork_policy::blocking::Tier;

use super::STUCK_NS;
use super::Watch;
use super::hogs::Runs;
use super::samples::Samples;
use crate::engine::Engine;
use crate::host::Host;
use crate::pool::progress::Maker;
use crate::pool::{NEVER, Pool};
use crate::worker::rescuer::MAYDAY_INTERVAL_NS;

/// The longest interval between two scans. The watcher sees a run that computes for too long within
/// this time, and counts it out when the run has used up its threshold from then on.
pub(super) const INTERVAL_MAX_NS: u64 = 2_000_000;
/// The same for pools where sleeping workers were found lately.
const INTERVAL_SUSPECT_NS: u64 = 1_000_000;

/// The result of a scan.
pub(super) struct Scan {
    /// Whether anything waits.
    pub(super) waiting: bool,
    /// The latest time at which the next scan is worthwhile.
    pub(super) next: u64,
    /// The longest interval until then.
    pub(super) longest: u64,
    /// Whether sleeps are expected where something waits.
    pub(super) suspect: bool,
    /// When a pool that lacks a worker without reason is to be checked again.
    pub(super) stranded_at: u64,
}

/// The watcher's state between scans.
pub(super) struct ScanState<H: Host> {
    pub(super) runs: Runs,
    pub(super) samples: Samples<H>,
    /// When samples of workers that were not seen for long are dropped next.
    tidy_at: u64,
    /// When all samples are dropped, if the watcher sleeps until then.
    pub(super) clear_at: u64,
}

impl<H: Host> ScanState<H> {
    pub(super) fn new() -> ScanState<H> {
        ScanState { runs: Runs::default(), samples: Samples::new(), tidy_at: 0, clear_at: NEVER }
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.samples.clear();
        self.clear_at = NEVER;
    }
}

/// How long the samples of a worker that is not seen are kept.
pub(super) const REMEMBER_NS: u64 = 1_000_000_000;

impl<H: Host> Watch<H> {
    /// One scan: gives back stuck batches, finds sleepers and hogs, and tries again for pools that
    /// could not get a worker.
    pub(super) fn scan(&self, engine: &Engine<H>, now: u64, seen: &mut ScanState<H>) -> Scan {
        let mut waiting = Vec::new();
        let mut longest = INTERVAL_MAX_NS;
        seen.samples.begin(now);
        if seen.tidy_at <= now {
            seen.tidy_at = now.saturating_add(REMEMBER_NS);
            seen.samples.forget_before(now.saturating_sub(REMEMBER_NS));
        }
        // Expired timers first: the items that they make ready count as waiting in this scan.
        let mut next = self.serve_timers(engine, now, false);
        engine.for_each_pool(|pool| {
            // SeqCst, as are the loads of `looks_ready`: R2 of the diagram in `watch/mod.rs`.
            let scheduled_batches = pool.has_scheduled_batches();
            let starved = pool.create_again_at() != 0;
            if (scheduled_batches || pool.looks_ready()) && (starved || pool.watcher_helps(engine))
            {
                waiting.push(pool.id);
            }
        });
        let stranded_at = self.find_stranded(engine);
        // A sleeper in a pool that shares its work keeps that pool from taking the work that waits here.
        for id in self.helpers_of(engine, &waiting) {
            next = next.min(engine.pool(id).find_blocked_workers(engine, &mut seen.samples, now));
        }
        for &id in &waiting {
            let pool = engine.pool(id);
            if pool.others_may_help() {
                pool.take_back_overdue(engine, now);
            }
            if !pool.spec().single {
                next = next.min(pool.find_blocked_workers(engine, &mut seen.samples, now));
                next = next.min(engine.hogs.find(engine, pool, &mut seen.runs, now));
                if pool.blocking.expects_at(now) {
                    longest = longest.min(INTERVAL_SUSPECT_NS);
                }
            }
            // Two more cases need a thread. A pool that could not get a worker tries again. If the pool's
            // workers take no ready pwq, a neighbour's worker is woken for it.
            pool.retry_starved(engine, now);
            let since_take = pool.since_progress(now);
            if pool.others_may_help() && pool.looks_ready() && since_take >= STUCK_NS {
                pool.wake_neighbour_worker(engine, Maker::Caller);
            }
        }
        let suspect = longest == INTERVAL_SUSPECT_NS;
        Scan { waiting: !waiting.is_empty(), next, longest, suspect, stranded_at }
    }

    /// Whether sleeps are expected anywhere.
    pub(super) fn is_any_suspect(&self, engine: &Engine<H>, now: u64) -> bool {
        let mut any = false;
        engine.for_each_pool(|pool| any |= pool.blocking.expects_at(now));
        any
    }

    /// Pools in which nothing waits, and whose workers may take the work that waits in `waiting`.
    fn helpers_of(&self, engine: &Engine<H>, waiting: &[u32]) -> Vec<u32> {
        let mut helpers = Vec::new();
        if engine.host().tier() != Tier::Declared {
            for &id in waiting.iter().filter(|&&id| engine.pool(id).spec().shares) {
                helpers.extend(&engine.pool(id).spec().neighbours);
            }
            helpers.sort_unstable();
            helpers.dedup();
            helpers.retain(|id| !waiting.contains(id) && !engine.pool(*id).spec().single);
        }
        helpers
    }
}

impl<H: Host> Pool<H> {
    /// Tries again to get a worker for a pool that could not have one, or calls the rescuers.
    fn retry_starved(&self, engine: &Engine<H>, now: u64) {
        let again_at = self.create_again_at();
        if again_at == 0 || !self.looks_ready() {
            return;
        }
        if again_at <= now {
            self.settle(engine);
        } else if self.claim_maydays(now, MAYDAY_INTERVAL_NS) {
            self.send_maydays(engine);
        }
    }
}
