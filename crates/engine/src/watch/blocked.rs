//! Workers that sleep inside an item without having declared it.
//!
//! README.md in this folder has the protocol: which workers are sampled and when, why a worker is
//! counted out once and in once, and what may be missed. `uwork_policy::samples` decides. This file
//! reads the facts and applies the decisions.

use uwork_policy::blocking::{
    PresumedRun, Presumption, Tier, judge_presumed, trusts_presumption, was_block,
};
use uwork_policy::concurrency::may_start_another;
use uwork_policy::samples::{
    PoolFacts, Sample, Sampling, SearchFacts, Verdict, WorkerFacts, WorkerPlan, WorkerState, judge,
    may_search, plan_pool, plan_worker,
};
use uwork_policy::scan::SOON_NS;

use super::samples::{NO_RUN, Sampled, Samples};
use crate::engine::Engine;
use crate::pool::{NEVER, Pool, give_back};
use crate::queue::pwq::Pwq;
use crate::slot::{NotRunning, Slot};
use crate::words::host::{Activity, Host, Observer, Report, ThreadState};

/// How many workers `find_blocked_worker` queries at most.
const QUERIES_MAX: usize = 2;

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
        samples: &mut Samples<H::Observer>,
        now: u64,
    ) -> u64 {
        let Some(sampling) = plan_pool(self.sample_facts(engine, now)) else { return NEVER };
        if sampling.returns {
            self.blocking.note_returns(now);
        }
        let mut next = NEVER;
        for id in self.list_busy_workers(engine) {
            let thread = engine.slot(id).thread();
            if !sampling.keep_records {
                samples.stop_recording(id);
            }
            // A worker without a number has just begun or is about to end.
            if thread == 0 {
                continue;
            }
            let run = engine.slot(id).present_run();
            let worker = Sampled { id, thread, run: run.unwrap_or(NO_RUN) };
            let facts = self.worker_facts(engine, samples, worker, run.is_some());
            match plan_worker(facts, sampling) {
                WorkerPlan::Skip => {}
                WorkerPlan::Record => samples.want(engine.observer(), worker),
                WorkerPlan::SampleAgain => self.count_in_if_running(engine, samples, worker),
                WorkerPlan::Sample => {
                    next = next.min(self.sample_counted(engine, samples, worker, sampling, now));
                }
            }
        }
        next
    }

    fn sample_facts(&self, engine: &Engine<H>, now: u64) -> PoolFacts {
        PoolFacts {
            tier: engine.observer().tier(),
            suspect: self.blocking.expects_at(now)
                && (self.blocking.take_request() || !engine.standbys.serve(engine, self, now)),
            presumes: self.blocking.presumes_at(now),
            running: self.state.counts().running,
            target: self.target(),
            since_returns_ns: self.blocking.since_returns(now),
        }
    }

    /// The workers that are not parked.
    fn list_busy_workers(&self, engine: &Engine<H>) -> Vec<u32> {
        // Ids, without the lock: a sample is a system call.
        let workers = self.list_idle_and_busy(engine).into_iter();
        workers.filter(|&(_, idle)| !idle).map(|(id, _)| id).collect()
    }

    /// The state of a worker. The watcher gets to know of a run here, if the run counts or is
    /// presumed to block.
    fn worker_facts(
        &self,
        engine: &Engine<H>,
        samples: &mut Samples<H::Observer>,
        worker: Sampled,
        is_in_run: bool,
    ) -> WorkerFacts {
        let slot = engine.slot(worker.id);
        let state = match is_in_run {
            false => WorkerState::BetweenRuns,
            true => match slot.not_running() {
                NotRunning::No => WorkerState::Counted,
                NotRunning::FoundBlocked(_) => WorkerState::FoundBlocked,
                NotRunning::Presumed => WorkerState::Presumed,
                NotRunning::Declared | NotRunning::Hog => WorkerState::NotCounted,
            },
        };
        let is_timed = matches!(state, WorkerState::Counted | WorkerState::Presumed);
        let known_ns = if is_timed { samples.meet(worker) } else { 0 };
        WorkerFacts { state, waits: slot.waits(), known_ns }
    }

    /// Samples a worker that counts, and counts it out if it has slept for longer than its patience.
    /// Returns when to sample it again.
    fn sample_counted(
        &self,
        engine: &Engine<H>,
        samples: &mut Samples<H::Observer>,
        worker: Sampled,
        sampling: Sampling,
        now: u64,
    ) -> u64 {
        let observer = engine.observer();
        let known_since = samples.known_since(worker.id);
        let seen = samples.sample(observer, &self.blocking, worker, sampling.record);
        let Some((activity, source)) = seen else { return NEVER };
        let patience_ns = self.patience_ns();
        let mut sample = Sample { activity, source, known_since, now, patience_ns };
        let mut verdict = judge(sample);
        if verdict == Verdict::Confirm {
            // The records may be outdated, and they show a stopped thread as asleep.
            sample = sample.confirmed(samples.query(observer, worker), self.patience_ns());
            verdict = judge(sample);
        }
        if samples.note_stop(worker.id, verdict == Verdict::Stopped) {
            engine.caller().report(Report::WorkerStopped { thread: worker.thread });
        }
        match verdict {
            Verdict::CountOut { since } => {
                self.count_blocked_out(engine, worker.id, worker.run, since, now);
                // The replacement may block as well. Without standbys only a scan finds that.
                match engine.standbys.serve(engine, self, now) {
                    true => NEVER,
                    false => now.saturating_add(SOON_NS),
                }
            }
            Verdict::Wait { until } => {
                self.blocking.expect_more(now);
                until
            }
            Verdict::Stopped | Verdict::Leave | Verdict::Confirm => NEVER,
        }
    }

    fn count_blocked_out(
        &self,
        engine: &Engine<H>,
        id: u32,
        run: u64,
        since: u64,
        now: u64,
    ) -> bool {
        if engine.slot(id).waits_for_lock() {
            // It runs again as soon as another thread of the engine has done so; a replacement would
            // queue for the same lock.
            return false;
        }
        let slot = engine.slot(id);
        let pwq = slot.batch.get().0.and_then(|pwq| engine.pwqs.get(pwq));
        let func = slot.running().map(|running| running.func);
        // The next run of such a function leaves the count by itself.
        let is_presumed =
            pwq.zip(func).and_then(|(pwq, func)| pwq.block_scores.presumed(func)).is_some();
        if !is_presumed {
            self.blocking.expect_more(now);
        }
        count_out(engine, id, run, NotRunning::FoundBlocked(since)).is_some()
    }

    /// Samples a worker that was found asleep, and counts it in if it runs again.
    fn count_in_if_running(
        &self,
        engine: &Engine<H>,
        samples: &mut Samples<H::Observer>,
        worker: Sampled,
    ) {
        let activity = samples.sample_again(engine.observer(), &self.blocking, worker);
        if activity != Some(Activity::Runs) {
            return;
        }
        let Sampled { id, run, .. } = worker;
        let now = engine.host().now();
        let mut remote = engine.slot(id).lock_remote(engine.host());
        let Some(was) = remote.mark_running_again(run) else { return };
        // The function of this run, which does not end meanwhile.
        let func = engine.slot(id).running().map(|running| running.func);
        // Count it under the same hold of the mutex as the mark. The run may end now, and its
        // worker must not park before the count includes it.
        home_of(engine, id).count_again(was, now);
        drop(remote);
        if was == NotRunning::Presumed
            && let Some(pwq) = engine.slot(id).batch.get().0.and_then(|pwq| engine.pwqs.get(pwq))
            && let Some(func) = func
        {
            // The worker notes its own measurement at the end of the run. With this one that makes two
            // runs that computed, which ends the presumption.
            pwq.block_scores.note(func, false);
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

    /// Whether a worker of this pool that may not continue searches for a blocked one.
    pub(crate) fn may_find_blocked(&self, engine: &Engine<H>) -> bool {
        may_search(SearchFacts {
            tier: engine.observer().tier(),
            expects: self.blocking.expects_any(),
            ready: self.looks_ready(),
            patience_ns: self.patience_ns(),
        })
    }

    /// Called by a worker that may not continue because too many others of its pool run, while work
    /// is ready: one of them may sleep. Returns true if one did, and the caller may take work.
    #[cold]
    pub(crate) fn find_blocked_worker(&self, engine: &Engine<H>, caller: u32) -> bool {
        if !self.may_find_blocked(engine) {
            return false;
        }
        let mut queries = 0;
        for id in self.recent().filter(|&id| id != caller) {
            let slot = engine.slot(id);
            let thread = slot.thread();
            let Some(run) = slot.present_run().filter(|_| thread != 0) else { continue };
            let left = slot.home() != self.id;
            if left || slot.not_running() != NotRunning::No {
                continue;
            }
            if queries == QUERIES_MAX {
                return false;
            }
            queries += 1;
            if let Some(Activity::Sleeps { since }) = engine.observer().activity(thread) {
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

    /// Called by a parked worker that a standby has woken: counts out the workers of this pool that
    /// took an item last and are blocked. Without patience: the wake of the caller, which is most of
    /// the cost of a replacement, is spent.
    #[cold]
    pub(crate) fn examine(&self, engine: &Engine<H>) {
        for id in self.recent() {
            let slot = engine.slot(id);
            let thread = slot.thread();
            let Some(run) = slot.present_run().filter(|_| thread != 0) else { continue };
            if slot.home() != self.id || slot.not_running() != NotRunning::No {
                continue;
            }
            if let Some(Activity::Sleeps { since }) = engine.observer().activity(thread) {
                let now = engine.host().now();
                self.count_blocked_out(engine, id, run, since.unwrap_or(now), now);
            }
        }
    }

    /// How long a worker of this pool must sleep before it is counted out.
    fn patience_ns(&self) -> u64 {
        self.blocking.patience_ns(self.state.counts().idle > 0)
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
        remote.mark_not_running(run, why).then(|| {
            let pool = home_of(engine, id);
            (slot.running().map(|running| running.func), pool, pool.block())
        })
    })?;
    slot.end_batch_hint(engine);
    engine.note_replaced(slot);
    changed.settle(engine);
    if why == NotRunning::Hog {
        slot.let_hog_leave(engine, pool, run);
    }
    if pool.spec().shares && !pool.looks_ready() {
        pool.kick_for_neighbours(engine);
    }
    Some(function)
}

impl<H: Host> Pool<H> {
    /// Whether a worker of this pool presumes for some items of this pwq that they block.
    #[inline]
    pub(crate) fn presumes_any(&self, engine: &Engine<H>, pwq: &Pwq<H>) -> bool {
        pwq.block_scores.any() && !self.spec().single && engine.observer().tier() != Tier::Declared
    }

    /// Whether the next run of this function, of an item of such a pwq, is presumed to block.
    #[cold]
    pub(crate) fn presumes_block(&self, engine: &Engine<H>, pwq: &Pwq<H>, func: usize) -> bool {
        let Some(score) = pwq.block_scores.presumed(func) else { return false };
        if trusts_presumption(score, self.blocking.unverified()) {
            self.blocking.note_unverified();
            return true;
        }
        let now = engine.host().now();
        let verdict = judge_presumed(self.presumed_run(engine, now));
        match verdict {
            Presumption::Verified => self.blocking.note_verified(),
            Presumption::Undecided => self.blocking.note_unverified(),
            // This run is not presumed. If it blocks, it must be found.
            Presumption::Refuted => self.blocking.expect_more(now),
        }
        verdict != Presumption::Refuted
    }

    /// The run of this pool that was last presumed to block. Hints: it may end, and another begin,
    /// between the reads.
    fn presumed_run(&self, engine: &Engine<H>, now: u64) -> PresumedRun {
        let (since_ns, unverified) =
            (self.blocking.since_presumed(now), self.blocking.unverified());
        let sleeps = PresumedRun { sleeps: true, since_ns, cpu_ns: 0, unverified };
        let Some((id, cpu_began)) = self.blocking.presumed_last() else { return sleeps };
        let (slot, observer) = (engine.slot(id), engine.observer());
        if slot.not_running() != NotRunning::Presumed {
            return sleeps;
        }
        let is_in_run = slot.present_run().is_some();
        match observer.activity(slot.thread()) {
            Some(Activity::Sleeps { .. }) | None if is_in_run => sleeps,
            _ => {
                let cpu_ns = observer.cpu_time(slot.thread()).unwrap_or(u64::MAX);
                PresumedRun { sleeps: false, cpu_ns: cpu_ns.saturating_sub(cpu_began), ..sleeps }
            }
        }
    }

    /// Calls `f`, which runs an item that is presumed to block, as worker `id` of this pool in the run
    /// of that item: the worker stops counting as running before, and gives back the items that are
    /// scheduled behind. Also where the item panics, it counts again afterwards.
    #[cold]
    pub(crate) fn run_presumed_to_block(
        &self,
        engine: &Engine<H>,
        (id, slot): (u32, &Slot<H>),
        pwq: &Pwq<H>,
        f: impl FnOnce(),
    ) {
        let Some(behind) = slot.presume_block() else { return f() };
        engine.note_replaced(slot);
        slot.end_batch_hint(engine);
        // First give the items back, then settle: see `begin_wait`.
        give_back(engine, behind);
        let (began, cpu_began) = times(engine, slot);
        // Before the replacement is woken, which looks at it.
        self.blocking.note_presumed(id, began, cpu_began);
        self.block().settle(engine);
        let func = slot.last_function();
        let thread = engine.caller().thread;
        let forks = thread.forks();
        let _presumed =
            Presumed { engine, pool: self, slot, pwq, func, began, cpu_began, thread, forks };
        f();
    }
}

/// A run that is presumed to block. It ends when this is dropped.
struct Presumed<'a, H: Host> {
    engine: &'a Engine<H>,
    pool: &'a Pool<H>,
    slot: &'a Slot<H>,
    pwq: &'a Pwq<H>,
    func: usize,
    began: u64,
    cpu_began: u64,
    thread: &'a ThreadState,
    forks: u32,
}

impl<H: Host> Drop for Presumed<'_, H> {
    fn drop(&mut self) {
        if self.thread.forks() != self.forks {
            // The item forked and returned in the child, where no worker counts.
            return;
        }
        let (ended, cpu_ended) = times(self.engine, self.slot);
        self.slot.end_presumed_block(|| self.pool.state.unblock());
        let wall_ns = ended.saturating_sub(self.began);
        let slept = was_block(wall_ns, cpu_ended.saturating_sub(self.cpu_began));
        self.pwq.block_scores.note(self.func, slept);
        self.pool.blocking.note_presumed_end(slept);
    }
}

/// The time, and the CPU time of the owner of a slot, who calls this.
fn times<H: Host>(engine: &Engine<H>, slot: &Slot<H>) -> (u64, u64) {
    (engine.host().now(), engine.observer().cpu_time(slot.thread()).unwrap_or(0))
}
