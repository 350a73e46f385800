//! The watchdog: work waits, and nothing moves.
//!
//! **What is a stall.** A pool has something ready, or lined up behind a run, and for the threshold none of its
//! workers has begun or ended an item and nobody has taken any from it. Or all places of a queue are taken
//! (`max_active`, shared by a node or not), something waits for one, and for the threshold none of the items that
//! have them has ended. Or items wait for each other, for the threshold (see [`super::deadlock`]). Each is reported
//! once: when anything has moved, it is a new one.
//!
//! **What it costs.** Numbers that others keep anyway are compared: none is counted for this, and no lock is taken
//! where nothing waits. Every quarter of the threshold is often enough; and it is the watch that looks, which
//! does not get up for it:
//!
//! - While work waits for workers, the watch is awake anyhow. Where it is not, as nobody could help (one worker,
//!   and no way to see it sleep), somebody is at work.
//! - While anybody is at work, the watch looks at the CPUs several times a second.
//! - When nobody is, all workers are idle or in declared waits. Then there is a *last look*. If something waits
//!   at that time, the watch goes on with one look each quarter of the threshold, until that is reported. If
//!   nothing waits, or all that does was reported, it sleeps without an end: an idle program has no wake-up,
//!   nor one whose items all wait for something outside. Whoever moves on after a report gets to work, and the
//!   watch is called.
//!
//! What begins to wait after the last look calls the watch. It has to bring up a worker for that, which gets to
//! work and calls (`be_seen`). Whoever queues an item behind a limit that is reached brings up nobody, by the
//! pwq's mark SATURATED; so the last look takes that mark from pwqs in which nothing waits. The next item there
//! costs one worker's look, which sets the mark again. A pool that has one worker and never another brings up
//! none while that waits: the thread that finds that calls (`note_no_worker`).
//!
//! ```text
//! who queues an item                    the watch, at its last look
//! pushed to the inbox                   next_look = NO_LOOK
//! SATURATED ?                           SATURATED cleared
//!   no: a worker comes up, and calls    inbox not empty ? something waits, goes on
//! ```
//!
//! Sequentially consistent: one of the two sees the other.
//!
//! **Late looks.** A process that was stopped, or got no CPU, has not moved either. So if the watch itself comes
//! late, everything is counted from later on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::dump::Stall;
use crate::engine::Engine;
use crate::host::Host;
use crate::pool::{NEVER, Pool};
use crate::sync::{AtomicU64, Ordering};

/// The threshold at first (the kernel's `watchdog_thresh`, which is in seconds).
pub const WATCHDOG_THRESH_NS: u64 = 30_000_000_000;
/// The shortest time between two looks, and the shortest threshold.
const PERIOD_MIN_NS: u64 = 1_000_000;

/// What can be set.
pub(crate) struct Watchdog {
    threshold_ns: AtomicU64,
    /// When somebody said, from outside of items, that all is well.
    touched_at: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let threshold_ns = AtomicU64::new(WATCHDOG_THRESH_NS);
        Watchdog { threshold_ns, touched_at: AtomicU64::new(0) }
    }

    pub(crate) fn touch(&self, now: u64) {
        self.touched_at.store(now, Ordering::Relaxed);
    }
}

/// Where something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Backed {
    /// For a worker of this pool.
    Pool(u32),
    /// For a place of this pwq.
    Pwq(u32),
    /// For a place of this node, which pwqs of this queue share. Both are identities.
    Node { node: usize, wq: usize },
    /// For each other: the run in this slot, the lowest of them, and others.
    Deadlock(u32),
}

/// Numbers that change when anything moves: what was taken, and the runs of those who took it.
pub(super) type Progress = (u64, u64);

/// How far those are who run items, by the pwq that those are of.
struct Moves(HashMap<u32, u64>);

/// A place where something waits, as it was seen.
struct Watched {
    progress: Progress,
    /// Since when that has not changed.
    since: u64,
    reported: bool,
}

/// What the watch remembers.
pub(super) struct Guard {
    /// When it looks again, if anything may wait; `NEVER`.
    pub(super) next: u64,
    was_at_work: bool,
    watched: BTreeMap<Backed, Watched>,
    /// What this look has found to be told.
    found: Vec<Stall>,
    /// Deadlocks that were told and are still there: the runs of each, by slot and number.
    deadlocks: Vec<Vec<(u32, u64)>>,
}

