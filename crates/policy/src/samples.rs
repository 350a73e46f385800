//! What the watcher does with the workers of a pool in which items wait: which of them it samples,
//! and what follows from a sample.
//!
//! Facts go in, a decision comes out. Facts are hints: each is read at another instant, and the run
//! that they belong to may end at any time. So a decision names no run. The engine applies it to the
//! run that it read the facts of, and to no other. `watch/README.md` of the engine has the protocol.

use crate::blocking::Tier;
use crate::scan::STUCK_NS;

/// In a pool that is not suspect, a worker is sampled once the watcher has known its run for this
/// long. Most runs are over by then.
pub const SAMPLE_AFTER_NS: u64 = STUCK_NS / 2;
/// The interval in which workers that were counted out are sampled. Until a returned worker is found,
/// its pool may run one worker above its target.
pub const RETURN_SAMPLES_NS: u64 = 1_000_000;

/// What a thread does, as the system sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It has a CPU, or waits for a CPU that another thread or process has.
    Runs,
    /// It waits for anything else.
    Sleeps {
        /// Since when, by the host's clock, if known.
        since: Option<u64>,
    },
    /// It was stopped by a debugger or a signal.
    Stopped,
}

/// A pool in which something waits, or whose workers may help a pool in which something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// How undeclared blocks are detected.
    pub tier: Tier,
    /// Whether a block was detected in the pool within the last second, and no standby detects the
    /// next block.
    pub suspect: bool,
    /// Whether a run of the pool was presumed to block lately.
    pub presumes: bool,
    /// How many of its workers run.
    pub running: u32,
    /// How many of them should run while an item waits.
    pub target: u32,
    /// How long ago its workers that were counted out were last sampled.
    pub since_returns_ns: u64,
}

/// How the workers of a pool are sampled in one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Sampling {
    /// Sample a run as soon as the watcher knows of it.
    pub at_once: bool,
    /// Record the context switches of the workers.
    pub record: bool,
    /// Keep records that exist already.
    pub keep_records: bool,
    /// Sample workers that were counted out, which may run again.
    pub returns: bool,
}

/// How to sample the workers of a pool in this scan; None if not at all.
///
/// Recording costs each switch of a thread some microseconds. So only suspect pools record, and
/// none where blocks are presumed: a presumed block needs no record.
#[must_use]
pub fn plan_pool(pool: PoolFacts) -> Option<Sampling> {
    let only_returns = pool.running < pool.target;
    let returns = pool.since_returns_ns >= RETURN_SAMPLES_NS;
    if pool.tier == Tier::Declared || (only_returns && !returns) {
        return None;
    }
    Some(Sampling {
        at_once: pool.suspect,
        record: pool.suspect && matches!(pool.tier, Tier::Standby | Tier::Events) && !pool.presumes,
        keep_records: !pool.presumes,
        returns,
    })
}

/// The state of a worker that is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It is in no run.
    BetweenRuns,
    /// It is in a run, and counts as running.
    Counted,
    /// It was found blocked in this run, and does not count.
    FoundBlocked,
    /// It was presumed to block before this run, and does not count.
    Presumed,
    /// It does not count for a reason that the worker itself ends, or the end of the run: a declared
    /// wait, a long computation.
    NotCounted,
}

/// A worker before its sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// Its state.
    pub state: WorkerState,
    /// Whether it is in a declared wait.
    pub waits: bool,
    /// For how long the watcher has known its run. Read for the states that need it: `Counted` and
    /// `Presumed`.
    pub known_ns: u64,
}

/// What to do about a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WorkerPlan {
    /// Nothing in this scan.
    Skip,
    /// Open its records now, so that they cover its next run from the beginning.
    Record,
    /// Sample it: it may have to be counted out.
    Sample,
    /// Sample it: it was counted out, and may run again.
    SampleAgain,
}

/// What to do about a worker in a pool that is sampled like this.
///
/// A run that is presumed to block gets as long to begin its block as a run in a pool that is not
/// suspect.
pub fn plan_worker(worker: WorkerFacts, sampling: Sampling) -> WorkerPlan {
    let is_known = worker.known_ns >= SAMPLE_AFTER_NS;
    let may_return = sampling.returns && !worker.waits;
    match worker.state {
        WorkerState::BetweenRuns if sampling.record => WorkerPlan::Record,
        WorkerState::Counted if sampling.at_once || is_known => WorkerPlan::Sample,
        WorkerState::FoundBlocked if may_return => WorkerPlan::SampleAgain,
        WorkerState::Presumed if is_known && may_return => WorkerPlan::SampleAgain,
        _ => WorkerPlan::Skip,
    }
}

