//! The watcher's samples of workers, kept from one scan to the next.

use std::collections::HashMap;

use crate::host::{Activity, Host, Seen};
use crate::pool::Pool;

/// The most threads whose context switches are recorded at once: each costs the system two locked
/// pages and a file.
const SIGHTS_MAX: usize = 64;
/// How many sleepers' states one scan queries at most.
const SAMPLES_PER_SCAN: u32 = 4;
/// After a refusal by the system, no recording is tried for this long.
const REFUSED_NS: u64 = 5_000_000;

/// The origin of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The records of the thread's switches: as of the last record. A stopped thread appears
    /// asleep.
    Records,
    /// The system, at this instant.
    System,
}

/// A number that no run has.
const NO_RUN: u64 = u64::MAX;

/// The samples of one worker.
struct Sample<H: Host> {
    /// Its thread.
    thread: u64,
    /// The run that it was in, and when it was first seen in that run.
    run: u64,
    met: u64,
    /// Whether the report that it was stopped in this run has been made.
    stopped: bool,
    sight: Option<H::Sight>,
    /// Whether the watcher, after this scan, sleeps until this thread falls asleep or wakes.
    wanted: bool,
}

/// All samples, by slot.
pub(super) struct Samples<H: Host> {
    by_slot: HashMap<u32, Sample<H>>,
    sights: usize,
    /// How many sleepers of this scan need a query, and the index of the first of them that gets
    /// it. The others get theirs in later scans.
    unseen: u32,
    sampled_from: u32,
    refused_until: u64,
    now: u64,
}

impl<H: Host> Samples<H> {
    pub(super) fn new() -> Samples<H> {
        Samples {
            by_slot: HashMap::new(),
            sights: 0,
            unseen: 0,
            sampled_from: 0,
            refused_until: 0,
            now: 0,
        }
    }