impl Guard {
    pub(super) fn new() -> Guard {
        Guard {
            next: NEVER,
            was_at_work: false,
            watched: BTreeMap::new(),
            found: Vec::new(),
            deadlocks: Vec::new(),
        }
    }

    /// Looks, if it is time. `at_work`: the watch will look at the CPUs again, or is awake.
    pub(super) fn look<H: Host>(&mut self, engine: &Engine<H>, at_work: bool) {
        let is_last = std::mem::replace(&mut self.was_at_work, at_work) && !at_work;
        let threshold = engine.watchdog_thresh();
        if threshold == 0 {
            self.watched.clear();
            self.next = NEVER;
            return;
        }
        let (now, period) = (engine.host().now(), (threshold / 4).max(PERIOD_MIN_NS));
        if self.next == NEVER && at_work {
            self.next = now.saturating_add(period);
        }
        if now < self.next && !is_last {
            // The threshold may have been lowered.
            self.next = self.next.min(now.saturating_add(period));
            return;
        }
        let late = now.saturating_sub(self.next);
        if late > period {
            self.watched.values_mut().for_each(|watched| watched.since += late);
        }
        let mut found = engine.find_backlogs();
        let (deadlocks, suspects) = engine.find_deadlocks(&self.deadlocks);
        found.extend(deadlocks);
        self.watched.retain(|place, _| found.contains_key(place));
        self.next = if at_work { now.saturating_add(period) } else { NEVER };
        for (place, progress) in found {
            let due = self.check(engine, place, progress, threshold, now);
            if due != NEVER {
                self.next = self.next.min(due).min(now.saturating_add(period));
            }
        }
        if suspects {
            self.next = self.next.min(now.saturating_add(period));
        }
        if self.next == NEVER && engine.call_at_next_items(&self.watched) {
            self.next = now.saturating_add(period);
        }
        engine.tell(std::mem::take(&mut self.found));
    }

    /// Compares with what was seen before. When it would be a stall.
    fn check<H: Host>(
        &mut self,
        engine: &Engine<H>,
        place: Backed,
        progress: Progress,
        threshold: u64,
        now: u64,
    ) -> u64 {
        let fresh = || Watched { progress, since: now, reported: false };
        let watched = self.watched.entry(place).or_insert_with(fresh);
        let touched_at = engine.watch_state().watchdog.touched_at.load(Ordering::Relaxed);
        if watched.progress != progress {
            *watched = fresh();
        } else if touched_at > watched.since {
            *watched = Watched { since: touched_at, ..fresh() };
        }
        let due = watched.since.saturating_add(threshold);
        if watched.reported || now < due {
            return if watched.reported { NEVER } else { due };
        }
        // It takes some time to look.
        let stall = engine.picture(place, now.saturating_sub(watched.since));
        if let Some(stall) =
            stall.filter(|_| engine.progress_of(place, &engine.moves()) == progress)
        {
            watched.reported = true;
            if self.is_news(engine, &stall) {
                self.found.push(stall);
            }
            return NEVER;
        }
        watched.since = now;
        now.saturating_add(threshold)
    }

    /// Whether a stall has more to say than a deadlock that was told: each of a deadlock's queues stands still.
    fn is_news<H: Host>(&mut self, engine: &Engine<H>, stall: &Stall) -> bool {
        let is_there = |&(slot, run): &(u32, u64)| engine.slot(slot).present_run() == Some(run);
        self.deadlocks.retain(|runs| runs.iter().all(is_there));
        if stall.deadlock.is_empty() {
            return true;
        }
        let runs: Vec<_> = stall.deadlock.iter().map(|item| (item.slot, item.run)).collect();
        let is_news = !self.deadlocks.contains(&runs);
        if is_news {
            self.deadlocks.push(runs);
        }
        is_news
    }
}

impl<H: Host> Engine<H> {
    /// For how long work may wait with nothing moving before that is reported, in nanoseconds; 0: for ever.
    pub fn watchdog_thresh(&self) -> u64 {
        self.watch_state().watchdog.threshold_ns.load(Ordering::Relaxed)
    }

