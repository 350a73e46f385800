//! What the threads of one shard share: the jobs that are held, and the outcomes to be committed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::outcome::{End, Outcome, Twice};
use super::run::Waiting;
use super::shared::{Shared, lock};
use crate::job::{EntryId, Ticket};
use crate::keys::Keys;
use crate::policy::Deliveries;
use crate::safety::Refusal;

/// The place of a job: the number of its stream in the link, and its entry.
pub(crate) type Place = (usize, EntryId);

/// The reason of a burial of which SPARE makes the job ready again.
pub(super) const DIED: &str = "its consumer died each time";

/// Retries of groups that do not exist, of which a consumer knows.
const UNCLAIMED_MAX: usize = 10_000;

/// A job that has begun here, or may be recorded as if it had, and that another consumer has taken over.
pub(super) struct Lost {
    pub(super) place: Place,
    /// The entry of which it is a retry, or its own.
    pub(super) first: String,
}

/// A job that is held.
pub(super) struct Held {
    pub(super) ticket: Arc<Ticket>,
    pub(super) id: Option<String>,
    pub(super) attempt: u32,
    /// The server's counter when it was delivered.
    pub(super) of: Deliveries,
    /// The entry of which it is a retry.
    pub(super) first: Option<String>,
    /// Another consumer owns the entry.
    pub(super) is_lost: bool,
    /// The memory that is counted for it beside the payload, and for its result.
    pub(super) bytes: usize,
}

