//! The watcher's samples of workers, kept from one scan to the next. `uwork_policy::samples` decides
//! which samples are taken, and what follows from them.

use std::collections::HashMap;

use uwork_policy::samples::{Source, Stop};

use crate::pool::BlockingState;
use crate::words::host::{Activity, Observer, ThreadSample};

/// The most threads whose context switches are recorded at once: each costs the system two locked
/// pages and a file.
const RECORDED_MAX: usize = 64;
/// How many sleepers' states one scan queries at most.
const SAMPLES_PER_SCAN: u32 = 4;
/// After a refusal by the system, no recording is tried for this long.
const REFUSED_NS: u64 = 5_000_000;

/// A number that no run has.
pub(super) const NO_RUN: u64 = u64::MAX;

/// A worker that one scan found: its slot, its thread, and its run, or [`NO_RUN`].
#[derive(Clone, Copy)]
pub(super) struct Sampled {
    pub(super) id: u32,
    pub(super) thread: u64,
    pub(super) run: u64,
}

/// What the watcher keeps of one worker.
struct Kept<O: Observer> {
    /// Its thread.
    thread: u64,
    /// The run that it was in, and when the watcher first knew of that run.
    run: u64,
    known_since: u64,
    /// Whether it was stopped in this run.
    stop: Stop,
    records: Option<O::Records>,
    /// Whether the watcher, after this scan, sleeps until this thread falls asleep or wakes.
    wanted: bool,
}

/// All samples, by slot.
pub(super) struct Samples<O: Observer> {
    by_slot: HashMap<u32, Kept<O>>,
    recorded: usize,
    /// How many sleepers of this scan need a query, and the index of the first of them that gets
    /// it. The others get theirs in later scans.
    not_queried: u32,
    queried_from: u32,
    refused_until: u64,
    /// Whether records of a counted worker have shown a sleep since [`Samples::take_slept`].
    has_slept: bool,
    now: u64,
}

impl<O: Observer> Samples<O> {
    pub(super) fn new() -> Samples<O> {
        Samples {
            by_slot: HashMap::new(),
            recorded: 0,
            not_queried: 0,
            queried_from: 0,
            refused_until: 0,
            has_slept: false,
            now: 0,
        }
    }

    /// Begins a new scan.
    pub(super) fn begin(&mut self, now: u64) {
        self.now = now;
        // Sleepers that were not queried in the last scan come next; after the last of them the
        // first again.
        self.queried_from += SAMPLES_PER_SCAN;
        if self.queried_from >= self.not_queried {
            self.queried_from = 0;
        }
        self.not_queried = 0;
        for kept in self.by_slot.values_mut() {
            kept.wanted = false;
        }
    }

    /// Whether records have shown a counted worker that sleeps, or has slept, since the last call.
    pub(super) fn take_slept(&mut self) -> bool {
        std::mem::take(&mut self.has_slept)
    }

    /// Drops all samples, and closes all records.
    pub(super) fn clear(&mut self) {
        self.by_slot.clear();
        self.recorded = 0;
    }

    /// Whether any switches are recorded.
    pub(super) fn records_any(&self) -> bool {
        self.recorded > 0
    }

    /// Notes that a worker is in this run at the time of the scan. Returns for how long the watcher
    /// has known of the run.
    pub(super) fn meet(&mut self, Sampled { id, thread, run }: Sampled) -> u64 {
        let now = self.now;
        let fresh = || Kept {
            thread,
            run,
            known_since: now,
            stop: Stop::default(),
            records: None,
            wanted: false,
        };
        let kept = self.by_slot.entry(id).or_insert_with(fresh);
        if kept.thread != thread {
            // The slot has a new owner.
            self.recorded -= usize::from(kept.records.is_some());
            *kept = fresh();
        } else if kept.run != run {
            (kept.run, kept.known_since, kept.stop) = (run, now, Stop::default());
        }
        now.saturating_sub(kept.known_since)
    }

    /// When the watcher first knew of the present run of a worker that was met in this scan.
    pub(super) fn known_since(&self, id: u32) -> u64 {
        self.by_slot.get(&id).map_or(self.now, |kept| kept.known_since)
    }