/// The origin of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The records of the thread's switches: as of the last record. They show a stopped thread as
    /// asleep.
    Records,
    /// The system, at this instant.
    System,
}

/// The sample of a worker that counts as running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What its thread does.
    pub activity: Activity,
    /// The origin of that answer.
    pub source: Source,
    /// When the watcher first knew of the run.
    pub known_since: u64,
    /// The time of the scan.
    pub now: u64,
    /// How long a worker of this pool must sleep before it is counted out.
    pub patience_ns: u64,
}

/// What follows from a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The worker runs.
    Leave,
    /// It may have to be counted out, but its records alone do not prove that. Query the system, and
    /// judge [`Sample::confirmed`].
    Confirm,
    /// It sleeps. Sample it again at this time, when its patience ends.
    Wait {
        /// That time.
        until: u64,
    },
    /// It has slept for longer than its patience: count it out.
    CountOut {
        /// Since when it sleeps.
        since: u64,
    },
    /// It was stopped. It stays counted, and is reported ([`Stop`]).
    Stopped,
}

/// A record may be this much later than the scan that reads it, which takes the time first.
const FUTURE_NS: u64 = 1_000_000_000;

/// Judges a sample.
///
/// A sleep of unknown beginning began when the watcher first knew of the run, and so did one that began
/// in the future: the program has replaced the clock of the process (libfaketime), and not that of the
/// records. If records alone show a sleep of unknown beginning, the system is queried about it only if
/// patience is 0.
pub fn judge(sample: Sample) -> Verdict {
    let Sample { activity, source, known_since, now, patience_ns } = sample;
    let activity = match activity {
        Activity::Sleeps { since: Some(since) } if since > now.saturating_add(FUTURE_NS) => {
            Activity::Sleeps { since: None }
        }
        known => known,
    };
    let is_due = |since: u64| now.saturating_sub(since) >= patience_ns;
    match activity {
        Activity::Runs => Verdict::Leave,
        Activity::Stopped => Verdict::Stopped,
        Activity::Sleeps { since } if source == Source::Records && is_due(since.unwrap_or(now)) => {
            Verdict::Confirm
        }
        Activity::Sleeps { since } => match since.unwrap_or(known_since) {
            since if is_due(since) => Verdict::CountOut { since },
            since => Verdict::Wait { until: since.saturating_add(patience_ns) },
        },
    }
}

/// A worker that is stopped for less is not reported: a tracer stops a thread at each system call.
pub const STOPPED_NS: u64 = 100_000_000;

/// What is known of a run's stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// Since when each sample has found the worker stopped.
    since: Option<u64>,
    is_reported: bool,
}

impl Stop {
    /// Notes a sample of the run. True if the stop is to be reported: once, and only if it lasts.
    pub fn note(&mut self, is_stopped: bool, now: u64) -> bool {
        if !is_stopped {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_due = now.saturating_sub(since) >= STOPPED_NS && !self.is_reported;
        self.is_reported |= is_due;
        is_due
    }
}

impl Sample {
    /// The sample after the system was queried, at a patience that may have changed meanwhile. If
    /// the system sees the sleep too, or has no answer, the records hold: they know when the sleep
    /// began.
    #[must_use]
    pub fn confirmed(self, answer: Option<Activity>, patience_ns: u64) -> Sample {
        let activity = match answer {
            None | Some(Activity::Sleeps { .. }) => self.activity,
            Some(other) => other,
        };
        Sample { activity, source: Source::System, patience_ns, ..self }
    }
}

/// A pool in which a worker ended its item and may not begin another, because too many run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchFacts {
    /// How undeclared blocks are detected.
    pub tier: Tier,
    /// Whether blocks were expected when the watcher last checked.
    pub expects: bool,
    /// Whether an item is ready.
    pub ready: bool,
    /// How long a worker of this pool must sleep before it is counted out.
    pub patience_ns: u64,
}

/// Whether that worker searches for a blocked one before it parks. It does only where blocks usually
/// last long, so that patience is 0: a parking worker cannot wait out a patience.
#[must_use]
pub fn may_search(pool: SearchFacts) -> bool {
    pool.tier != Tier::Declared && pool.expects && pool.ready && pool.patience_ns == 0
}
