//! What the watch remembers of workers from one look to the next.

use std::collections::HashMap;

use super::sleepers::note_sleep;
use crate::host::{Activity, Host, Seen};
use crate::pool::Pool;

/// Threads whose switches are observed at once, at most: each costs the system two locked pages and a
/// file.
const SIGHTS_MAX: usize = 64;
/// States of sleepers that one look asks the system for, at most.
const SAMPLES_PER_LOOK: u32 = 4;
/// How long nothing more is observed after the system has refused.
const REFUSED_NS: u64 = 5_000_000;

/// Who says what a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The records of its switches: as of the last of them, and the same for a thread that was stopped.
    Records,
    /// The system, just now.
    System,
}

/// A number that no run has.
const NO_RUN: u64 = u64::MAX;

/// One worker.
struct Sighting<H: Host> {
    /// Its thread.
    thread: u64,
    /// The run that it was in, and when it was first met in it.
    run: u64,
    met: u64,
    /// Whether it was said that it was stopped in this run.
    stopped: bool,
    sight: Option<H::Sight>,
    /// Whether this look goes on sleeping until it goes to sleep or gets up.
    wanted: bool,
}

/// See the module. By slot.
pub(super) struct Sightings<H: Host> {
    by_slot: HashMap<u32, Sighting<H>>,
    sights: usize,
    /// Sleepers of this look that the system would have to be asked for, and the first of them that it is
    /// asked for.
    unseen: u32,
    sampled_from: u32,
    refused_until: u64,
    now: u64,
}

impl<H: Host> Sightings<H> {
    pub(super) fn new() -> Sightings<H> {
        Sightings {
            by_slot: HashMap::new(),
            sights: 0,
            unseen: 0,
            sampled_from: 0,
            refused_until: 0,
            now: 0,
        }
    }

    /// A new look begins.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = now;
        // Those that were not asked for at the last look come next; after the last one the first.
        self.sampled_from += SAMPLES_PER_LOOK;
        if self.sampled_from >= self.unseen {
            self.sampled_from = 0;
        }
        self.unseen = 0;
        for sighting in self.by_slot.values_mut() {
            sighting.wanted = false;
        }
    }

    /// Forgets everything, and observes nobody any more.
    pub(super) fn clear(&mut self) {
        self.by_slot.clear();
        self.sights = 0;
    }

    /// Whether any switches are recorded.
    pub(super) fn observes(&self) -> bool {
        self.sights > 0
    }

    /// A worker is in this run at `now`. Since when it was seen in it.
    pub(super) fn meet(&mut self, id: u32, thread: u64, run: u64, now: u64) -> u64 {
        let fresh =
            || Sighting { thread, run, met: now, stopped: false, sight: None, wanted: false };
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

    /// What a worker that was met is at. With `observe` its switches are recorded from here on.
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
        // Not one that sleeps already: it will be replaced, and not looked at for a while.
        if observe && activity == Some(Activity::Runs) && self.observe(host, id) {
            // It may have gone to sleep before its switches were recorded.
            activity = self.ask(host, id, thread);
        }
        activity.map(|activity| (activity, Source::System))
    }

    /// What the system says that a worker is at.
    pub(super) fn ask(&self, host: &H, id: u32, thread: u64) -> Option<Activity> {
        let sighting = self.by_slot.get(&id).filter(|sighting| sighting.thread == thread);
        match sighting.and_then(|sighting| sighting.sight.as_ref()) {
            Some(sight) => host.activity_of(sight, thread),
            None => host.activity(thread),
        }
    }

    /// Has a worker's switches recorded, if they are not and there is room. True if they are from here on.
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

    /// What a worker is at that was found asleep. Of those whose switches are not recorded only some at
    /// each look, in turn.
    pub(super) fn look_again(
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
        let asked = self.sampled_from..self.sampled_from + SAMPLES_PER_LOOK;
        asked.contains(&turn).then(|| self.ask(host, id, thread)).flatten()
    }

    /// Ends the recording of a worker's switches.
    pub(super) fn lose_sight(&mut self, id: u32) {
        if let Some(sighting) = self.by_slot.get_mut(&id)
            && sighting.sight.take().is_some()
        {
            self.sights -= 1;
        }
    }

    /// This worker is up, and between two runs: have its switches recorded, and sleep on them.
    pub(super) fn want(&mut self, host: &H, id: u32, thread: u64) {
        self.meet(id, thread, NO_RUN, self.now);
        if !self.observe(host, id)
            && let Some(sighting) = self.by_slot.get_mut(&id)
        {
            sighting.wanted = sighting.sight.is_some();
        }
    }

    /// A worker was found stopped. True if that is to be said.
    pub(super) fn note_stop(&mut self, id: u32) -> bool {
        self.by_slot
            .get_mut(&id)
            .is_some_and(|sighting| !std::mem::replace(&mut sighting.stopped, true))
    }

    /// The sights that the watch sleeps on.
    pub(super) fn wanted(&self) -> Vec<&H::Sight> {
        let wanted = self.by_slot.values().filter(|sighting| sighting.wanted);
        wanted.filter_map(|sighting| sighting.sight.as_ref()).collect()
    }

    /// Drops what was remembered of slots that have not been met for a while.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.by_slot.retain(|_, sighting| sighting.met >= time || sighting.wanted);
        self.sights = self.by_slot.values().filter(|sighting| sighting.sight.is_some()).count();
    }
}

/// Takes note of a sleep inside the run that was met then; others are the worker's own.
fn learn<H: Host>(pool: &Pool<H>, met: u64, seen: Seen) {
    if let Some((_, slept_ns)) = seen.slept.filter(|&(began, _)| began >= met) {
        note_sleep(pool, slept_ns);
    }
}
