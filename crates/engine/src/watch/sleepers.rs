//! Workers that sleep inside an item and did not say so.
//!
//! README.md in this folder has the protocol: who is looked at and when, why a worker is counted out once
//! and in once, and what may be missed.

use uwork_policy::blocking::{Tier, patience_ns, usual_sleep_ns, was_sleep};
use uwork_policy::concurrency::may_keep_working;

use super::sightings::{Sightings, Source};
use crate::engine::Engine;
use crate::host::{Activity, Host, Report};
use crate::pool::{NEVER, Pool};
use crate::pwq::Pwq;
use crate::slot::{Absence, Slot};
use crate::sync::Ordering;

/// How long a pool is looked at more closely after a sleep.
const SUSPECT_NS: u64 = 1_000_000_000;
/// Until the next look after a worker was found asleep: its replacement may sleep as well.
pub(super) const SOON_NS: u64 = 50_000;
/// For how long a run must have been met before its worker is looked at, in a pool that is not suspect.
const MET_NS: u64 = super::STUCK_NS / 2;
/// How often workers that come back are looked for where there is room for more.
const RETURNS_NS: u64 = 1_000_000;
/// For how long after a presumed sleep others are expected to follow.
const PRESUMES_NS: u64 = 10_000_000;
/// Workers that one worker without leave to go on looks at.
const UNCOVER_MAX: usize = 2;

impl<H: Host> Engine<H> {
    /// Looks at the workers of a pool in which something waits. When to look again at the latest.
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
            // It can bring somebody up as it is. Who came back unseen is looked after less often.
            let seen_at = pool.seen_at.load(Ordering::Relaxed);
            if now.saturating_sub(seen_at) < RETURNS_NS {
                return NEVER;
            }
        }
        pool.seen_at.store(now, Ordering::Relaxed);
        // Records cost each switch of the thread some microseconds: not where sleeps are presumed anyway.
        let presumes = now.saturating_sub(pool.presumed_at.load(Ordering::Relaxed)) < PRESUMES_NS;
        let observe = suspect && tier == Tier::Events && !presumes;
        let mut workers = Vec::with_capacity(pool.state.counts().workers as usize + 1);
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
                if observe && thread != 0 {
                    sightings.want(self.host(), id, thread);
                }
                continue;
            };
            match slot.absence() {
                Absence::Asleep(_) => {
                    self.look_after_sleeper(pool, sightings, (id, thread, run));
                    continue;
                }
                Absence::Presumed => {
                    // It gets the time in which it would have been found asleep, had it not been presumed.
                    let met = sightings.meet(id, thread, run, now);
                    if now.saturating_sub(met) >= MET_NS {
                        self.look_after_sleeper(pool, sightings, (id, thread, run));
                    }
                    continue;
                }
                Absence::Declared | Absence::Hog => continue,
                Absence::No => {}
            }
            let met = sightings.meet(id, thread, run, now);
            if !suspect && now.saturating_sub(met) < MET_NS {
                continue;
            }
            let seen = match sightings.look(self.host(), pool, id, observe) {
                // What the records say may be over; and they say the same of a thread that was stopped.
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
                    next = next.min(self.weigh_sleep(pool, sleeper, since, now));
                }
                Some(Activity::Stopped) if sightings.note_stop(id) => {
                    self.report(Report::WorkerStopped { thread });
                }
                _ => {}
            }
        }
        next
    }

    /// A worker has slept since then. When to look at it again.
    fn weigh_sleep(&self, pool: &Pool<H>, (id, run): (u32, u64), since: u64, now: u64) -> u64 {
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

    /// Looks whether a worker that was found asleep is back.
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
        // With the mark: the run may end, and its worker must not lie down before it counts.
        self.count_again(self.home_of(id), was, now);
        drop(remote);
        if was == Absence::Presumed
            && let Some(pwq) = self.slot(id).batch.get().0.and_then(|pwq| self.pwqs().get(pwq))
        {
            // What is measured at the end of the run comes on top: that is the end of the presumption.
            pwq.note_sleep(false);
        }
        // Whoever is at work wants the CPUs to be looked at.
        self.be_seen(0);
    }

    /// The pool of a worker in a run that does not end meanwhile. It may not be the one on whose list the
    /// worker was found: it may have moved since.
    fn home_of(&self, id: u32) -> &Pool<H> {
        self.pool(self.slot(id).home.load(Ordering::Relaxed))
    }

    /// Takes a worker off the running count for the rest of its run, gives back what is lined up behind
    /// it, and lets somebody stand in. `None` if the run is over or the worker does not count anyway;
    /// else the function that runs, unless it has just ended.
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

    /// A worker of `pool` that did not count for this reason is back, or its run has ended.
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

    /// For a worker that may not go on as too many others of its pool run, while work is ready: one of them
    /// may sleep. True if one did, and the caller may look again.
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
    /// Whether the one item of this pwq that a worker of `pool` has taken is presumed to sleep.
    #[inline]
    pub(crate) fn presumes_sleep(&self, pool: &Pool<H>, pwq: &Pwq<H>) -> bool {
        pwq.presumes_sleep()
            && !pool.spec().single
            && self.host().tier() != Tier::Declared
            && self.last_presumed_sleeps(pool)
    }

    /// Whether the run that was presumed to sleep last in this pool does, or is over. So no more than one is
    /// taken on trust at a time.
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

    /// Runs `f`, an item that is presumed to sleep, as worker `id` of `pool`: from its beginning the worker
    /// does not count as running.
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

/// Whether sleeps are expected here. Asked by the watch, which takes the expectation back when it is old.
pub(super) fn is_suspect<H: Host>(pool: &Pool<H>, now: u64) -> bool {
    let until = pool.suspect_until.load(Ordering::Relaxed);
    if until != 0 && until <= now {
        pool.suspect_until.store(0, Ordering::Relaxed);
    }
    until > now
}

/// Learns from a sleep that is over.
pub(super) fn note_sleep<H: Host>(pool: &Pool<H>, slept_ns: u64) {
    let usual = pool.usual_sleep_ns.load(Ordering::Relaxed);
    pool.usual_sleep_ns.store(usual_sleep_ns(usual, slept_ns), Ordering::Relaxed);
}

/// Whether a worker has slept for long enough for somebody to stand in.
fn is_due<H: Host>(pool: &Pool<H>, since: Option<u64>, now: u64) -> bool {
    now.saturating_sub(since.unwrap_or(now)) >= patience_of(pool)
}

fn patience_of<H: Host>(pool: &Pool<H>) -> u64 {
    let usual = pool.usual_sleep_ns.load(Ordering::Relaxed);
    patience_ns(usual, pool.state.counts().idle > 0)
}
