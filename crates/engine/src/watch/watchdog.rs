//! The watchdog: work waits, and nothing makes progress.
//!
//! **Definition of a stall.** There are three kinds, each of which must last for the threshold:
//!
//! - A pool has something ready, or scheduled behind a run, and none of its workers has begun or
//!   ended an item, and no thread has taken an item from it.
//! - All permits of a queue (`max_active`, shared by a node or not) are in use, something waits for
//!   a permit, and none of the items that hold the permits has ended.
//! - Items wait for each other (see [`super::deadlock`]).
//!
//! Each stall is reported once. After any progress, a stall at the same place is a new one.
//!
//! **Cost.** The watchdog compares numbers that are kept anyway: it adds no counters, and takes no
//! lock where nothing waits. A check every quarter of the threshold is enough. The watcher makes
//! the checks, and does not wake for them:
//!
//! - While work waits for workers, the watcher is awake anyway. If it is not, because it could not
//!   help (one worker, and no means to detect its sleep), some worker is busy.
//! - While any worker is busy, the watcher checks the CPUs several times a second.
//! - Otherwise all workers are idle or in declared waits. Then there is a *last check*. If
//!   something waits at that time, the watcher continues with one check each quarter of the
//!   threshold, until the stall is reported. If nothing waits, or all that waits was reported, it
//!   sleeps without a deadline. An idle program has no wake-up, nor has a program whose items all
//!   wait for something outside. A worker that continues after a report becomes busy, and calls the
//!   watcher.
//!
//! An item that begins to wait after the last check leads to a call of the watcher: a worker must
//! be woken for it, which becomes busy and calls (`heartbeat`). There are two exceptions. A submitter
//! whose item waits behind a reached limit wakes no worker, because the pwq has the mark SATURATED.
//! So the last check clears that mark on pwqs in which nothing waits. The next item there costs one
//! worker's scan of the pwq, which sets the mark again. And a pool that has one worker and never
//! another wakes none while that worker waits: the thread that finds this calls the watcher
//! (`note_no_worker`).
//!
//! ```text
//! submitter                                the watcher, at its last check
//! W1: push to the inbox                    next_check = NO_CHECK
//!                                          W2: SATURATED cleared
//! R1: SATURATED ?                          R2: inbox not empty ? something waits, continue
//!   no: a worker is woken, and calls
//! ```
//!
//! This is a Dekker pair, sequentially consistent: R1 sees W2, or R2 sees W1. If both missed, the
//! item would wait with the watcher asleep, and a stall behind it would not be reported.
//!
//! **Late checks.** A process that was stopped, or got no CPU, has made no progress either. So if
//! the watcher itself is late, all start times move later by as much.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::survey::Survey;
use crate::engine::Engine;
use crate::pool::{NEVER, Pool};
use crate::words::dump::Stall;
use crate::words::host::Host;
use crate::words::sync::{AtomicU64, Ordering};

/// The default threshold (the kernel's `watchdog_thresh`, which is in seconds).
pub const WATCHDOG_THRESH_NS: u64 = 30_000_000_000;
/// The shortest time between two checks, and the shortest threshold.
const PERIOD_MIN_NS: u64 = 1_000_000;

/// The watchdog's settings.
pub(crate) struct Watchdog {
    threshold_ns: AtomicU64,
    /// When a thread last declared progress from outside of items.
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

/// A place where something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Backed {
    /// For a worker of this pool.
    Pool(u32),
    /// For a permit of this pwq.
    Pwq(u32),
    /// For a permit of this node, which pwqs of this queue share. Both are identities.
    Node { node: usize, wq: usize },
    /// For each other. The slot is the lowest among those of the runs in the cycle.
    Deadlock(u32),
}

/// Two numbers that change with any progress: the count of taken items, and the sum of the runs of
/// their holders.
pub(super) type Progress = (u64, u64);

/// The progress of the slots that run items, summed up by the pwq of those items.
struct Moves(HashMap<u32, u64>);

/// The last observed state of a place where something waits.
struct Watched {
    progress: Progress,
    /// When it last changed.
    since: u64,
    reported: bool,
}

/// The watchdog's state between checks.
pub(super) struct Guard {
    /// When the next check is due, if anything may wait; `NEVER`.
    pub(super) next: u64,
    was_busy: bool,
    watched: BTreeMap<Backed, Watched>,
    /// The stalls that this check reports.
    found: Vec<Stall>,
    /// Deadlocks that were reported and persist: the runs of each, by slot and number.
    deadlocks: Vec<Vec<(u32, u64)>>,
}

impl Guard {
    pub(super) fn new() -> Guard {
        Guard {
            next: NEVER,
            was_busy: false,
            watched: BTreeMap::new(),
            found: Vec::new(),
            deadlocks: Vec::new(),
        }
    }

    /// Checks for stalls, if it is time. `at_work`: the watcher will check the CPUs again, or is
    /// awake.
    pub(super) fn check_if_due<H: Host>(&mut self, engine: &Engine<H>, at_work: bool) {
        let is_last = std::mem::replace(&mut self.was_busy, at_work) && !at_work;
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
        let mut found = Survey::of(engine).find_backlogs();
        let (deadlocks, suspects) = Survey::of(engine).find_deadlocks(&self.deadlocks);
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
        if self.next == NEVER && Survey::of(engine).arm_watch_calls(&self.watched) {
            self.next = now.saturating_add(period);
        }
        engine.watch.report_stalls(engine, std::mem::take(&mut self.found));
    }

