//! What the threads of one shard share: the jobs that are held, and the outcomes to be committed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::counters::Tally;
use crate::handler::{Failure, Handlers, Reply};
use crate::job::{Entry, EntryId, Job, Ticket};
use crate::keys::Keys;
use crate::policy::{self, Window};
use crate::report::{Faults, Reporter};
use crate::safety::Findings;

/// The place of a job: the number of its stream in the link, and its entry.
pub(crate) type Place = (usize, EntryId);

/// An outcome that the server does not know yet.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) place: Place,
    /// The id of the job, for its result.
    pub(crate) id: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) end: End,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    Done(Reply),
    Failed(Failure),
    HandBack,
    /// Another consumer owns the entry: it is forgotten here.
    Lost,
}

/// A job that is held.
struct Held {
    ticket: Arc<Ticket>,
    id: Option<String>,
    attempt: u32,
}

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
    sealed: AtomicBool,
    window: Mutex<Window>,
    total: Mutex<usize>,
    room: Condvar,
    /// Runs that go on although their attempts were decided. Below zero if such a run returns before
    /// it is counted, or after a stop.
    hung: AtomicIsize,
    /// It was reported that such runs have all permits.
    stuck: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        handlers: Handlers,
        queue: uwork::Queue,
        consumer: String,
        reporter: Reporter,
    ) -> Shared {
        let window = Window::new(config.payload_bytes_max);
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
            window: Mutex::new(window),
            total: Mutex::new(0),
            room: Condvar::new(),
            hung: AtomicIsize::new(0),
            stuck: AtomicBool::new(false),
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

    /// The number of jobs that may be fetched, after a wait of at most `limit` for one.
    pub(crate) fn wait_for_room(&self, limit: Duration) -> usize {
        let window = lock(&self.window).clone();
        let is_full =
            |total: &mut usize| !window.reads_at(*total, self.permits()) && !self.is_stopping();
        let waited = self.room.wait_timeout_while(lock(&self.total), limit, is_full);
        let (total, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() { 0 } else { self.size().saturating_sub(*total) }
    }

    pub(crate) fn room_now(&self) -> usize {
        let total = *lock(&self.total);
        self.size().saturating_sub(total)
    }

    /// The number of jobs of dead consumers that may be taken over. Up to as many as can run at once
    /// go beyond the window, and the reader waits until they are within it: the reader fills each
    /// place that becomes free at once, so orphans would find none while there is a backlog.
    pub(crate) fn room_for_orphans(&self) -> usize {
        let total = *lock(&self.total);
        let size = self.size();
        (size + size.min(self.permits())).saturating_sub(total)
    }

    fn size(&self) -> usize {
        lock(&self.window).size(self.permits())
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

    fn has_returned(&self) {
        self.hung.fetch_sub(1, Ordering::Relaxed);
        self.stuck.store(false, Ordering::Relaxed);
        // Under the lock, so that the reader does not miss it between its check and its wait.
        drop(lock(&self.total));
        self.room.notify_all();
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

    pub(crate) fn has_read(&self, largest_payload: usize) {
        lock(&self.window).read(largest_payload);
    }

    pub(crate) fn has_ended(&self, jobs: usize, within: Duration) {
        lock(&self.window).ended(jobs, within);
    }

    pub(crate) fn linger(&self) -> Duration {
        lock(&self.window).linger()
    }

    fn add(&self, jobs: usize) {
        *lock(&self.total) += jobs;
    }

    fn remove(&self, jobs: usize) {
        *lock(&self.total) -= jobs;
        self.room.notify_all();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One shard: its streams, what is held of them, and what is to be committed.
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) streams: Vec<(Arc<str>, Keys)>,
    held: Mutex<HashMap<Place, Held>>,
    outcomes: Mutex<Vec<Outcome>>,
    arrived: Condvar,
    /// A reply that delivers entries may have been lost: the reader looks for them.
    orphans: AtomicBool,
    /// The committer ends when it has committed everything.
    closing: AtomicBool,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, streams: &[String]) -> Arc<Link> {
        let streams = streams.iter().map(|name| (Arc::from(name.as_str()), Keys::of(name)));
        Arc::new(Link {
            shared,
            streams: streams.collect(),
            held: Mutex::default(),
            outcomes: Mutex::default(),
            arrived: Condvar::new(),
            orphans: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        })
    }

    /// Takes entries that the server has delivered to this consumer, and queues their jobs. Entries
    /// that are held already are skipped.
    pub(crate) fn admit(self: &Arc<Self>, stream: usize, entries: Vec<Entry>) {
        let largest =
            entries.iter().filter_map(|entry| entry.fields.payload.as_ref()).map(Vec::len);
        self.shared.has_read(largest.max().unwrap_or(0));
        let mut jobs = Vec::with_capacity(entries.len());
        {
            let mut held = lock(&self.held);
            if self.shared.sealed.load(Ordering::Relaxed) {
                return;
            }
            for entry in entries {
                let place = (stream, entry.id);
                let attempt = entry.fields.attempts.saturating_add(entry.deliveries);
                let std::collections::hash_map::Entry::Vacant(vacant) = held.entry(place) else {
                    continue;
                };
                let ticket = Ticket::new();
                let id = entry.fields.id.clone();
                vacant.insert(Held { ticket: ticket.clone(), id, attempt });
                jobs.push((place, attempt, ticket, entry.fields));
            }
            // Before another thread can decide and release them: the count would fall below zero.
            self.shared.add(jobs.len());
        }
        for (place, attempt, ticket, fields) in jobs {
            let fail = |attempt, failure| {
                if ticket.settle() {
                    let id = fields.id.clone();
                    self.deliver(Outcome { place, id, attempt, end: End::Failed(failure) });
                }
            };
            if policy::is_spent(attempt, self.shared.config.attempts_max) {
                let before = fields.last_error.as_deref().unwrap_or("none was recorded");
                let text = "its consumer died or was cut off in each attempt; the last error:";
                // This attempt is not made.
                fail(attempt - 1, Failure::dead(format!("{text} {before}")));
                continue;
            }
            let Some(payload) = fields.payload else {
                fail(attempt, Failure::dead("the entry has no field \"p\", the payload"));
                continue;
            };
            let job = Job {
                stream: self.streams[stream].0.clone(),
                entry: place.1,
                payload,
                handler: fields.handler,
                id: fields.id,
                key: fields.key,
                attempt,
                last_error: fields.last_error,
                limit: self.shared.config.limit,
                ticket,
            };
            let run = Run { link: self.clone(), place, job: Some(job) };
            drop(self.shared.queue.spawn(move || run.run()));
        }
    }

    /// Adds an outcome for the committer.
    pub(crate) fn deliver(&self, outcome: Outcome) {
        let mut outcomes = lock(&self.outcomes);
        outcomes.push(outcome);
        if outcomes.len() == 1 {
            drop(outcomes);
            self.arrived.notify_one();
        }
    }

    /// Waits for outcomes until a time, and takes them all.
    pub(crate) fn take_outcomes(&self, until: Instant) -> Vec<Outcome> {
        let limit = until.saturating_duration_since(Instant::now());
        let outcomes = lock(&self.outcomes);
        let nothing = |outcomes: &mut Vec<Outcome>| outcomes.is_empty() && !self.is_closing();
        let waited = self.arrived.wait_timeout_while(outcomes, limit, nothing);
        let (mut outcomes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *outcomes)
    }

    /// Forgets jobs whose outcomes the server knows.
    pub(crate) fn release(&self, places: impl IntoIterator<Item = Place>) {
        let mut removed = 0;
        {
            let mut held = lock(&self.held);
            places
                .into_iter()
                .for_each(|place| removed += usize::from(held.remove(&place).is_some()));
        }
        self.shared.remove(removed);
    }

    pub(crate) fn is_held(&self, place: &Place) -> bool {
        lock(&self.held).contains_key(place)
    }

    /// The entries of a stream that are held.
    pub(crate) fn held_of(&self, stream: usize) -> HashSet<EntryId> {
        let held = lock(&self.held);
        held.keys().filter(|(of, _)| *of == stream).map(|(_, id)| *id).collect()
    }

    /// Decides attempts from outside: those that `choose` picks by their tickets.
    pub(crate) fn settle(&self, choose: impl Fn(&Ticket) -> bool, end: impl Fn() -> End) -> usize {
        let chosen: Vec<Outcome> = lock(&self.held)
            .iter()
            .filter(|(_, held)| choose(&held.ticket))
            .map(|(place, held)| {
                let id = held.id.clone();
                Outcome { place: *place, id, attempt: held.attempt, end: end() }
            })
            .collect();
        let count = chosen.len();
        chosen.into_iter().for_each(|outcome| self.deliver(outcome));
        count
    }

    /// Decides the attempt of an entry that another consumer owns now.
    pub(crate) fn lose(&self, place: Place) {
        let held = lock(&self.held);
        let Some(found) = held.get(&place) else { return };
        // A run that has begun goes on, and its outcome finds the entry gone or in other hands.
        let is_unstarted = found.ticket.settle_unstarted();
        let attempt = found.attempt;
        drop(held);
        if is_unstarted {
            self.deliver(Outcome { place, id: None, attempt, end: End::Lost });
        }
    }

    pub(crate) fn seek_orphans(&self) {
        self.orphans.store(true, Ordering::Relaxed);
    }

    pub(crate) fn must_seek_orphans(&self) -> bool {
        self.orphans.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        // Under the lock, so that the committer does not miss it between its check and its wait.
        let outcomes = lock(&self.outcomes);
        self.closing.store(true, Ordering::Relaxed);
        drop(outcomes);
        self.arrived.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

/// A queued job. Dropped without a run, as in a shutdown of the process, it is handed back.
struct Run {
    link: Arc<Link>,
    place: Place,
    job: Option<Job>,
}

impl Run {
    fn run(mut self) {
        let Some(job) = self.job.take() else { return };
        if !job.ticket.begin() {
            return;
        }
        let result = self.link.shared.handlers.run(&job);
        if job.ticket.settle() {
            let end = result.map_or_else(End::Failed, End::Done);
            let Job { id, attempt, .. } = job;
            self.link.deliver(Outcome { place: self.place, id, attempt, end });
        } else {
            self.link.shared.has_returned();
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(job) = self.job.take() else { return };
        if job.ticket.settle_unstarted() {
            let (id, attempt) = (job.id, job.attempt);
            self.link.deliver(Outcome { place: self.place, id, attempt, end: End::HandBack });
        }
    }
}