    /// Samples a worker that was met. With `record` its switches are recorded from here on.
    pub(super) fn sample(
        &mut self,
        observer: &O,
        blocking: &BlockingState,
        worker: Sampled,
        record: bool,
    ) -> Option<(Activity, Source)> {
        let kept = self.by_slot.get_mut(&worker.id)?;
        let mut activity = None;
        if let Some(records) = &mut kept.records {
            let sample = observer.sample(records);
            self.has_slept |= shows_sleep(sample);
            learn(blocking, kept.known_since, sample);
            kept.wanted = record;
            activity = sample.activity;
        }
        if let Some(activity) = activity {
            return Some((activity, Source::Records));
        }
        activity = self.query(observer, worker);
        // A worker that sleeps already needs no records: it is replaced now, and not sampled for a
        // while.
        if record && activity == Some(Activity::Runs) && self.record(observer, worker.id) {
            // It may have gone to sleep before its switches were recorded.
            activity = self.query(observer, worker);
        }
        activity.map(|activity| (activity, Source::System))
    }

    /// Queries the system for a worker's state.
    pub(super) fn query(&self, observer: &O, worker: Sampled) -> Option<Activity> {
        let kept = self.by_slot.get(&worker.id).filter(|kept| kept.thread == worker.thread);
        match kept.and_then(|kept| kept.records.as_ref()) {
            Some(records) => observer.activity_of(records, worker.thread),
            None => observer.activity(worker.thread),
        }
    }

    /// Starts to record a worker's switches, unless they are recorded or the limit is reached. True
    /// if it did.
    fn record(&mut self, observer: &O, id: u32) -> bool {
        let Some(kept) = self.by_slot.get_mut(&id) else { return false };
        let allowed = self.recorded < RECORDED_MAX && self.refused_until <= self.now;
        if kept.records.is_some() || !allowed {
            return false;
        }
        kept.records = observer.record(kept.thread);
        kept.wanted = kept.records.is_some();
        match kept.records {
            Some(_) => self.recorded += 1,
            None => self.refused_until = self.now.saturating_add(REFUSED_NS),
        }
        kept.wanted
    }

    /// Samples a worker that was found asleep. Without records, only some workers are queried in
    /// each scan, in turn.
    pub(super) fn sample_again(
        &mut self,
        observer: &O,
        blocking: &BlockingState,
        worker: Sampled,
    ) -> Option<Activity> {
        if let Some(kept) = self.by_slot.get_mut(&worker.id)
            && kept.thread == worker.thread
            && let Some(records) = &mut kept.records
        {
            let sample = observer.sample(records);
            learn(blocking, kept.known_since, sample);
            if sample.activity.is_some() {
                return sample.activity;
            }
        }
        let turn = self.not_queried;
        self.not_queried += 1;
        let queried = self.queried_from..self.queried_from + SAMPLES_PER_SCAN;
        queried.contains(&turn).then(|| self.query(observer, worker)).flatten()
    }

    /// Ends the recording of a worker's switches.
    pub(super) fn stop_recording(&mut self, id: u32) {
        if let Some(kept) = self.by_slot.get_mut(&id)
            && kept.records.take().is_some()
        {
            self.recorded -= 1;
        }
    }

    /// For a worker that is awake and between two runs: records its switches, and lets the watcher
    /// sleep on them.
    pub(super) fn want(&mut self, observer: &O, worker: Sampled) {
        self.meet(worker);
        if !self.record(observer, worker.id)
            && let Some(kept) = self.by_slot.get_mut(&worker.id)
        {
            kept.wanted = kept.records.is_some();
        }
    }

    /// Notes whether a worker was found stopped. True if that is to be reported.
    pub(super) fn note_stop(&mut self, id: u32, is_stopped: bool) -> bool {
        let now = self.now;
        self.by_slot.get_mut(&id).is_some_and(|kept| kept.stop.note(is_stopped, now))
    }

    /// The records that the watcher sleeps on.
    pub(super) fn wanted(&self) -> Vec<&O::Records> {
        let wanted = self.by_slot.values().filter(|kept| kept.wanted);
        wanted.filter_map(|kept| kept.records.as_ref()).collect()
    }

    /// Drops the samples of slots whose run the watcher has known since before `time`, and does not
    /// sleep on.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.by_slot.retain(|_, kept| kept.known_since >= time || kept.wanted);
        self.recorded = self.by_slot.values().filter(|kept| kept.records.is_some()).count();
    }
}

/// A lost record may be that of a sleep. A thread that has not switched since its recording began has no
/// record, and has not slept.
fn shows_sleep(sample: ThreadSample) -> bool {
    let is_off_cpu = sample.activity.is_some_and(|activity| activity != Activity::Runs);
    is_off_cpu || sample.slept.is_some() || sample.lost
}

/// Learns from a sleep inside the run. A sleep that began before the watcher knew of the run is the
/// worker's own parking.
fn learn(blocking: &BlockingState, known_since: u64, sample: ThreadSample) {
    if let Some((_, slept_ns)) = sample.slept.filter(|&(began, _)| began >= known_since) {
        blocking.note_block(slept_ns);
    }
}