    /// Changes the threshold, at once. A millisecond is the shortest.
    pub fn set_watchdog_thresh(&self, ns: u64) {
        let ns = if ns == 0 { 0 } else { ns.max(PERIOD_MIN_NS) };
        self.watch_state().watchdog.threshold_ns.store(ns, Ordering::Relaxed);
        if self.pools() > 0 {
            self.suspect_all();
            // What waits now was not looked after, if it was off.
            self.call_for_a_look();
        }
    }

    /// Where something waits, and how far that is.
    fn find_backlogs(&self) -> BTreeMap<Backed, Progress> {
        let mut places = BTreeSet::new();
        self.for_each_pool(|pool| {
            if pool.looks_ready() || pool.lined_up.load(Ordering::SeqCst) > 0 {
                places.insert(Backed::Pool(pool.id));
            }
        });
        self.pwqs().for_each(|(id, pwq)| {
            if !pwq.marks().1 {
                return;
            }
            let Some(backlog) = pwq.backlog().filter(|backlog| backlog.queued > 0) else { return };
            places.insert(match backlog.node {
                None => Backed::Pwq(id),
                Some(node) => Backed::Node { node, wq: pwq.wq().addr() },
            });
        });
        if places.is_empty() {
            return BTreeMap::new();
        }
        let moves = self.moves();
        places.into_iter().map(|place| (place, self.progress_of(place, &moves))).collect()
    }

    fn moves(&self) -> Moves {
        let mut moves = HashMap::new();
        for slot in self.slots_at_work().map(|id| self.slot(id)) {
            if let Some(pwq) = slot.batch.get().0 {
                let sum: &mut u64 = moves.entry(pwq).or_default();
                *sum = sum.wrapping_add(slot.progress());
            }
        }
        Moves(moves)
    }

    fn progress_of(&self, place: Backed, moves: &Moves) -> Progress {
        match place {
            Backed::Pool(id) => {
                let pool: &Pool<H> = self.pool(id);
                let workers = pool.list_workers();
                let moved = workers.iter().map(|&id| self.slot(id).progress());
                (pool.took_at.get() as u64, moved.fold(0, u64::wrapping_add))
            }
            Backed::Deadlock(slot) => self.progress_of_deadlock(slot),
            _ => {
                let pwqs = self.pwqs_of(place);
                let started = |&id: &u32| self.pwqs().get(id)?.backlog().map(|b| b.started);
                let started = pwqs.iter().filter_map(started).fold(0, u64::wrapping_add);
                let moved = pwqs.iter().filter_map(|id| moves.0.get(id));
                (started, moved.fold(0, |sum, moved| sum.wrapping_add(*moved)))
            }
        }
    }

    /// The pwqs that share the places.
    pub(super) fn pwqs_of(&self, place: Backed) -> Vec<u32> {
        let mut pwqs = Vec::new();
        match place {
            Backed::Pool(_) | Backed::Deadlock(_) => {}
            Backed::Pwq(id) => pwqs.push(id),
            Backed::Node { node, wq } => self.pwqs().for_each(|(id, pwq)| {
                let shares = || pwq.backlog().is_some_and(|backlog| backlog.node == Some(node));
                if pwq.wq().addr() == wq && shares() {
                    pwqs.push(id);
                }
            }),
        }
        pwqs
    }

    /// The slots that run items of these pwqs.
    pub(super) fn holders_of(&self, pwqs: &[u32]) -> Vec<u32> {
        let of = |id: &u32| self.slot(*id).batch.get().0.is_some_and(|pwq| pwqs.contains(&pwq));
        self.slots_at_work().filter(of).collect()
    }

    /// Lets the next item behind a limit that is reached call the watch. True if something waits by now that did
    /// not before.
    fn call_at_next_items(&self, known: &BTreeMap<Backed, Watched>) -> bool {
        let mut any = false;
        self.pwqs().for_each(|(_, pwq)| {
            if pwq.marks().1 && pwq.call_at_next_item() {
                self.make_ready(pwq);
                any = true;
            }
        });
        // The marks first, then another look (see the module).
        any || self.find_backlogs().keys().any(|place| !known.contains_key(place))
    }
}
