//! What the threads of one shard share: the jobs that are held, and the outcomes to be committed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::outcome::{End, Outcome, Twice};
use super::run::Waiting;
use super::shared::{Shared, lock};
use crate::connection::Ends;
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
    /// There may be a place for one. Set under the lock of the outcomes.
    must_look: AtomicBool,
    pub(crate) refusal: Refusal,
    /// When the reader ends, whatever arrives.
    pub(super) reading: Ends,
    /// The committer ends when it has committed everything, or at this time.
    pub(super) closing: Ends,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, streams: &[String]) -> Arc<Link> {
        let streams = streams.iter().map(|name| (Arc::from(name.as_str()), Keys::of(name)));
        let link = Arc::new(Link {
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
            must_look: AtomicBool::new(false),
            refusal: Refusal::default(),
            reading: Ends::default(),
            closing: Ends::default(),
        });
        link.shared.add_link(&link);
        link
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

    /// Notes that the server may know of runs.
    pub(crate) fn lose_answer(&self, places: &[Place]) {
        let held = lock(&self.held);
        places
            .iter()
            .filter_map(|place| held.get(place))
            .for_each(|held| held.ticket.lose_answer());
    }

    /// The server's counter of an entry when it was delivered.
    pub(crate) fn delivered(&self, place: &Place) -> Deliveries {
        lock(&self.held).get(place).map(|held| held.of).unwrap_or_default()
    }

    /// The entry of which a job that is held is a retry, or its own.
    pub(super) fn first(&self, place: &Place) -> String {
        let held = lock(&self.held);
        let first = held.get(place).and_then(|held| held.first.clone());
        first.unwrap_or_else(|| place.1.to_string())
    }

    /// Of jobs that are held, those that are retries, and their first entries.
    pub(super) fn retries(&self, places: &[Place]) -> Vec<(EntryId, String)> {
        let held = lock(&self.held);
        let of = |place: &Place| Some((place.1, held.get(place)?.first.clone()?));
        places.iter().filter_map(of).collect()
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

    /// Waits for outcomes, or another reason to go on, until a time, and takes them all.
    pub(crate) fn take_outcomes(&self, until: Instant) -> Vec<Outcome> {
        let limit = until.saturating_duration_since(Instant::now());
        let outcomes = lock(&self.outcomes);
        let nothing = |outcomes: &mut Vec<Outcome>| {
            let is_idle = outcomes.is_empty() && lock(&self.waiting).is_empty();
            is_idle && !self.is_closing() && !self.must_look.load(Ordering::Relaxed)
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

    /// Whether the attempt of a job that is held is decided.
    pub(super) fn is_settled(&self, place: &Place) -> bool {
        lock(&self.held).get(place).is_some_and(|held| held.ticket.is_settled())
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
        let chosen: Vec<(Arc<Ticket>, Outcome)> = lock(&self.held)
            .iter()
            .filter(|(place, held)| is_one(place) && choose(&held.ticket))
            .map(|(place, held)| {
                let (id, twice) = (held.id.clone(), Twice::IfMissing);
                let attempt = held.attempt;
                let outcome = Outcome { place: *place, id, attempt, twice, end: end() };
                (held.ticket.clone(), outcome)
            })
            .collect();
        let count = chosen.len();
        // First of all: another consumer may start the job as soon as the server knows the outcome.
        let refused = chosen.iter().filter(|(ticket, _)| ticket.kill_group()).count();
        if refused > 0 {
            self.shared.reporter.say(&format!(
                "{refused} command(s) that ended here run on: they are another user's and cannot be killed"
            ));
        }
        chosen.into_iter().for_each(|(_, outcome)| self.deliver(outcome));
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
            self.shared.leave_line(self);
            self.shared.wake_readers();
        }
    }

    /// Tells it from the other links of the consumer.
    pub(super) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Wakes the committer: there may be a place for an orphan.
    pub(super) fn look_for_orphans(&self) {
        // Under the lock, so that the committer does not miss it between its check and its wait.
        let outcomes = lock(&self.outcomes);
        self.must_look.store(true, Ordering::Relaxed);
        drop(outcomes);
        self.arrived.notify_one();
    }

    /// Whether there may be a place for an orphan that goes first. To be called after each wait.
    pub(super) fn must_look(&self) -> bool {
        self.must_look.swap(false, Ordering::Relaxed) && self.orphans_first()
    }

    /// Ends the committer, at this time at the latest. Only the first call counts.
    pub(crate) fn close(&self, ends_by: Instant) {
        // Under the lock, so that the committer does not miss it between its check and its wait.
        let outcomes = lock(&self.outcomes);
        self.closing.set(ends_by);
        drop(outcomes);
        self.arrived.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.at().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::process::Pid;

    use super::*;
    use crate::config::Config;
    use crate::handler::Handlers;
    use crate::report::Reporter;
    use crate::server::Server;

    fn link() -> Arc<Link> {
        let config = Config::new(Server::new("redis://127.0.0.1:1").unwrap(), "jobs");
        let name = format!("link-{:x}", fastrand::u64(..));
        let queue = uwork::Queue::builder(name).build().unwrap();
        let reporter = Reporter::new(|_| {});
        let shared = Shared::new(config, Handlers::new(), queue, "me".to_owned(), reporter);
        Link::new(Arc::new(shared), &["jobs".to_owned()])
    }

    fn held(ticket: Arc<Ticket>) -> Held {
        Held {
            ticket,
            id: None,
            attempt: 1,
            of: Deliveries::default(),
            first: None,
            is_lost: false,
            bytes: 0,
        }
    }

    // Catches: a job that is handed back while its command still runs.
    #[test]
    fn the_command_of_a_job_is_killed_before_its_outcome_is_delivered() {
        let link = link();
        let ticket = Ticket::new();
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        assert!(ticket.begin());
        ticket.begin_group(Pid::from_child(&child));
        lock(&link.held).insert((0, EntryId(7, 0)), held(ticket));
        let committer = link.clone();
        let thread = std::thread::spawn(move || {
            let far = Instant::now() + Duration::from_secs(3_600);
            let outcomes = committer.take_outcomes(far);
            // A command that was not killed ends without an error now.
            drop(child.stdin.take());
            (outcomes.len(), child.wait().unwrap().signal())
        });
        assert_eq!(link.settle(Ticket::settle, || End::HandBack), 1);
        assert_eq!(thread.join().unwrap(), (1, Some(9)));
    }

    #[test]
    fn a_command_that_begins_after_its_job_was_decided_is_killed() {
        let ticket = Ticket::new();
        assert!(ticket.begin() && ticket.settle());
        assert!(!ticket.kill_group());
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        ticket.begin_group(Pid::from_child(&child));
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    // Catches: a committer that looks twice a second for a place that is free for a moment.
    #[test]
    fn a_place_of_one_shard_wakes_the_committer_of_another_that_looks_for_orphans() {
        let (first, place) = (link(), (0, EntryId(7, 0)));
        let second = Link::new(first.shared.clone(), &["other".to_owned()]);
        let hold = || {
            lock(&first.held).insert(place, held(Ticket::new()));
            first.shared.add(1);
        };
        hold();
        first.release([place]);
        assert!(!second.must_look(), "its reader fills the place");
        second.set_orphans_first(true);
        hold();
        let committer = second.clone();
        let thread = std::thread::spawn(move || {
            let far = Instant::now() + Duration::from_secs(3_600);
            (committer.take_outcomes(far).len(), committer.must_look())
        });
        first.release([place]);
        assert_eq!(thread.join().unwrap(), (0, true));
        assert!(!second.must_look(), "one look for a place");
    }

    // Catches: two shards that meet a free place at once, of which one is always faster.
    #[test]
    fn a_free_place_is_kept_for_the_shard_that_has_waited_longest() {
        let first = link();
        let shared = &first.shared;
        let [second, third] =
            ["second", "third"].map(|name| Link::new(shared.clone(), &[name.to_owned()]));
        let all = [&first, &second, &third];
        let kept = || all.map(|link| shared.kept_from(link));
        assert_eq!(kept(), [0, 0, 0]);
        shared.stand_in_line(&second);
        shared.stand_in_line(&third);
        shared.stand_in_line(&second);
        assert_eq!(kept(), [2, 0, 1]);
        shared.leave_line(&second);
        shared.stand_in_line(&second);
        assert_eq!(kept(), [2, 1, 0], "behind the one that has had no turn");
        // All places but one are taken.
        let places = shared.places();
        shared.begin_slow();
        shared.has_read(100);
        shared.add(places - 1);
        let room = || shared.wait_for_room(&first, Duration::ZERO);
        assert_eq!(room(), 0, "a reader leaves it to them");
        second.set_orphans_first(false);
        third.set_orphans_first(false);
        assert_eq!((kept(), room()), ([0, 0, 0], 1));
    }
}