    /// Compares the progress with the last check, and adds a stall that is due to `found`. Returns
    /// when the place becomes a stall.
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
        let touched_at = engine.watch.watchdog.touched_at.load(Ordering::Relaxed);
        if watched.progress != progress {
            *watched = fresh();
        } else if touched_at > watched.since {
            *watched = Watched { since: touched_at, ..fresh() };
        }
        let due = watched.since.saturating_add(threshold);
        if watched.reported || now < due {
            return if watched.reported { NEVER } else { due };
        }
        // The snapshot takes some time, so compare the progress again afterwards.
        let stall = Survey::of(engine).picture(place, now.saturating_sub(watched.since));
        if let Some(stall) = stall.filter(|_| {
            Survey::of(engine).progress_of(place, &Survey::of(engine).moves()) == progress
        }) {
            watched.reported = true;
            if self.is_news(engine, &stall) {
                self.found.push(stall);
            }
            return NEVER;
        }
        watched.since = now;
        now.saturating_add(threshold)
    }

    /// Whether a stall adds anything to a deadlock that was reported: each queue of a deadlock
    /// stalls too.
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
    /// How long work may wait without progress before that is reported, in nanoseconds; 0: for
    /// ever.
    pub fn watchdog_thresh(&self) -> u64 {
        self.watch.watchdog.threshold_ns.load(Ordering::Relaxed)
    }

    /// Changes the threshold, with immediate effect. The shortest is a millisecond.
    pub fn set_watchdog_thresh(&self, ns: u64) {
        let ns = if ns == 0 { 0 } else { ns.max(PERIOD_MIN_NS) };
        self.watch.watchdog.threshold_ns.store(ns, Ordering::Relaxed);
        if self.pools() > 0 {
            self.watch.suspect_all(self);
            // If the watchdog was off, it does not know of the items that wait now.
            self.watch.request_check(self);
        }
    }
}

impl<'a, H: Host> Survey<'a, H> {
    /// The places where something waits, and the progress of each.
    fn find_backlogs(self) -> BTreeMap<Backed, Progress> {
        let mut places = BTreeSet::new();
        self.engine.for_each_pool(|pool| {
            if pool.looks_ready() || pool.has_scheduled_batches() {
                places.insert(Backed::Pool(pool.id));
            }
        });
        self.engine.pwqs.for_each(|(id, pwq)| {
            if !pwq.is_marked_saturated() {
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

    fn moves(self) -> Moves {
        let mut moves = HashMap::new();
        for slot in self.slots_at_work().map(|id| self.engine.slot(id)) {
            if let Some(pwq) = slot.batch.get().0 {
                let sum: &mut u64 = moves.entry(pwq).or_default();
                *sum = sum.wrapping_add(slot.progress());
            }
        }
        Moves(moves)
    }

    fn progress_of(self, place: Backed, moves: &Moves) -> Progress {
        match place {
            Backed::Pool(id) => {
                let pool: &Pool<H> = self.engine.pool(id);
                let workers = pool.list_workers();
                let moved = workers.iter().map(|&id| self.engine.slot(id).progress());
                (pool.last_batch_at(), moved.fold(0, u64::wrapping_add))
            }
            Backed::Deadlock(slot) => self.progress_of_deadlock(slot),
            _ => {
                let pwqs = self.pwqs_of(place);
                let started = |&id: &u32| self.engine.pwqs.get(id)?.backlog().map(|b| b.started);
                let started = pwqs.iter().filter_map(started).fold(0, u64::wrapping_add);
                let moved = pwqs.iter().filter_map(|id| moves.0.get(id));
                (started, moved.fold(0, |sum, moved| sum.wrapping_add(*moved)))
            }
        }
    }

    /// The pwqs that share the permits of a place.
    pub(super) fn pwqs_of(self, place: Backed) -> Vec<u32> {
        let mut pwqs = Vec::new();
        match place {
            Backed::Pool(_) | Backed::Deadlock(_) => {}
            Backed::Pwq(id) => pwqs.push(id),
            Backed::Node { node, wq } => self.engine.pwqs.for_each(|(id, pwq)| {
                let shares = || pwq.backlog().is_some_and(|backlog| backlog.node == Some(node));
                if pwq.wq().addr() == wq && shares() {
                    pwqs.push(id);
                }
            }),
        }
        pwqs
    }

    /// The slots that run items of these pwqs.
    pub(super) fn holders_of(self, pwqs: &[u32]) -> Vec<u32> {
        let of =
            |id: &u32| self.engine.slot(*id).batch.get().0.is_some_and(|pwq| pwqs.contains(&pwq));
        self.slots_at_work().filter(of).collect()
    }

    /// Makes the next item behind a reached limit call the watcher. True if something waits now
    /// that did not before.
    fn arm_watch_calls(self, known: &BTreeMap<Backed, Watched>) -> bool {
        let mut any = false;
        self.engine.pwqs.for_each(|(_, pwq)| {
            if pwq.is_marked_saturated() && pwq.arm_watch_call() {
                pwq.make_ready(self.engine);
                any = true;
            }
        });
        // W2 before R2 (see the module): clear the marks, then search again.
        any || self.find_backlogs().keys().any(|place| !known.contains_key(place))
    }
}
