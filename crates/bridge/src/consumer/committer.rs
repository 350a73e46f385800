//! The committer of a shard: tells the server what became of jobs, keeps the held ones alive, and
//! fetches what is due or orphaned. It decides nothing that the scripts decide.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::commands::{self as command_of, fate, has_effects, is_effect_error};
use super::limits::Limits;
use super::link::{End, Link, Outcome, Place};
use super::reader::reclaimed;
use crate::fault::{Fault, Remedy};
use crate::handler::{Failure, Reply};
use crate::job::EntryId;
use crate::policy::Fate;
use crate::report::{Faults, pause};
use crate::scripts::{SCRIPTS, call};
use crate::wire::Wire;

/// Outcomes of one exchange.
const BATCH_MAX: usize = 4_000;
/// Entries of one heartbeat command, so that the server is not busy for long.
const BEATS_MAX: usize = 500;
/// Entries of one reclaim.
const RECLAIM_MAX: usize = 100;
/// Delayed jobs that one command makes ready.
const PROMOTE_MAX: usize = 100;
/// The interval at which delayed jobs of other producers are noticed.
const PROMOTE_EVERY: Duration = Duration::from_millis(100);
/// The longest interval between two looks for dead consumers' jobs.
const RECLAIM_EVERY: Duration = Duration::from_millis(500);
/// The interval at which dead consumers without jobs are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The time over which the rate is measured.
const RATE_EVERY: Duration = Duration::from_millis(5);

/// What a command of an exchange was for.
enum Sent {
    Complete(Vec<Place>),
    /// Results, effects, retries, dead letters: one outcome.
    One(Outcome),
    HandBack(Vec<Place>),
    Beat(usize),
    Reclaim(usize),
    Promote(usize),
    Sweep,
}

/// The next times of the periodic commands.
struct Next {
    beat: Instant,
    rate: Instant,
    sweep: Instant,
    reclaim: Vec<Instant>,
    promote: Vec<Instant>,
}

struct Committer {
    link: Arc<Link>,
    wire: Wire,
    faults: Faults,
    backlog: Vec<Outcome>,
    /// Outcomes wait until then, because the server refused some.
    hold_until: Instant,
    next: Next,
    /// Where the next reclaim of each stream goes on.
    cursors: Vec<String>,
    ended: usize,
    rated: Instant,
    limits: Limits,
}

/// The thread of the committer.
pub(super) fn run(link: Arc<Link>, wire: Wire) {
    let now = Instant::now();
    let streams = link.streams.len();
    let next = Next {
        beat: now + link.shared.config.heartbeat / 3,
        rate: now,
        sweep: now + SWEEP_EVERY,
        reclaim: vec![now; streams],
        promote: vec![now; streams],
    };
    let faults = Faults::new(link.shared.reporter.clone());
    let cursors = vec!["0-0".to_owned(); streams];
    Committer {
        link,
        wire,
        faults,
        backlog: Vec::new(),
        hold_until: now,
        next,
        cursors,
        ended: 0,
        rated: now,
        limits: Limits::new(now),
    }
    .run();
}