/// One shard: its streams, what is held of them, and what is to be committed.
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) streams: Vec<(Arc<str>, Keys)>,
    pub(super) held: Mutex<HashMap<Place, Held>>,
    /// Entries whose fields are on their way: they are held by nothing yet, and need heartbeats.
    arriving: Mutex<HashSet<Place>>,
    /// Retries of groups that do not exist any more. This consumer runs them when it gets them again.
    unclaimed: Mutex<HashSet<Place>>,
    outcomes: Mutex<Vec<Outcome>>,
    /// Jobs whose begin is to be recorded. Changed under the lock of the outcomes or by the committer.
    waiting: Mutex<Vec<Waiting>>,
    arrived: Condvar,
    /// A reply that delivers entries may have been lost: the reader looks for them.
    orphans: AtomicBool,
    /// The committer looks for orphans before the reader fills a place.
    orphans_first: AtomicBool,
    pub(crate) refusal: Refusal,
    /// The committer ends when it has committed everything, or at this time.
    closing: OnceLock<Instant>,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, streams: &[String]) -> Arc<Link> {
        let streams = streams.iter().map(|name| (Arc::from(name.as_str()), Keys::of(name)));
        Arc::new(Link {
            shared,
            streams: streams.collect(),
            held: Mutex::default(),
            arriving: Mutex::default(),
            unclaimed: Mutex::default(),
            outcomes: Mutex::default(),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            orphans: AtomicBool::new(false),
            orphans_first: AtomicBool::new(false),
            refusal: Refusal::default(),
            closing: OnceLock::new(),
        })
    }

    /// Adds runs whose begin is to be recorded.
    pub(crate) fn wait(&self, jobs: impl IntoIterator<Item = Waiting>) {
        // Under the lock, so that the committer does not miss it between its check and its wait.
        let outcomes = lock(&self.outcomes);
        lock(&self.waiting).extend(jobs);
        drop(outcomes);
        self.arrived.notify_one();
    }

    /// Takes the runs that wait for the record of their begin.
    pub(crate) fn take_waiting(&self) -> Vec<Waiting> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// The runs of a stream of which the server does not know.
    pub(crate) fn unrecorded(&self, stream: usize) -> Vec<Place> {
        let held = lock(&self.held);
        let runs = held.iter().filter(|((of, _), held)| {
            *of == stream && !held.ticket.is_recorded() && held.ticket.running_ms().is_some()
        });
        runs.map(|(place, _)| *place).collect()
    }

    /// Notes that the server knows of runs.
    pub(crate) fn recorded(&self, places: &[Place]) {
        let held = lock(&self.held);
        places.iter().filter_map(|place| held.get(place)).for_each(|held| held.ticket.record());
    }

    /// The server's counter of an entry when it was delivered.
    pub(crate) fn delivered(&self, place: &Place) -> Deliveries {
        lock(&self.held).get(place).map(|held| held.of).unwrap_or_default()
    }

    /// The attempt of a job that is held.
    pub(crate) fn attempt(&self, place: &Place) -> Option<u32> {
        lock(&self.held).get(place).map(|held| held.attempt)
    }

    /// The earlier runs of a job were no attempts: their consumers live.
    pub(crate) fn spare(&self, place: &Place) {
        if let Some(held) = lock(&self.held).get_mut(place) {
            held.attempt = held.attempt.saturating_sub(std::mem::take(&mut held.of.begun)).max(1);
        }
    }

    /// Hands a job back, if it has not begun.
    pub(crate) fn hand_back(&self, place: Place) {
        self.settle_of(|of| *of == place, |ticket| ticket.settle_unstarted(), || End::HandBack);
    }

    /// Hands back what has not begun, except one job.
    pub(crate) fn hand_back_all_but(&self, kept: Option<Place>) {
        let is_other = |place: &Place| Some(*place) != kept;
        self.settle_of(is_other, |ticket| ticket.settle_unstarted(), || End::HandBack);
    }

    /// Notes a retry whose group does not exist.
    pub(crate) fn run_when_delivered(&self, place: Place) {
        let mut unclaimed = lock(&self.unclaimed);
        if unclaimed.len() >= UNCLAIMED_MAX {
            // Other consumers have taken most of them.
            unclaimed.clear();
        }
        unclaimed.insert(place);
    }

    /// Whether a retry of another group runs here, once.
    pub(crate) fn must_run(&self, place: &Place) -> bool {
        lock(&self.unclaimed).remove(place)
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
        let nothing = |outcomes: &mut Vec<Outcome>| {
            outcomes.is_empty() && !self.is_closing() && lock(&self.waiting).is_empty()
        };
        let waited = self.arrived.wait_timeout_while(outcomes, limit, nothing);
        let (mut outcomes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *outcomes)
    }

    /// Forgets jobs whose outcomes the server knows.
    pub(crate) fn release(&self, places: impl IntoIterator<Item = Place>) {
        let (mut removed, mut bytes) = (0, 0);
        {
            let mut held = lock(&self.held);
            for job in places.into_iter().filter_map(|place| held.remove(&place)) {
                removed += 1;
                bytes += job.bytes;
            }
        }
        self.shared.memory.give(bytes);
        self.shared.remove(removed);
    }

    /// Counts the result of a job, which exists already, until the job is released.
    pub(super) fn keep(&self, place: &Place, bytes: usize) {
        if bytes > 0
            && let Some(held) = lock(&self.held).get_mut(place)
        {
            held.bytes += bytes;
            self.shared.memory.add(bytes);
        }
        self.shared.has_result(bytes);
    }

    pub(crate) fn is_held(&self, place: &Place) -> bool {
        lock(&self.held).contains_key(place)
    }

    /// The entries of a stream that are held.
    pub(crate) fn held_of(&self, stream: usize) -> HashSet<EntryId> {
        let held = lock(&self.held);
        held.keys().filter(|(of, _)| *of == stream).map(|(_, id)| *id).collect()
    }

    /// An entry of this consumer begins to arrive.
    pub(super) fn begin_arrival(&self, place: Place) {
        lock(&self.arriving).insert(place);
    }

    /// Entries have arrived, and are held where that is wanted, or will never.
    pub(super) fn end_arrivals(&self, places: impl Iterator<Item = Place>) {
        let mut arriving = lock(&self.arriving);
        places.for_each(|place| _ = arriving.remove(&place));
    }

    /// The entries of a stream that need heartbeats: those that arrive, and those that are held.
    pub(super) fn alive_of(&self, stream: usize) -> HashSet<EntryId> {
        // In this order: an entry is held before it ends to arrive.
        let arriving: Vec<Place> = lock(&self.arriving).iter().copied().collect();
        let mut alive = self.held_of(stream);
        alive.extend(arriving.into_iter().filter(|(of, _)| *of == stream).map(|(_, id)| id));
        alive
    }

    /// Decides attempts from outside: those that `choose` picks by their tickets.
    pub(crate) fn settle(&self, choose: impl Fn(&Ticket) -> bool, end: impl Fn() -> End) -> usize {
        self.settle_of(|_| true, choose, end)
    }

    fn settle_of(
        &self,
        is_one: impl Fn(&Place) -> bool,
        choose: impl Fn(&Ticket) -> bool,
        end: impl Fn() -> End,
    ) -> usize {
        let chosen: Vec<Outcome> = lock(&self.held)
            .iter()
            .filter(|(place, held)| is_one(place) && choose(&held.ticket))
            .map(|(place, held)| {
                let (id, twice) = (held.id.clone(), Twice::IfMissing);
                Outcome { place: *place, id, attempt: held.attempt, twice, end: end() }
            })
            .collect();
        let count = chosen.len();
        chosen.into_iter().for_each(|outcome| self.deliver(outcome));
        count
    }

    /// Decides the attempt of an entry that another consumer owns now. Returns it with its first entry
    /// if this is news, and the server may count its run here as an attempt.
    pub(crate) fn lose(&self, place: Place) -> Option<Lost> {
        let mut held = lock(&self.held);
        let found = held.get_mut(&place)?;
        let is_news = !std::mem::replace(&mut found.is_lost, true) && found.ticket.may_count();
        let first = found.first.clone().unwrap_or_else(|| place.1.to_string());
        // A run that has begun goes on, and its outcome finds the entry gone or in other hands.
        let is_unstarted = found.ticket.settle_unstarted();
        let attempt = found.attempt;
        drop(held);
        if is_unstarted {
            let twice = Twice::IfMissing;
            self.deliver(Outcome { place, id: None, attempt, twice, end: End::Lost });
        }
        is_news.then_some(Lost { place, first })
    }

    /// After a fault: the next connection may lead to a server that forgets jobs.
    pub(crate) fn doubt(&self) {
        if self.shared.config.strict {
            self.refusal.doubt();
        }
    }

    pub(crate) fn seek_orphans(&self) {
        self.orphans.store(true, Ordering::Relaxed);
    }

    pub(crate) fn must_seek_orphans(&self) -> bool {
        self.orphans.swap(false, Ordering::Relaxed)
    }

    pub(super) fn orphans_first(&self) -> bool {
        self.orphans_first.load(Ordering::Relaxed)
    }

    pub(super) fn set_orphans_first(&self, is_on: bool) {
        self.orphans_first.store(is_on, Ordering::Relaxed);
        if !is_on {
            self.shared.wake_readers();
        }
    }

    /// Ends the committer, at this time at the latest. Only the first call counts.
    pub(crate) fn close(&self, ends_by: Instant) {
        // Under the lock, so that the committer does not miss it between its check and its wait.
        let outcomes = lock(&self.outcomes);
        self.closing.get_or_init(|| ends_by);
        drop(outcomes);
        self.arrived.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.ends_by().is_some()
    }

    /// When the committer ends, if it does.
    pub(crate) fn ends_by(&self) -> Option<Instant> {
        self.closing.get().copied()
    }
}
