//! The committer of a shard: tells the server what became of jobs, keeps the held ones alive, and
//! fetches what is due or orphaned. It decides nothing that the scripts decide.

mod begins;
mod fetches;
mod replies;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::alone::{Alone, Turns};
use super::commands::{self as command_of, has_effects};
use super::delivered::Delivered;
use super::failures::Takeovers;
use super::limits::Limits;
use super::link::{Link, Lost, Place};
use super::memory::Share;
use super::outcome::{End, Outcome, Twice};
use super::run::Waiting;
use super::schedule::Schedule;
use super::sent::{Purpose, Sent};
use super::shared::Shared;
use super::suspects::Suspects;
use crate::fault::Fault;
use crate::job::EntryId;
use crate::report::{ThreadFaults, pause};
use crate::resp::{Head, Replies};
use crate::scripts::{SCRIPTS, call};
use crate::wire::Wire;

/// Outcomes of one exchange.
const BATCH_MAX: usize = 4_000;
/// Bytes of their results, effects and errors: those on their way exist more than once.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Entries of one heartbeat command, so that the server is not busy for long.
const BEATS_MAX: usize = 500;
/// Lost jobs for which a sign of life is owed. Those before have had theirs, or the server refuses all.
const LOST_MAX: usize = 10_000;
/// The time over which the rate is measured.
const RATE_EVERY: Duration = Duration::from_millis(5);
/// A run that lasts longer is recorded on the server. Shorter ones end before, and cost nothing.
const RECORD_EVERY: Duration = Duration::from_millis(50);

struct Committer {
    link: Arc<Link>,
    wire: Wire,
    /// Each purpose has faults of its own: what the server refuses one, it may grant another.
    faults: HashMap<Purpose, ThreadFaults>,
    backlog: Vec<Outcome>,
    /// Outcomes that the server has refused. They wait until the time below.
    refused: Vec<Outcome>,
    hold_until: Instant,
    next: Schedule,
    /// Where the next reclaim of each stream goes on.
    cursors: Vec<String>,
    /// Streams whose last look for jobs of dead consumers found no memory, or little.
    owed: Vec<bool>,
    /// Streams that are looked through for orphans before the reader fills a place.
    first: Vec<bool>,
    /// A look has found no place.
    waits: bool,
    /// Jobs taken over from other consumers, by stream.
    took: Vec<Takeovers>,
    ended: usize,
    /// When runs are recorded next.
    record: Instant,
    /// Jobs that wait for the record of their begin.
    parked: Vec<Waiting>,
    /// The job of this shard that runs alone, or waits until no other is held.
    alone: Option<Alone>,
    turns: Turns,
    suspects: Suspects,
    /// Jobs that have begun here and were lost: the server does not know yet that this consumer lives.
    lost: Vec<Lost>,
    /// When the rate was measured last.
    rated: Instant,
    limits: Limits,
}

/// The thread of the committer.
pub(super) fn run(link: Arc<Link>, wire: Wire) {
    let mut committer = Committer::new(link, wire);
    committer.run();
    committer.report_takeovers(true);
}

impl Committer {
    fn new(link: Arc<Link>, wire: Wire) -> Committer {
        let now = Instant::now();
        let streams = link.streams.len();
        let heartbeat = link.shared.config.heartbeat;
        let next = Schedule::new(now, heartbeat, streams);
        let suspects = Suspects::new(&link.shared.consumer, heartbeat);
        let waiting = link.clone();
        Committer {
            link,
            // A place for an orphan.
            wire: wire.when_silent(move || waiting.shared.leave_line(&waiting)),
            faults: HashMap::new(),
            backlog: Vec::new(),
            refused: Vec::new(),
            hold_until: now,
            next,
            cursors: vec!["0-0".to_owned(); streams],
            owed: vec![false; streams],
            first: vec![false; streams],
            waits: false,
            took: vec![Takeovers::default(); streams],
            ended: 0,
            record: now,
            parked: Vec::new(),
            alone: None,
            turns: Turns::new(now, heartbeat),
            suspects,
            lost: Vec::new(),
            rated: now,
            limits: Limits::new(now),
        }
    }