    /// Begins a new scan.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = now;
        // Sleepers that were not queried in the last scan come next; after the last of them the
        // first again.
        self.sampled_from += SAMPLES_PER_SCAN;
        if self.sampled_from >= self.unseen {
            self.sampled_from = 0;
        }
        self.unseen = 0;
        for sighting in self.by_slot.values_mut() {
            sighting.wanted = false;
        }
    }

    /// Drops all samples, and closes all records.
    pub(super) fn clear(&mut self) {
        self.by_slot.clear();
        self.sights = 0;
    }

    /// Whether any switches are recorded.
    pub(super) fn observes(&self) -> bool {
        self.sights > 0
    }

    /// Notes that a worker is in this run at `now`. Returns when it was first seen in it.
    pub(super) fn meet(&mut self, id: u32, thread: u64, run: u64, now: u64) -> u64 {
        let fresh = || Sample { thread, run, met: now, stopped: false, sight: None, wanted: false };
        let sighting = self.by_slot.entry(id).or_insert_with(fresh);
        if sighting.thread != thread {
            // The slot has a new owner.
            self.sights -= usize::from(sighting.sight.is_some());
            *sighting = fresh();
        } else if sighting.run != run {
            (sighting.run, sighting.met, sighting.stopped) = (run, now, false);
        }
        sighting.met
    }

    /// Samples a worker that was met. With `observe` its switches are recorded from here on.
    pub(super) fn look(
        &mut self,
        host: &H,
        pool: &Pool<H>,
        id: u32,
        observe: bool,
    ) -> Option<(Activity, Source)> {
        let sighting = self.by_slot.get_mut(&id)?;
        let thread = sighting.thread;
        let mut activity = None;
        if let Some(sight) = &mut sighting.sight {
            let seen = host.look(sight);
            learn(pool, sighting.met, seen);
            sighting.wanted = observe;
            activity = seen.activity;
        }
        if let Some(activity) = activity {
            return Some((activity, Source::Records));
        }
        activity = self.ask(host, id, thread);
        // A worker that sleeps already needs no records: it is replaced now, and not sampled for a
        // while.
        if observe && activity == Some(Activity::Runs) && self.observe(host, id) {
            // It may have gone to sleep before its switches were recorded.
            activity = self.ask(host, id, thread);
        }
        activity.map(|activity| (activity, Source::System))
    }

    /// Queries the system for a worker's state.
    pub(super) fn ask(&self, host: &H, id: u32, thread: u64) -> Option<Activity> {
        let sighting = self.by_slot.get(&id).filter(|sighting| sighting.thread == thread);
        match sighting.and_then(|sighting| sighting.sight.as_ref()) {
            Some(sight) => host.activity_of(sight, thread),
            None => host.activity(thread),
        }
    }

    /// Starts to record a worker's switches, unless they are recorded or the limit is reached. True
    /// if it did.
    fn observe(&mut self, host: &H, id: u32) -> bool {
        let Some(sighting) = self.by_slot.get_mut(&id) else { return false };
        let allowed = self.sights < SIGHTS_MAX && self.refused_until <= self.now;
        if sighting.sight.is_some() || !allowed {
            return false;
        }
        sighting.sight = host.observe(sighting.thread);
        sighting.wanted = sighting.sight.is_some();
        match sighting.sight {
            Some(_) => self.sights += 1,
            None => self.refused_until = self.now.saturating_add(REFUSED_NS),
        }
        sighting.wanted
    }

    /// Samples a worker that was found asleep. Without records, only some workers are queried in
    /// each scan, in turn.
    pub(super) fn sample_again(
        &mut self,
        host: &H,
        pool: &Pool<H>,
        id: u32,
        thread: u64,
    ) -> Option<Activity> {
        if let Some(sighting) = self.by_slot.get_mut(&id)
            && sighting.thread == thread
            && let Some(sight) = &mut sighting.sight
        {
            let seen = host.look(sight);
            learn(pool, sighting.met, seen);
            if seen.activity.is_some() {
                return seen.activity;
            }
        }
        let turn = self.unseen;
        self.unseen += 1;
        let asked = self.sampled_from..self.sampled_from + SAMPLES_PER_SCAN;
        asked.contains(&turn).then(|| self.ask(host, id, thread)).flatten()
    }

    /// Ends the recording of a worker's switches.
    pub(super) fn stop_recording(&mut self, id: u32) {
        if let Some(sighting) = self.by_slot.get_mut(&id)
            && sighting.sight.take().is_some()
        {
            self.sights -= 1;
        }
    }

    /// For a worker that is awake and between two runs: records its switches, and lets the watcher
    /// sleep on them.
    pub(super) fn want(&mut self, host: &H, id: u32, thread: u64) {
        self.meet(id, thread, NO_RUN, self.now);
        if !self.observe(host, id)
            && let Some(sighting) = self.by_slot.get_mut(&id)
        {
            sighting.wanted = sighting.sight.is_some();
        }
    }

    /// Notes that a worker was found stopped. True if that is to be reported.
    pub(super) fn note_stop(&mut self, id: u32) -> bool {
        self.by_slot
            .get_mut(&id)
            .is_some_and(|sighting| !std::mem::replace(&mut sighting.stopped, true))
    }

    /// The sights that the watcher sleeps on.
    pub(super) fn wanted(&self) -> Vec<&H::Sight> {
        let wanted = self.by_slot.values().filter(|sighting| sighting.wanted);
        wanted.filter_map(|sighting| sighting.sight.as_ref()).collect()
    }

    /// Drops the samples of slots that have not been seen since `time`.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.by_slot.retain(|_, sighting| sighting.met >= time || sighting.wanted);
        self.sights = self.by_slot.values().filter(|sighting| sighting.sight.is_some()).count();
    }
}

/// Learns from a sleep inside the run that was met. A sleep that began earlier is the worker's own
/// parking.
fn learn<H: Host>(pool: &Pool<H>, met: u64, seen: Seen) {
    if let Some((_, slept_ns)) = seen.slept.filter(|&(began, _)| began >= met) {
        pool.blocking.note_block(slept_ns);
    }
}
