//! Workers that sleep inside an item without having declared it.
//!
//! README.md in this folder has the protocol: which workers are sampled and when, why a worker is
//! counted out once and in once, and what may be missed.

use uwork_policy::blocking::{Tier, patience_ns, usual_sleep_ns, was_sleep};
use uwork_policy::concurrency::may_keep_working;

use super::sightings::{Sightings, Source};
use crate::engine::Engine;
use crate::host::{Activity, Host, Report};
use crate::pool::{NEVER, Pool};
use crate::pwq::Pwq;
use crate::slot::{Absence, Slot};
use crate::sync::Ordering;

/// How long a pool stays suspect after a sleep.
const SUSPECT_NS: u64 = 1_000_000_000;
/// The next scan after a worker was found asleep comes this soon: its replacement may sleep as
/// well.
pub(super) const SOON_NS: u64 = 50_000;
/// In a pool that is not suspect, a worker is sampled once it has been in the same run for this
/// long.
const MET_NS: u64 = super::STUCK_NS / 2;
/// Interval of scans for sleepers that run again, while the pool runs fewer workers than its
/// target.
const RETURNS_NS: u64 = 1_000_000;
/// For this long after a presumed sleep more of them are expected.
const PRESUMES_NS: u64 = 10_000_000;
/// How many workers `uncover_sleeper` queries at most.
const UNCOVER_MAX: usize = 2;

impl<H: Host> Engine<H> {
    /// Samples the workers of a pool in which something waits, and counts sleepers out and in.
    /// Returns when to sample them again at the latest.
    ///
    /// The scan works on hints. `present_run`, `absence` and the sample belong to different
    /// instants, and the run may end between any two of them. That is harmless: `count_out` and
    /// `mark_back` carry the run number, check it under the slot's mutex, and do nothing if that
    /// run is over.
    pub(super) fn find_sleepers(
        &self,
        pool: &Pool<H>,
        sightings: &mut Sightings<H>,
        now: u64,
    ) -> u64 {
        let tier = self.host().tier();
        if tier == Tier::Declared {
            return NEVER;
        }
        let suspect = is_suspect(pool, now);
        if pool.state.counts().running < pool.target() {
            // The pool can wake a worker by its own rule, so no sleeper holds anything up. Sleepers
            // that run again must still be counted, but less often.
            let seen_at = pool.seen_at.load(Ordering::Relaxed);
            if now.saturating_sub(seen_at) < RETURNS_NS {
                return NEVER;
            }
        }
        pool.seen_at.store(now, Ordering::Relaxed);
        // Recording costs each switch of the thread some microseconds. Presumed sleeps need no
        // records.
        let presumes = now.saturating_sub(pool.presumed_at.load(Ordering::Relaxed)) < PRESUMES_NS;
        let observe = suspect && tier == Tier::Events && !presumes;
        // Allocate before the lock is taken, with room for a worker that is created meanwhile.
        let mut workers = Vec::with_capacity(pool.state.counts().workers as usize + 1);
        // Copy the ids and release the lock: a sample is a system call.
        let inner = pool.lock();
        let up = |&&id: &&u32| !self.slot(id).is_idle_locked(&inner);
        workers.extend(inner.workers.iter().filter(up).copied());
        drop(inner);
        let mut next = NEVER;
        for id in workers {
            let slot = self.slot(id);
            let thread = slot.thread.load(Ordering::Relaxed);
            if presumes {
                sightings.lose_sight(id);
            }
            let Some(run) = slot.present_run().filter(|_| thread != 0) else {
                // It is between two runs. Open its records now, so that they cover its next run from
                // the beginning.
                if observe && thread != 0 {
                    sightings.want(self.host(), id, thread);
                }
                continue;
            };
            match slot.absence() {
                // Already counted out: the only question is whether it runs again.
                Absence::Asleep(_) => {
                    self.look_after_sleeper(pool, sightings, (id, thread, run));
                    continue;
                }
                Absence::Presumed => {
                    // A run that is not presumed would be found asleep only after MET_NS. Grant
                    // this one the same time to fall asleep.
                    let met = sightings.meet(id, thread, run, now);
                    if now.saturating_sub(met) >= MET_NS {
                        self.look_after_sleeper(pool, sightings, (id, thread, run));
                    }
                    continue;
                }
                // The worker itself, or the end of the run, ends these.
                Absence::Declared | Absence::Hog => continue,
                Absence::No => {}
            }
            let met = sightings.meet(id, thread, run, now);
            if !suspect && now.saturating_sub(met) < MET_NS {
                continue;
            }
            let seen = match sightings.look(self.host(), pool, id, observe) {
                // The records may be outdated, and they show a stopped thread as asleep. So query
                // the system before the worker is counted out.
                Some((Activity::Sleeps { since }, Source::Records)) if is_due(pool, since, now) => {
                    match sightings.ask(self.host(), id, thread) {
                        Some(Activity::Sleeps { .. }) | None => Some(Activity::Sleeps { since }),
                        other => other,
                    }
                }
                seen => seen.map(|(activity, _)| activity),
            };
            let sleeper = (id, run);
            match seen {
                Some(Activity::Sleeps { since }) => {
                    let since = since.unwrap_or(met);
                    next = next.min(self.judge_sleep(pool, sleeper, since, now));
                }
                Some(Activity::Stopped) if sightings.note_stop(id) => {
                    self.report(Report::WorkerStopped { thread });
                }
                _ => {}
            }
        }
        next
    }