impl Committer {
    fn run(mut self) {
        loop {
            let until = self.wake_at();
            let taken = self.link.take_outcomes(until);
            let linger = self.link.shared.linger();
            let is_small = !taken.is_empty() && taken.len() < BATCH_MAX / 8;
            self.collect(taken);
            if is_small && !linger.is_zero() && !self.link.shared.is_stopping() {
                thread::sleep(linger);
                let more = self.link.take_outcomes(Instant::now());
                self.collect(more);
            }
            self.measure();
            self.limits.check(&self.link);
            let (commands, sent) = self.commands();
            if self.link.is_closing() && self.backlog.is_empty() && commands.is_empty() {
                break;
            }
            if commands.is_empty() {
                continue;
            }
            match self.wire.ask(&commands) {
                Ok(replies) => self.read(replies, sent),
                Err(fault) => {
                    // A reply with entries for this consumer may be among the lost ones.
                    self.link.seek_orphans();
                    self.put_back(sent);
                    let delay = self.failed(&fault);
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

    fn collect(&mut self, outcomes: Vec<Outcome>) {
        self.ended += outcomes.len();
        self.backlog.extend(outcomes);
    }

    /// The time of the next command without outcomes.
    fn wake_at(&self) -> Instant {
        let next = &self.next;
        let mut at = next.beat.min(next.sweep);
        if self.link.shared.config.limit.is_some() {
            at = at.min(self.limits.next);
        }
        if !self.link.shared.is_stopping() {
            at = next.reclaim.iter().chain(&next.promote).fold(at, |at, &next| at.min(next));
        }
        if self.backlog.is_empty() { at } else { at.min(self.hold_until) }
    }

    fn failed(&self, fault: &Fault) -> Duration {
        self.link.shared.tally.faults(1);
        self.faults.failed(&fault.error)
    }

    fn measure(&mut self) {
        let now = Instant::now();
        if now >= self.next.rate {
            self.link.shared.has_ended(self.ended, now - self.rated);
            (self.ended, self.rated) = (0, now);
            self.next.rate = now + RATE_EVERY;
        }
    }

    fn commands(&mut self) -> (Vec<Cmd>, Vec<Sent>) {
        let (mut commands, mut sent) = (Vec::new(), Vec::new());
        let now = Instant::now();
        if now >= self.hold_until {
            self.add_outcomes(&mut commands, &mut sent);
        }
        if now >= self.next.beat {
            self.next.beat = now + self.link.shared.config.heartbeat / 3;
            self.add_beats(&mut commands, &mut sent);
        }
        if !self.link.shared.is_stopping() {
            self.add_fetches(now, &mut commands, &mut sent);
        }
        (commands, sent)
    }

    fn add_outcomes(&mut self, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        let count = self.backlog.len().min(BATCH_MAX);
        let streams = self.link.streams.len();
        let (mut complete, mut back) = (vec![Vec::new(); streams], vec![Vec::new(); streams]);
        let mut forgotten = Vec::new();
        for outcome in self.backlog.drain(..count) {
            let (stream, _) = outcome.place;
            match &outcome.end {
                End::Done(reply) if !has_effects(reply, self.link.shared.config.results) => {
                    complete[stream].push(outcome.place);
                }
                End::HandBack => back[stream].push(outcome.place),
                End::Lost => forgotten.push(outcome.place),
                End::Done(reply) => {
                    commands.push(command_of::effects(&self.link, &outcome, reply));
                    sent.push(Sent::One(outcome));
                }
                End::Failed(failure) => {
                    commands.push(command_of::failed(&self.link, &outcome, failure));
                    sent.push(Sent::One(outcome));
                }
            }
        }
        self.link.shared.tally.lost(forgotten.len() as u64);
        self.link.release(forgotten);
        for (stream, places) in complete.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            commands.push(command_of::complete(&self.link, stream, &places));
            sent.push(Sent::Complete(places));
        }
        for (stream, places) in back.into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            commands.push(command_of::hand_back(&self.link, stream, &places));
            sent.push(Sent::HandBack(places));
        }
    }

    fn add_beats(&self, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        for (stream, ids) in self.link.held_by_stream().into_iter().enumerate() {
            for ids in ids.chunks(BEATS_MAX) {
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

    /// Delayed jobs that are due, jobs of dead consumers, dead consumers.
    fn add_fetches(&mut self, now: Instant, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        let shared = &self.link.shared;
        let idle_ms = shared.config.heartbeat.as_millis() as u64;
        let sweep = now >= self.next.sweep;
        for (stream, (_, keys)) in self.link.streams.iter().enumerate() {
            if now >= self.next.promote[stream] {
                self.next.promote[stream] = now + PROMOTE_EVERY;
                let mut command = call(&SCRIPTS.promote, &[&keys.delayed, &keys.stream]);
                command.arg(PROMOTE_MAX);
                commands.push(command);
                sent.push(Sent::Promote(stream));
            }
            if now >= self.next.reclaim[stream] {
                self.next.reclaim[stream] = now + RECLAIM_EVERY.min(shared.config.heartbeat / 4);
                let room = shared.room_now().min(RECLAIM_MAX);
                if room > 0 {
                    let mut command = call(&SCRIPTS.reclaim, &[&keys.stream, &keys.stats]);
                    command.arg(&shared.config.group).arg(&shared.consumer).arg(idle_ms);
                    command.arg(&self.cursors[stream]).arg(room);
                    commands.push(command);
                    sent.push(Sent::Reclaim(stream));
                }
            }
            if sweep {
                let mut command = call(&SCRIPTS.leave, &[&keys.stream]);
                command.arg(&shared.config.group).arg(idle_ms.saturating_mul(10)).arg("");
                commands.push(command);
                sent.push(Sent::Sweep);
            }
        }
        if sweep {
            self.next.sweep = now + SWEEP_EVERY;
        }
    }

    /// Puts outcomes back whose fate is unknown: all transitions may be sent twice.
    fn put_back(&mut self, sent: Vec<Sent>) {
        for sent in sent {
            match sent {
                Sent::One(outcome) => self.backlog.push(outcome),
                Sent::Complete(places) => {
                    self.put_back_places(&places, || End::Done(Reply::done()));
                }
                Sent::HandBack(places) => self.put_back_places(&places, || End::HandBack),
                Sent::Beat(_) | Sent::Reclaim(_) | Sent::Promote(_) | Sent::Sweep => {}
            }
        }
    }

    fn put_back_places(&mut self, places: &[Place], end: impl Fn() -> End) {
        let outcome = |&place: &Place| Outcome { place, id: None, attempt: 0, end: end() };
        self.backlog.extend(places.iter().map(outcome));
    }

    fn read(&mut self, replies: Vec<Value>, sent: Vec<Sent>) {
        let address = self.wire.name();
        let mut refused = None;
        for (reply, sent) in replies.into_iter().zip(sent) {
            match Fault::in_reply(&reply, &address) {
                Some(fault) => {
                    self.refused(&reply, sent);
                    refused = Some(fault);
                }
                None => self.accepted(reply, sent),
            }
        }
        match refused {
            None => self.faults.succeeded(&address),
            Some(fault) => {
                if fault.remedy == Remedy::MakeGroup {
                    // A fault of this call is found again by the next exchange.
                    let _ = super::group::make_groups(&self.link, &mut self.wire);
                }
                self.hold_until = Instant::now() + self.failed(&fault);
            }
        }
    }

    fn refused(&mut self, reply: &Value, sent: Sent) {
        match sent {
            // A command of the handler has failed: so has the attempt.
            Sent::One(mut outcome) if is_effect_error(reply) => {
                if let Value::ServerError(error) = reply {
                    let text = error.details().unwrap_or_default();
                    outcome.end = End::Failed(Failure::again(format!("an effect failed: {text}")));
                }
                self.backlog.push(outcome);
            }
            sent => self.put_back(vec![sent]),
        }
    }

    fn accepted(&mut self, reply: Value, sent: Sent) {
        let tally = &self.link.shared.tally;
        let number = if let Value::Int(number) = reply { number.cast_unsigned() } else { 0 };
        match sent {
            Sent::Complete(places) => {
                tally.done(number);
                tally.duplicates(places.len() as u64 - number.min(places.len() as u64));
                self.link.release(places);
            }
            Sent::HandBack(places) => {
                tally.handed_back(number);
                self.link.release(places);
            }
            Sent::One(outcome) => {
                match (&outcome.end, number) {
                    (End::Done(_), 0) => tally.duplicates(1),
                    (End::Done(_), _) => tally.done(1),
                    (_, 0) => tally.lost(1),
                    (End::Failed(failure), _) => self.moved(&outcome, failure),
                    _ => {}
                }
                self.link.release([outcome.place]);
            }
            Sent::Beat(stream) => {
                let Value::Array(lost) = reply else { return };
                let ids = lost.iter().filter_map(|id| match id {
                    Value::BulkString(id) => EntryId::parse(id),
                    _ => None,
                });
                ids.for_each(|id| self.link.lose((stream, id)));
            }
            Sent::Reclaim(stream) => self.reclaimed(stream, reply),
            Sent::Promote(stream) => self.promoted(stream, &reply),
            Sent::Sweep => {}
        }
    }

    /// A failed attempt has left the stream.
    fn moved(&self, outcome: &Outcome, failure: &Failure) {
        let shared = &self.link.shared;
        match fate(&self.link, outcome, failure) {
            Fate::Retry(_) => shared.tally.retries(1),
            Fate::Bury => {
                shared.tally.dead(1);
                let (stream, id) = (&self.link.streams[outcome.place.0].0, outcome.place.1);
                let (attempt, text) = (outcome.attempt, &failure.text);
                shared.reporter.say(&format!(
                    "{stream}: {id} is a dead letter after {attempt} attempt(s): {}",
                    text.lines().next().unwrap_or_default()
                ));
            }
        }
    }

    fn reclaimed(&mut self, stream: usize, reply: Value) {
        let Value::Array(parts) = reply else { return };
        let Ok([Value::BulkString(cursor), Value::Array(list)]) = <[Value; 2]>::try_from(parts)
        else {
            return;
        };
        let entries = reclaimed(list);
        self.link.shared.tally.reclaimed(entries.len() as u64);
        self.cursors[stream] = String::from_utf8_lossy(&cursor).into_owned();
        // The pass is not over.
        if cursor != b"0-0" {
            self.next.reclaim[stream] = Instant::now();
        }
        self.link.admit(stream, entries);
    }

    fn promoted(&mut self, stream: usize, reply: &Value) {
        let Value::Array(parts) = reply else { return };
        if let [Value::Int(_), Value::Int(next_ms)] = parts[..]
            && let Ok(next_ms) = u64::try_from(next_ms)
        {
            let next = Duration::from_millis(next_ms).min(PROMOTE_EVERY);
            self.next.promote[stream] = Instant::now() + next;
        }
    }

    /// Removes this consumer from the groups, unless entries of it are left.
    fn leave(&mut self) {
        let shared = &self.link.shared;
        let of_stream = |(_, keys): &(Arc<str>, crate::keys::Keys)| {
            let mut command = call(&SCRIPTS.leave, &[&keys.stream]);
            // No other consumer is idle for so long.
            let never_ms = u64::from(u32::MAX) * 1_000;
            command.arg(&shared.config.group).arg(never_ms).arg(&shared.consumer);
            command
        };
        let commands: Vec<Cmd> = self.link.streams.iter().map(of_stream).collect();
        // A consumer that stays behind is removed by another's sweep.
        let _ = self.wire.ask(&commands);
    }
}