    fn run(&mut self) {
        loop {
            let until = self.wake_at();
            let taken = self.link.take_outcomes(until);
            if self.link.must_look() {
                self.next.reclaim.fill(Instant::now());
            }
            let linger = self.link.shared.linger();
            let is_small = !taken.is_empty() && taken.len() < BATCH_MAX / 8;
            self.collect(taken);
            if is_small && !linger.is_zero() && !self.link.shared.is_stopping() {
                thread::sleep(linger);
                let more = self.link.take_outcomes(Instant::now());
                self.collect(more);
            }
            self.measure();
            self.report_takeovers(false);
            self.limits.check(&self.link);
            let (commands, sent) = self.commands();
            let is_over = self.backlog.is_empty() && self.refused.is_empty() && commands.is_empty();
            if self.link.is_closing() && is_over {
                break;
            }
            if commands.is_empty() {
                self.wait_in_line();
                continue;
            }
            if self.link.shared.is_stopping() {
                self.wire.hurry();
            }
            let (shared, mut found) = (self.link.shared.clone(), HashMap::new());
            // A strict consumer takes nothing over from a server that was not asked.
            let (is_strict, before) = (shared.config.strict, self.wire.connects());
            let is_takeover = |nth: usize| matches!(sent[nth], Sent::Reclaim(_));
            let may_go = |nth, on: u64| !is_strict || on == before || !is_takeover(nth);
            let answer =
                self.wire.ask_bound(&commands, Duration::ZERO, &may_go, &mut |nth, replies| {
                    match sent[nth] {
                        Sent::Reclaim(stream) => taken_over(&shared, replies, |delivered| {
                            found.insert(stream, delivered);
                        }),
                        _ => replies.value(),
                    }
                });
            if self.wire.connects() != before {
                self.link.doubt();
            }
            match answer {
                Ok(replies) => {
                    self.put_orphans_first(&sent);
                    let is_refused = self.read(replies, sent, found);
                    self.wait_in_line();
                    if is_refused && self.link.is_closing() {
                        // A server that refuses outcomes has had its time. Other consumers take
                        // what is left.
                        return;
                    }
                }
                Err(fault) => {
                    self.link.doubt();
                    // The others do not wait for this server.
                    self.waits = false;
                    shared.leave_line(&self.link);
                    // A reply with entries for this consumer may be among the lost ones.
                    self.link.seek_orphans();
                    // Before the outcomes are sent again: an outcome whose job is another consumer's
                    // ends it here, and only a job that is held is spared.
                    self.next.beat = Instant::now();
                    // Their fate is unknown, and all transitions may be sent twice.
                    for sent in sent {
                        match sent {
                            Sent::Begin(_, waiting) => {
                                if self.wire.was_sent() {
                                    waiting.iter().for_each(Waiting::lose_answer);
                                }
                                self.link.wait(waiting);
                            }
                            Sent::Record(_, places) if self.wire.was_sent() => {
                                self.link.lose_answer(&places);
                            }
                            Sent::Spare(_, lost) => self.lost.extend(lost),
                            sent => self.backlog.extend(sent.into_outcomes(self.wire.was_sent())),
                        }
                    }
                    let delay = self.failed(Purpose::Exchange, &fault);
                    if self.link.is_closing() {
                        // Other consumers take what is left, after the heartbeat's bound.
                        return;
                    }
                    let link = self.link.clone();
                    pause(delay, || link.is_closing());
                }
            }
        }
        self.leave();
    }

