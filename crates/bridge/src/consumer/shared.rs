//! What the threads of all shards share: the settings, the queue, and how many jobs may be fetched.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::failures::Failures;
use super::link::Link;
use super::memory::Memory;
use super::pause::Pause;
use crate::config::Config;
use crate::counters::Tally;
use crate::handler::Handlers;
use crate::job::Ticket;
use crate::policy::Window;
use crate::report::{Faults, Reporter};
use crate::safety::Findings;
use crate::scripts::ms;

/// A job that has waited for a permit for longer goes to other consumers.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);

/// What all links of a consumer share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) handlers: Handlers,
    pub(crate) queue: uwork::Queue,
    /// The name on the server.
    pub(crate) consumer: String,
    pub(crate) tally: Tally,
    pub(crate) reporter: Reporter,
    pub(crate) faults: Faults,
    pub(crate) findings: Findings,
    /// The readers end; nothing new is fetched.
    stopping: AtomicBool,
    /// Entries that still arrive are left to other consumers. Set before the last jobs are settled
    /// under the lock of their table, and read under it.
    pub(super) sealed: AtomicBool,
    pub(super) window: Mutex<Window>,
    pub(crate) memory: Memory,
    pub(super) total: Mutex<usize>,
    pub(super) room: Condvar,
    /// All links, for those whose committers wait for a place.
    links: Mutex<Vec<Weak<Link>>>,
    /// The links that wait for a place for an orphan, in the order of their arrival. Locked last.
    line: Mutex<Vec<usize>>,
    /// Runs that go on although their attempts were decided. Below zero if such a run returns before
    /// it is counted, or after a stop.
    hung: AtomicIsize,
    /// It was reported that such runs have all permits.
    stuck: AtomicBool,
    /// A job has waited for its permit for [`WAIT_MAX`], and no run has been shorter since.
    slow: AtomicBool,
    /// A job runs alone, or waits until the others have ended: nothing is fetched.
    alone: AtomicBool,
    /// Recent runs have results, or had some.
    pub(super) has_results: AtomicBool,
    /// Whether jobs can run.
    pub(crate) pause: Pause,
    pub(super) failures: Mutex<Failures>,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        handlers: Handlers,
        queue: uwork::Queue,
        consumer: String,
        reporter: Reporter,
    ) -> Shared {
        let memory = Memory::new(config.payload_bytes_max);
        Shared {
            config,
            handlers,
            queue,
            consumer,
            tally: Tally::default(),
            faults: Faults::new(reporter.clone()),
            reporter,
            findings: Findings::default(),
            stopping: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            window: Mutex::default(),
            memory,
            total: Mutex::new(0),
            room: Condvar::new(),
            links: Mutex::default(),
            line: Mutex::default(),
            hung: AtomicIsize::new(0),
            stuck: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            has_results: AtomicBool::new(false),
            pause: Pause::default(),
            failures: Mutex::default(),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.room.notify_all();
    }

    /// Admits no entry from now on.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// The number of jobs to fetch for.
    pub(super) fn places(&self) -> usize {
        if self.is_alone() { 0 } else { self.permits() }
    }

    /// A job runs alone, or will.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Whether a job could run alone, once the others have ended. Runs that hang may never end.
    pub(crate) fn may_run_alone(&self) -> bool {
        !self.is_alone() && !self.hangs() && !self.pause.is_on()
    }

    /// Begins to run a job alone. False if another one is.
    #[must_use]
    pub(crate) fn begin_alone(&self) -> bool {
        !self.alone.swap(true, Ordering::Relaxed)
    }

    /// Ends it: jobs are fetched again.
    pub(crate) fn end_alone(&self) {
        self.alone.store(false, Ordering::Relaxed);
        self.wake_readers();
    }

    pub(super) fn add_link(&self, link: &Arc<Link>) {
        lock(&self.links).push(Arc::downgrade(link));
    }

    /// Lets the readers look again whether there is room.
    pub(crate) fn wake_readers(&self) {
        // Under the lock, so that none misses it between its check and its wait.
        drop(lock(&self.total));
        self.has_room();
    }

    /// A link waits for a place for an orphan, behind those that wait already.
    pub(super) fn stand_in_line(&self, link: &Link) {
        let mut line = lock(&self.line);
        if !line.contains(&link.number()) {
            line.push(link.number());
        }
    }

    /// A link has looked for orphans, or cannot.
    pub(super) fn leave_line(&self, link: &Link) {
        let mut line = lock(&self.line);
        let before = line.len();
        line.retain(|&number| number != link.number());
        let has_left = line.len() < before;
        drop(line);
        if has_left {
            self.wake_readers();
        }
    }

    /// How many free places are kept for other links than this one.
    pub(super) fn kept_from(&self, link: &Link) -> usize {
        lock(&self.line).iter().take_while(|&&number| number != link.number()).count()
    }

    /// There may be room. Where orphans go first, the reader leaves it to the committer, which would
    /// look for them only now and then: a reader of another shard would be faster each time.
    fn has_room(&self) {
        self.room.notify_all();
        for link in lock(&self.links).iter().filter_map(Weak::upgrade) {
            if link.orphans_first() {
                link.look_for_orphans();
            }
        }
    }

    /// The number of jobs that can run at once: those of the queue without the runs that hang.
    pub(crate) fn permits(&self) -> usize {
        let hung = usize::try_from(self.hung.load(Ordering::Relaxed)).unwrap_or(0);
        (self.queue.max_active() as usize).saturating_sub(hung)
    }

    /// Counts runs whose attempts were decided without them.
    pub(crate) fn has_hung(&self, runs: usize) {
        self.hung.fetch_add(runs.cast_signed(), Ordering::Relaxed);
    }

    /// Reports once that the runs that hang have all permits.
    pub(crate) fn report_stuck(&self) {
        if !self.stuck.swap(true, Ordering::Relaxed) {
            let count = self.queue.max_active();
            self.reporter.say(&format!(
                "{}: all {count} permits belong to runs beyond their time limit; no job is fetched \
                 until such a run returns",
                self.consumer
            ));
        }
    }

    pub(crate) fn has_returned(&self) {
        self.hung.fetch_sub(1, Ordering::Relaxed);
        self.stuck.store(false, Ordering::Relaxed);
        self.wake_readers();
    }

    /// Whether runs last so long that no job is fetched ahead of them.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    pub(super) fn begin_slow(&self) {
        self.slow.store(true, Ordering::Relaxed);
    }

    /// A run ends.
    pub(super) fn has_run(&self, ticket: &Ticket) {
        if self.is_slow() && ticket.running_ms().is_some_and(|run_ms| run_ms < ms(WAIT_MAX)) {
            self.slow.store(false, Ordering::Relaxed);
            self.wake_readers();
        }
    }

    /// Whether runs go on although their attempts were decided.
    pub(crate) fn hangs(&self) -> bool {
        self.hung.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn held(&self) -> usize {
        *lock(&self.total)
    }

    /// Waits until nothing is held. False if the limit is over first.
    pub(crate) fn wait_until_empty(&self, limit: Duration) -> bool {
        let holds = |total: &mut usize| *total > 0;
        let waited = self.room.wait_timeout_while(lock(&self.total), limit, holds);
        let (total, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *total == 0
    }

    pub(super) fn add(&self, jobs: usize) {
        *lock(&self.total) += jobs;
    }

    pub(super) fn remove(&self, jobs: usize) {
        *lock(&self.total) -= jobs;
        self.has_room();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
