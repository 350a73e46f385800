//! Workers that sleep inside an item without having declared it.
//!
//! README.md in this folder has the protocol: which workers are sampled and when, why a worker is
//! counted out once and in once, and what may be missed.

use uwork_policy::blocking::{Tier, was_block};
use uwork_policy::concurrency::may_start_another;

use super::samples::{Samples, Source};
use crate::engine::Engine;
use crate::host::{Activity, Host, Report};
use crate::pool::{NEVER, Pool};
use crate::queue::pwq::Pwq;
use crate::slot::{NotRunning, Slot};

/// The next scan after a worker was found asleep comes this soon: its replacement may sleep as
/// well.
pub(super) const SOON_NS: u64 = 50_000;
/// In a pool that is not suspect, a worker is sampled once it has been in the same run for this
/// long.
const MET_NS: u64 = super::STUCK_NS / 2;
/// Interval of scans for sleepers that run again, while the pool runs fewer workers than its
/// target.
const RETURNS_NS: u64 = 1_000_000;
/// How many workers `find_blocked_worker` queries at most.
const UNCOVER_MAX: usize = 2;

impl<H: Host> Pool<H> {
    /// Samples the workers of a pool in which something waits, and counts sleepers out and in.
    /// Returns when to sample them again at the latest.
    ///
    /// The scan works on hints. `present_run`, `not_running` and the sample belong to different
    /// instants, and the run may end between any two of them. That is harmless: `count_out` and
    /// `mark_running_again` carry the run number, check it under the slot's mutex, and do nothing if that
    /// run is over.
    pub(super) fn find_blocked_workers(
        &self,
        engine: &Engine<H>,
        samples: &mut Samples<H>,
        now: u64,
    ) -> u64 {
        let tier = engine.host().tier();
        if tier == Tier::Declared {
            return NEVER;
        }
        let suspect = self.blocking.expects_at(now);
        if self.state.counts().running < self.target() {
            // The pool can wake a worker by its own rule, so no sleeper holds anything up. Sleepers
            // that run again must still be counted, but less often.
            if self.blocking.since_samples(now) < RETURNS_NS {
                return NEVER;
            }
        }
        self.blocking.note_samples(now);
        // Recording costs each switch of the thread some microseconds. Presumed sleeps need no
        // records.
        let presumes = self.blocking.presumes_at(now);
        let observe = suspect && tier == Tier::Events && !presumes;
        // Allocate before the lock is taken, with room for a worker that is created meanwhile.
        let mut workers = Vec::with_capacity(self.state.counts().workers as usize + 1);
        // Copy the ids and release the lock: a sample is a system call.
        let inner = self.lock();
        let up = |&&id: &&u32| !inner.idle.has(engine.slot(id));
        workers.extend(inner.workers.iter().filter(up).copied());
        drop(inner);
        let mut next = NEVER;
        for id in workers {
            let slot = engine.slot(id);
            let thread = slot.thread();
            if presumes {
                samples.stop_recording(id);
            }
            let Some(run) = slot.present_run().filter(|_| thread != 0) else {
                // It is between two runs. Open its records now, so that they cover its next run from
                // the beginning.
                if observe && thread != 0 {
                    samples.want(engine.host(), id, thread);
                }
                continue;
            };
            match slot.not_running() {
                // Already counted out: the only question is whether it runs again.
                NotRunning::FoundBlocked(_) => {
                    self.recheck_sleeper(engine, samples, (id, thread, run));
                    continue;
                }
                NotRunning::Presumed => {
                    // A run that is not presumed would be found asleep only after MET_NS. Grant
                    // this one the same time to fall asleep.
                    let met = samples.meet(id, thread, run, now);
                    if now.saturating_sub(met) >= MET_NS {
                        self.recheck_sleeper(engine, samples, (id, thread, run));
                    }
                    continue;
                }
                // The worker itself, or the end of the run, ends these.
                NotRunning::Declared | NotRunning::Hog => continue,
                NotRunning::No => {}
            }
            let met = samples.meet(id, thread, run, now);
            if !suspect && now.saturating_sub(met) < MET_NS {
                continue;
            }
            let seen = match samples.look(engine.host(), self, id, observe) {
                // The records may be outdated, and they show a stopped thread as asleep. So query
                // the system before the worker is counted out.
                Some((Activity::Sleeps { since }, Source::Records)) if is_due(self, since, now) => {
                    match samples.ask(engine.host(), id, thread) {
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
                    next = next.min(self.judge_sleep(engine, sleeper, since, now));
                }
                Some(Activity::Stopped) if samples.note_stop(id) => {
                    engine.caller().report(Report::WorkerStopped { thread });
                }
                _ => {}
            }
        }
        next
    }

    /// Judges a worker that has slept since `since`: counts it out, or returns when its patience
    /// ends. Returns when to sample it again.
    fn judge_sleep(&self, engine: &Engine<H>, (id, run): (u32, u64), since: u64, now: u64) -> u64 {
        if is_due(self, Some(since), now) {
            self.count_blocked_out(engine, id, run, since, now);
            return now.saturating_add(SOON_NS);
        }
        self.blocking.expect_more(now);
        since.saturating_add(patience_of(self))
    }

    fn count_blocked_out(
        &self,
        engine: &Engine<H>,
        id: u32,
        run: u64,
        since: u64,
        now: u64,
    ) -> bool {
        self.blocking.expect_more(now);
        count_out(engine, id, run, NotRunning::FoundBlocked(since)).is_some()
    }

    /// Checks whether a worker that was found asleep runs again, and if so counts it in.
    fn recheck_sleeper(
        &self,
        engine: &Engine<H>,
        samples: &mut Samples<H>,
        (id, thread, run): (u32, u64, u64),
    ) {
        if engine.slot(id).waits() {
            return;
        }
        let activity = samples.sample_again(engine.host(), self, id, thread);
        if activity != Some(Activity::Runs) {
            return;
        }
        let now = engine.host().now();
        let mut remote = engine.slot(id).lock_remote(engine.host());
        let Some(was) = remote.mark_running_again(run) else { return };
        // Count it under the same hold of the mutex as the mark. The run may end now, and its
        // worker must not park before the count includes it.
        home_of(engine, id).count_again(was, now);
        drop(remote);
        if was == NotRunning::Presumed
            && let Some(pwq) = engine.slot(id).batch.get().0.and_then(|pwq| engine.pwqs.get(pwq))
        {
            // `run_presumed_to_block` notes its own measurement at the end of the run. With this one that
            // makes two runs that computed, which ends the presumption.
            pwq.note_block(false);
        }
        // A worker that runs items must have the CPUs checked (`changes`).
        engine.watch.heartbeat(engine, 0);
    }

    /// Counts a worker of this pool again: it did not count for reason `was`, and runs again or has
    /// ended its run.
    pub(crate) fn count_again(&self, was: NotRunning, now: u64) {
        match was {
            NotRunning::No | NotRunning::Declared => return,
            NotRunning::Hog | NotRunning::Presumed => {}
            NotRunning::FoundBlocked(since) => self.blocking.note_block(now.saturating_sub(since)),
        }
        self.state.unblock();
    }

    /// Whether there is a reason to look for a sleeper in this pool.
    pub(crate) fn may_find_blocked(&self, engine: &Engine<H>) -> bool {
        engine.host().tier() != Tier::Declared
            && self.blocking.expects_any()
            && self.looks_ready()
            && patience_of(self) == 0
    }

    /// Called by a worker that may not continue because too many others of its pool run, while work
    /// is ready: one of them may sleep. Returns true if one did, and the caller may take work.
    #[cold]
    pub(crate) fn find_blocked_worker(&self, engine: &Engine<H>, caller: u32) -> bool {
        if !self.may_find_blocked(engine) {
            return false;
        }
        let mut looks = 0;
        for id in self.recent().filter(|&id| id != caller) {
            let slot = engine.slot(id);
            let thread = slot.thread();
            let Some(run) = slot.present_run().filter(|_| thread != 0) else { continue };
            let left = slot.home() != self.id;
            if left || slot.not_running() != NotRunning::No {
                continue;
            }
            if looks == UNCOVER_MAX {
                return false;
            }
            looks += 1;
            if let Some(Activity::Sleeps { since }) = engine.host().activity(thread) {
                let now = engine.host().now();
                if self.count_blocked_out(engine, id, run, since.unwrap_or(now), now)
                    && may_start_another(self.state.counts(), self.target())
                {
                    return true;
                }
            }
        }
        false
    }
}

/// The pool of a worker in a run that does not end meanwhile. The worker may have moved since
/// it was found on another pool's list.
fn home_of<H: Host>(engine: &Engine<H>, id: u32) -> &Pool<H> {
    engine.pool(engine.slot(id).home())
}

/// Takes a worker off the running count for the rest of its run, gives back the items scheduled
/// behind it, and settles its pool, which may wake a replacement. Returns `None` if the run is
/// over or the worker does not count anyway; else the function that runs, unless it has just
/// ended.
pub(super) fn count_out<H: Host>(
    engine: &Engine<H>,
    id: u32,
    run: u64,
    why: NotRunning,
) -> Option<Option<usize>> {
    let slot = engine.slot(id);
    let (function, pool, changed) = slot.take_back(engine, |remote| {
        remote.mark_not_running(engine.host(), run, why).then(|| {
            let pool = home_of(engine, id);
            (slot.running().map(|running| running.func), pool, pool.block())
        })
    })?;
    slot.end_batch_hint(engine);
    changed.settle(engine);
    if pool.spec().shares && !pool.looks_ready() {
        pool.kick_for_neighbours(engine);
    }
    Some(function)
}

impl<H: Host> Pool<H> {
    /// Whether the single item that a worker of this pool took from this pwq is presumed to sleep.
    #[inline]
    pub(crate) fn presumes_block(&self, engine: &Engine<H>, pwq: &Pwq<H>) -> bool {
        pwq.presumes_block()
            && !self.spec().single
            && engine.host().tier() != Tier::Declared
            && self.last_presumed_sleeps(engine)
    }