    /// Judges a worker that has slept since `since`: counts it out, or returns when its patience
    /// ends. Returns when to sample it again.
    fn judge_sleep(&self, pool: &Pool<H>, (id, run): (u32, u64), since: u64, now: u64) -> u64 {
        if is_due(pool, Some(since), now) {
            self.count_sleeper_out(pool, id, run, since, now);
            return now.saturating_add(SOON_NS);
        }
        pool.suspect_until.store(now.saturating_add(SUSPECT_NS), Ordering::Relaxed);
        since.saturating_add(patience_of(pool))
    }

    fn count_sleeper_out(&self, pool: &Pool<H>, id: u32, run: u64, since: u64, now: u64) -> bool {
        pool.suspect_until.store(now.saturating_add(SUSPECT_NS), Ordering::Relaxed);
        self.count_out(id, run, Absence::Asleep(since)).is_some()
    }

    /// Checks whether a worker that was found asleep runs again, and if so counts it in.
    fn look_after_sleeper(
        &self,
        pool: &Pool<H>,
        sightings: &mut Sightings<H>,
        (id, thread, run): (u32, u64, u64),
    ) {
        if self.slot(id).waits.load(Ordering::Relaxed) {
            return;
        }
        let activity = sightings.look_again(self.host(), pool, id, thread);
        if activity != Some(Activity::Runs) {
            return;
        }
        let now = self.host().now();
        let mut remote = self.slot(id).lock_remote(self.host());
        let Some(was) = remote.mark_back(run) else { return };
        // Count it under the same hold of the mutex as the mark. The run may end now, and its
        // worker must not park before the count includes it.
        self.count_again(self.home_of(id), was, now);
        drop(remote);
        if was == Absence::Presumed
            && let Some(pwq) = self.slot(id).batch.get().0.and_then(|pwq| self.pwqs().get(pwq))
        {
            // `run_presumed` notes its own measurement at the end of the run. With this one that
            // makes two runs that computed, which ends the presumption.
            pwq.note_sleep(false);
        }
        // A worker that runs items must have the CPUs checked (`changes`).
        self.be_seen(0);
    }

    /// The pool of a worker in a run that does not end meanwhile. The worker may have moved since
    /// it was found on another pool's list.
    fn home_of(&self, id: u32) -> &Pool<H> {
        self.pool(self.slot(id).home.load(Ordering::Relaxed))
    }

    /// Takes a worker off the running count for the rest of its run, gives back the items scheduled
    /// behind it, and settles its pool, which may wake a replacement. Returns `None` if the run is
    /// over or the worker does not count anyway; else the function that runs, unless it has just
    /// ended.
    pub(super) fn count_out(&self, id: u32, run: u64, why: Absence) -> Option<Option<usize>> {
        let slot = self.slot(id);
        let (function, pool, changed) = self.take_back(slot, |remote| {
            remote.mark_absent(self.host(), run, why).then(|| {
                let pool = self.home_of(id);
                (slot.running().map(|running| running.func), pool, pool.block())
            })
        })?;
        self.end_line(slot);
        changed.settle(self);
        if pool.spec().shares && !pool.looks_ready() {
            self.kick_for_neighbours(pool);
        }
        Some(function)
    }

    /// Counts a worker of `pool` again: it did not count for reason `was`, and runs again or has
    /// ended its run.
    pub(crate) fn count_again(&self, pool: &Pool<H>, was: Absence, now: u64) {
        match was {
            Absence::No | Absence::Declared => return,
            Absence::Hog | Absence::Presumed => {}
            Absence::Asleep(since) => note_sleep(pool, now.saturating_sub(since)),
        }
        pool.state.unblock();
    }

    /// Whether there is a reason to look for a sleeper in this pool.
    pub(crate) fn may_uncover(&self, pool: &Pool<H>) -> bool {
        self.host().tier() != Tier::Declared
            && pool.suspect_until.load(Ordering::Relaxed) != 0
            && pool.looks_ready()
            && patience_of(pool) == 0
    }