    /// Stands in line for a place for an orphan, if a look has found none. Only now: a server that hangs
    /// would keep a place from the other shards.
    fn wait_in_line(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.link.shared.stand_in_line(&self.link);
        }
    }

    fn collect(&mut self, outcomes: Vec<Outcome>) {
        self.ended += outcomes.len();
        self.backlog.extend(outcomes);
    }

    /// The time of the next command without outcomes.
    fn wake_at(&self) -> Instant {
        let mut at = self.next.due(Instant::now(), self.link.shared.is_stopping());
        if self.link.shared.config.limit.is_some() {
            at = at.min(self.limits.next);
        }
        if self.link.shared.held() > 0 {
            at = at.min(self.record);
        }
        if !self.backlog.is_empty() {
            return Instant::now();
        }
        if !self.lost.is_empty() {
            at = at.min(self.next.spare);
        }
        if self.refused.is_empty() { at } else { at.min(self.hold_until) }
    }

    /// Runs last, and the outcomes of an exchange make places free: orphans get them first, also
    /// those that this consumer has handed back.
    fn put_orphans_first(&mut self, sent: &[Sent]) {
        let is_one = |sent: &Sent| sent.purpose() == Purpose::Outcomes;
        if !sent.iter().any(is_one) {
            return;
        }
        if self.link.shared.is_slow() {
            self.first.fill(true);
            self.cursors.fill("0-0".to_owned());
            self.link.set_orphans_first(true);
        }
        if self.link.orphans_first() {
            self.next.reclaim.fill(Instant::now());
        }
    }

    /// A stream has been looked through, or cannot be.
    fn end_orphans_first(&mut self, stream: usize) {
        if std::mem::take(&mut self.first[stream]) && !self.first.contains(&true) {
            self.link.set_orphans_first(false);
        }
    }

    fn faults_of(&mut self, purpose: Purpose) -> &ThreadFaults {
        let all = &self.link.shared.faults;
        self.faults.entry(purpose).or_insert_with(|| all.of_thread())
    }

    /// Records a fault, and returns the delay before the next try.
    fn failed(&mut self, purpose: Purpose, fault: &Fault) -> Duration {
        self.link.shared.tally.faults(1);
        self.faults_of(purpose).failed(fault)
    }

    fn measure(&mut self) {
        let now = Instant::now();
        if now >= self.rated + RATE_EVERY {
            self.link.shared.has_ended(self.ended, now - self.rated);
            (self.ended, self.rated) = (0, now);
        }
    }

    /// Says what is due, or at the end of the consumer what has not been said.
    fn report_takeovers(&mut self, is_end: bool) {
        let now = Instant::now();
        for (took, (stream, _)) in self.took.iter_mut().zip(&self.link.streams) {
            if let Some(count) = took.due(now, is_end) {
                self.link.shared.reporter.say(&format!(
                    "{stream}: took over {count} job(s) of consumers that have died, or have handed \
                     them back"
                ));
            }
        }
    }

    fn commands(&mut self) -> (Vec<Cmd>, Vec<Sent>) {
        let (mut commands, mut sent) = (Vec::new(), Vec::new());
        let now = Instant::now();
        let surplus = self.lost.len().saturating_sub(LOST_MAX);
        self.lost.drain(..surplus);
        // Before the outcomes: a heartbeat after a hand-back would undo it.
        if now >= self.next.beat {
            self.next.beat = now + self.link.shared.config.heartbeat / 3;
            self.add_beats(&mut commands, &mut sent);
        }
        self.add_begins(now, &mut commands, &mut sent);
        if now >= self.hold_until || self.link.is_closing() {
            self.backlog.append(&mut self.refused);
        }
        self.add_outcomes(&mut commands, &mut sent);
        if !self.link.shared.is_stopping() {
            self.add_fetches(now, &mut commands, &mut sent);
        }
        (commands, sent)
    }

    fn add_outcomes(&mut self, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        // As many as reach the bytes, and at least one.
        let bytes = self.backlog.iter().scan(0, |sum: &mut usize, outcome| {
            let before = std::mem::replace(sum, *sum + outcome.cost());
            (before < BATCH_BYTES_MAX).then_some(())
        });
        let count = bytes.take(BATCH_MAX).count();
        let streams = self.link.streams.len();
        let mut complete: BTreeMap<(usize, Twice), Vec<Place>> = BTreeMap::new();
        let (mut back, mut skipped) = (vec![Vec::new(); streams], vec![Vec::new(); streams]);
        let mut forgotten = Vec::new();
        for outcome in self.backlog.drain(..count) {
            let (stream, _) = outcome.place;
            match &outcome.end {
                End::Done(reply) if !has_effects(reply, self.link.shared.config.results) => {
                    complete.entry((stream, outcome.twice)).or_default().push(outcome.place);
                }
                End::HandBack => back[stream].push(outcome.place),
                End::Lost => forgotten.push(outcome.place),
                End::Done(reply) => {
                    commands.push(command_of::effects(&self.link, &outcome, reply));
                    sent.push(Sent::Effects(outcome));
                }
                End::Skipped(group) => skipped[stream].push((outcome.place, group.clone())),
                End::Failed(failure) => {
                    let (command, fate) = command_of::failed(&self.link, &outcome, failure);
                    commands.push(command);
                    sent.push(Sent::Failed(outcome, fate));
                }
            }
        }
        self.link.shared.tally.lost(forgotten.len() as u64);
        self.link.release(forgotten);
        for ((stream, twice), places) in complete {
            commands.push(command_of::complete(&self.link, stream, &places, twice));
            sent.push(Sent::Complete(places, twice));
        }
        for (stream, places) in back.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            commands.push(command_of::hand_back(&self.link, stream, &places));
            sent.push(Sent::HandBack(places));
        }
        for (stream, retries) in skipped.into_iter().enumerate().filter(|(_, of)| !of.is_empty()) {
            commands.push(command_of::skip(&self.link, stream, &retries));
            sent.push(Sent::Skip(retries));
        }
    }

    fn add_beats(&self, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        // The server may have executed an outcome whose reply was lost. A heartbeat would undo a
        // hand-back. A job that is done would look lost: its outcome tells, in this exchange.
        let over = |outcome: &&Outcome| match outcome.end {
            End::HandBack => true,
            End::Done(_) => outcome.twice.is_repeated(),
            End::Failed(_) | End::Skipped(_) | End::Lost => false,
        };
        let refused = self.refused.iter().filter(|of| matches!(of.end, End::HandBack));
        let over: HashSet<Place> =
            self.backlog.iter().filter(over).chain(refused).map(|outcome| outcome.place).collect();
        for stream in 0..self.link.streams.len() {
            let mut ids: Vec<EntryId> = self.link.alive_of(stream).into_iter().collect();
            ids.retain(|&id| !over.contains(&(stream, id)));
            // Without an entry it is a sign of life of the consumer.
            let alone = ids.is_empty().then_some(&ids[..]);
            for ids in ids.chunks(BEATS_MAX).chain(alone) {
                let mut command = call(&SCRIPTS.beat, &[&self.link.streams[stream].1.stream]);
                command.arg(&self.link.shared.config.group).arg(&self.link.shared.consumer);
                ids.iter().for_each(|id| {
                    command.arg(id.to_string());
                });
                commands.push(command);
                sent.push(Sent::Beat(stream));
            }
        }
    }

    /// Removes this consumer from the groups. What is left of it waits for others.
    fn leave(&mut self) {
        // No consumer is idle for 136 years.
        let never_ms = u64::from(u32::MAX) * 1_000;
        let streams = 0..self.link.streams.len();
        let leaver = Some(&*self.link.shared.consumer);
        let of_stream = |stream| command_of::leave(&self.link, stream, never_ms, leaver);
        let commands: Vec<Cmd> = streams.map(of_stream).collect();
        self.wire.hurry();
        // A consumer that stays behind is removed by another's sweep.
        let _ = self.wire.ask(&commands);
    }
}

/// Reads the reply to RECLAIM: entries, and all but these, which is returned.
fn taken_over(
    shared: &Arc<Shared>,
    replies: &mut Replies<'_>,
    keep: impl FnOnce(Delivered),
) -> io::Result<Value> {
    match replies.head()? {
        Head::Array(_) => {}
        Head::Whole(value) => return Ok(value),
        other => return replies.skip(other).map(|()| Value::Nil),
    }
    let (cursor, count) = (replies.value()?, replies.array()?);
    let mut delivered = Delivered::new(shared, Share::Orphans);
    delivered.read_entries(replies, count)?;
    keep(delivered);
    Ok(Value::Array(vec![cursor, replies.value()?, replies.value()?]))
}

#[cfg(test)]
mod tests;