    /// Whether the run of this pool that was last presumed to sleep does sleep, or is over. This
    /// limits unverified presumptions to one at a time.
    fn last_presumed_sleeps(&self, engine: &Engine<H>) -> bool {
        let Some(id) = self.blocking.presumed_last() else { return true };
        let slot = engine.slot(id);
        if slot.not_running() != NotRunning::Presumed {
            return true;
        }
        let thread = slot.thread();
        slot.present_run().is_some()
            && matches!(engine.host().activity(thread), Some(Activity::Sleeps { .. }) | None)
    }

    /// Runs `f`, an item that is presumed to sleep, as worker `id` of this pool: the worker stops
    /// counting as running before the item begins.
    #[cold]
    pub(crate) fn run_presumed_to_block(
        &self,
        engine: &Engine<H>,
        (id, slot): (u32, &Slot<H>),
        pwq: &Pwq<H>,
        f: impl FnOnce(),
    ) {
        let host = engine.host();
        let time = || (host.now(), host.cpu_time(slot.thread()).unwrap_or(0));
        slot.presume_block();
        self.blocking.note_presumed(id);
        self.block().settle(engine);
        let (began, cpu_began) = time();
        self.blocking.note_presumed_at(began);
        f();
        let (ended, cpu_ended) = time();
        if slot.end_presumed_block() {
            self.state.unblock();
        }
        let slept = was_block(ended.saturating_sub(began), cpu_ended.saturating_sub(cpu_began));
        pwq.note_block(slept);
        self.blocking.expect_more(ended);
    }
}

/// Whether a worker has slept long enough to be replaced.
fn is_due<H: Host>(pool: &Pool<H>, since: Option<u64>, now: u64) -> bool {
    now.saturating_sub(since.unwrap_or(now)) >= patience_of(pool)
}

fn patience_of<H: Host>(pool: &Pool<H>) -> u64 {
    pool.blocking.patience_ns(pool.state.counts().idle > 0)
}