    /// Called by a worker that may not continue because too many others of its pool run, while work
    /// is ready: one of them may sleep. Returns true if one did, and the caller may take work.
    #[cold]
    pub(crate) fn uncover_sleeper(&self, pool: &Pool<H>, caller: u32) -> bool {
        if !self.may_uncover(pool) {
            return false;
        }
        let mut looks = 0;
        for id in pool.recent().filter(|&id| id != caller) {
            let slot = self.slot(id);
            let thread = slot.thread.load(Ordering::Relaxed);
            let Some(run) = slot.present_run().filter(|_| thread != 0) else { continue };
            let left = slot.home.load(Ordering::Relaxed) != pool.id;
            if left || slot.absence() != Absence::No {
                continue;
            }
            if looks == UNCOVER_MAX {
                return false;
            }
            looks += 1;
            if let Some(Activity::Sleeps { since }) = self.host().activity(thread) {
                let now = self.host().now();
                if self.count_sleeper_out(pool, id, run, since.unwrap_or(now), now)
                    && may_keep_working(pool.state.counts(), pool.target())
                {
                    return true;
                }
            }
        }
        false
    }
}

impl<H: Host> Engine<H> {
    /// Whether the single item that a worker of `pool` took from this pwq is presumed to sleep.
    #[inline]
    pub(crate) fn presumes_sleep(&self, pool: &Pool<H>, pwq: &Pwq<H>) -> bool {
        pwq.presumes_sleep()
            && !pool.spec().single
            && self.host().tier() != Tier::Declared
            && self.last_presumed_sleeps(pool)
    }

    /// Whether the run of this pool that was last presumed to sleep does sleep, or is over. This
    /// limits unverified presumptions to one at a time.
    fn last_presumed_sleeps(&self, pool: &Pool<H>) -> bool {
        let Some(id) = pool.presumed_last() else { return true };
        let slot = self.slot(id);
        if slot.absence() != Absence::Presumed {
            return true;
        }
        let thread = slot.thread.load(Ordering::Relaxed);
        slot.present_run().is_some()
            && matches!(self.host().activity(thread), Some(Activity::Sleeps { .. }) | None)
    }

    /// Runs `f`, an item that is presumed to sleep, as worker `id` of `pool`: the worker stops
    /// counting as running before the item begins.
    #[cold]
    pub(crate) fn run_presumed(
        &self,
        pool: &Pool<H>,
        (id, slot): (u32, &Slot<H>),
        pwq: &Pwq<H>,
        f: impl FnOnce(),
    ) {
        let host = self.host();
        let time = || (host.now(), host.cpu_time(slot.thread.load(Ordering::Relaxed)).unwrap_or(0));
        slot.presume_absence();
        pool.note_presumed(id);
        pool.block().settle(self);
        let (began, cpu_began) = time();
        pool.presumed_at.store(began, Ordering::Relaxed);
        f();
        let (ended, cpu_ended) = time();
        if slot.end_presumed() {
            pool.state.unblock();
        }
        let slept = was_sleep(ended.saturating_sub(began), cpu_ended.saturating_sub(cpu_began));
        pwq.note_sleep(slept);
        let until = ended.saturating_add(SUSPECT_NS);
        pool.suspect_until.store(until, Ordering::Relaxed);
    }
}

/// Whether sleeps are expected in this pool. Only the watcher calls this; it also clears an
/// expectation that has expired.
pub(super) fn is_suspect<H: Host>(pool: &Pool<H>, now: u64) -> bool {
    let until = pool.suspect_until.load(Ordering::Relaxed);
    if until != 0 && until <= now {
        pool.suspect_until.store(0, Ordering::Relaxed);
    }
    until > now
}

/// Updates the pool's usual sleep with one that is over.
pub(super) fn note_sleep<H: Host>(pool: &Pool<H>, slept_ns: u64) {
    let usual = pool.usual_sleep_ns.load(Ordering::Relaxed);
    pool.usual_sleep_ns.store(usual_sleep_ns(usual, slept_ns), Ordering::Relaxed);
}

/// Whether a worker has slept long enough to be replaced.
fn is_due<H: Host>(pool: &Pool<H>, since: Option<u64>, now: u64) -> bool {
    now.saturating_sub(since.unwrap_or(now)) >= patience_of(pool)
}

fn patience_of<H: Host>(pool: &Pool<H>) -> u64 {
    let usual = pool.usual_sleep_ns.load(Ordering::Relaxed);
    patience_ns(usual, pool.state.counts().idle > 0)
}
