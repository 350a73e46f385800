//! The replies of an exchange: granted outcomes are over, refused ones wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::Value;

use super::Committer;
use crate::consumer::delivered::Delivered;
use crate::consumer::failures::Failed;
use crate::consumer::group::make_groups;
use crate::consumer::outcome::{End, Outcome, Twice};
use crate::consumer::schedule::PROMOTE_EVERY;
use crate::consumer::sent::{Purpose, Sent};
use crate::consumer::suspects::Seen;
use crate::fault::{Fault, Remedy};
use crate::greeting::text;
use crate::handler::Failure;
use crate::job::EntryId;
use crate::policy::Fate;

/// What the scripts return for a dead letter whose entry cannot be moved.
const IN_QUARANTINE: u64 = 3;
/// What they return for an entry that another program has deleted, and what they put before its id.
const GONE: u64 = 5;
const GONE_WORD: &[u8] = b"gone ";

/// The ids in a reply.
fn ids(reply: &Value) -> Vec<EntryId> {
    ids_after(b"", reply)
}

/// Those behind this word.
fn ids_after(word: &[u8], reply: &Value) -> Vec<EntryId> {
    let Value::Array(list) = reply else { return Vec::new() };
    let ids = list.iter().filter_map(|id| match id {
        Value::BulkString(id) => EntryId::parse(id.strip_prefix(word)?),
        _ => None,
    });
    ids.collect()
}

/// The two numbers of the reply to a completion.
fn numbers(reply: &Value) -> [u64; 2] {
    match reply {
        Value::Array(parts) => match parts[..] {
            [Value::Int(pending), Value::Int(counted)] => {
                [pending, counted].map(|number| u64::try_from(number).unwrap_or(0))
            }
            _ => [0; 2],
        },
        _ => [0; 2],
    }
}

/// What a script says that has moved an entry, and the dead letter that it has made.
fn moved(reply: &Value) -> (u64, Option<String>) {
    match reply {
        Value::Int(number) => (number.cast_unsigned(), None),
        Value::Array(parts) => match &parts[..] {
            [Value::Int(number), .., letter @ Value::BulkString(_)] => {
                (number.cast_unsigned(), Some(text(letter)))
            }
            [Value::Int(number), ..] => (number.cast_unsigned(), None),
            _ => (0, None),
        },
        _ => (0, None),
    }
}

/// A suspect of a reclaim.
fn suspect(row: &Value) -> Option<(EntryId, Seen)> {
    let Value::Array(row) = row else { return None };
    let [Value::BulkString(id), Value::BulkString(owner), after, before] = &row[..] else {
        return None;
    };
    let owner = String::from_utf8_lossy(owner).into_owned();
    let (after_ms, before_ms) = (text(after).parse().ok()?, text(before).parse().ok()?);
    Some((EntryId::parse(id)?, Seen { owner, after_ms, before_ms }))
}

impl Committer {
    /// Reads the replies. Returns whether outcomes were refused: these wait. `found` are the entries that
    /// a reclaim of a stream has brought.
    pub(super) fn read(
        &mut self,
        replies: Vec<Value>,
        sent: Vec<Sent>,
        mut found: HashMap<usize, Delivered>,
    ) -> bool {
        let address = self.wire.name();
        self.faults_of(Purpose::Exchange).succeeded(&address);
        let is_holding = !self.refused.is_empty();
        // A purpose is granted if all its commands are.
        let mut verdicts: HashMap<Purpose, Option<Fault>> = HashMap::new();
        // The server's time of the first heartbeat. One stream may refuse it while others do not.
        let mut beaten_ms = None;
        for (reply, sent) in replies.into_iter().zip(sent) {
            let verdict = verdicts.entry(sent.purpose()).or_default();
            match (Fault::of_effect(&reply), Fault::in_reply(&reply, &address), sent) {
                // A command of the handler has failed: so has the attempt.
                (Some(text), _, Sent::Effects(mut outcome)) => {
                    let handler = match &mut outcome.end {
                        End::Done(reply) => reply.handler.take(),
                        _ => None,
                    };
                    let failure = Failure::again(format!("an effect failed: {text}"));
                    self.effect_failed(&outcome, handler.as_deref(), &failure);
                    outcome.end = End::Failed(failure);
                    self.backlog.push(outcome);
                }
                (_, Some(_), Sent::Connections(stream)) => self.suspects.connections(stream, None),
                (_, Some(found), Sent::Spare(_, lost)) => {
                    // A stop does not wait for it: a run too many stays in the counter.
                    if !self.link.is_closing() {
                        self.lost.extend(lost);
                    }
                    *verdict = Some(found);
                }
                (_, Some(found), sent) => {
                    *verdict = Some(found);
                    self.refused.extend(sent.into_outcomes(false));
                }
                (_, None, Sent::Reclaim(stream)) => {
                    self.reclaimed(stream, reply, found.remove(&stream));
                }
                (_, None, Sent::Beat(stream)) => {
                    let at_ms = self.beaten(stream, &reply);
                    beaten_ms = beaten_ms.or(at_ms);
                }
                (_, None, sent) => self.accepted(reply, sent),
            }
        }
        let lacks_group =
            |fault: &Option<Fault>| fault.as_ref().is_some_and(|f| f.remedy == Remedy::MakeGroup);
        if verdicts.values().any(lacks_group) {
            // A fault of this call is found again by the next exchange.
            let _ = make_groups(&self.link, &mut self.wire);
        }
        if let Some(at_ms) = beaten_ms {
            self.next.has_beaten(Instant::now(), at_ms);
        }
        let mut are_outcomes = false;
        for (purpose, fault) in verdicts {
            match fault {
                Some(fault) => {
                    are_outcomes |= purpose == Purpose::Outcomes;
                    self.put_off(purpose, &fault, is_holding);
                }
                // Those that wait were not tried.
                None if purpose == Purpose::Outcomes && is_holding => {}
                None => self.faults_of(purpose).succeeded(&address),
            }
        }
        are_outcomes
    }

    /// Sets the time of the next try. Outcomes that wait already are tried at the time that was set
    /// for them, however many join them.
    fn put_off(&mut self, purpose: Purpose, fault: &Fault, is_holding: bool) {
        let until = Instant::now() + self.failed(purpose, fault);
        match purpose {
            Purpose::Outcomes if is_holding => {}
            // An exchange that fails as a whole is the caller's.
            Purpose::Outcomes | Purpose::Exchange => self.hold_until = until,
            Purpose::Beats => self.next.beat = self.next.beat.min(until),
            Purpose::Spare => self.next.spare = until,
            Purpose::Reclaim(stream) => {
                self.next.reclaim[stream] = until;
                self.end_orphans_first(stream);
            }
            Purpose::Promote(stream) => self.next.promote[stream] = until,
            Purpose::Sweep => self.next.sweep = self.next.sweep.min(until),
        }
    }

    fn accepted(&mut self, reply: Value, sent: Sent) {
        let tally = &self.link.shared.tally;
        match sent {
            Sent::Complete(places, twice) => {
                self.completed(twice, numbers(&reply), places.len() as u64);
                self.link.release(places);
            }
            Sent::Begin(stream, waiting) => {
                let lost = self.lose_all(stream, &reply);
                for waiting in waiting {
                    if !lost.contains(&waiting.place.1) {
                        self.begun(waiting.place);
                        waiting.start();
                    }
                }
            }
            Sent::Record(stream, places) => {
                self.lose_all(stream, &reply);
                self.link.recorded(&places);
                places.into_iter().for_each(|place| self.runs_beside(place));
            }
            Sent::HandBack(places) => {
                let count = places.len() as u64;
                // Their begin may be recorded, although they never began.
                let lost =
                    places.first().map_or(0, |&(of, _)| self.lose_all(of, &reply).len() as u64);
                self.link.shared.tally.handed_back(count.saturating_sub(lost));
                // This consumer may take them again, as soon as it has memory for them.
                if let Some(&(stream, _)) = places.first() {
                    "0-0".clone_into(&mut self.cursors[stream]);
                    self.next.reclaim[stream] = Instant::now();
                }
                self.link.release(places);
            }
            Sent::Skip(retries) => {
                let gone = ids(&reply);
                let places = retries.into_iter().map(|(place, _)| place);
                let (run, over) = places.partition::<Vec<_>, _>(|place| gone.contains(&place.1));
                self.link.release(over);
                for place in run {
                    self.link.run_when_delivered(place);
                    let (twice, end) = (Twice::IfMissing, End::HandBack);
                    self.backlog.push(Outcome { place, id: None, attempt: 0, twice, end });
                }
            }
            Sent::Effects(mut outcome) => {
                if let Value::Array(parts) = &reply
                    && let [Value::Int(place), reason @ Value::BulkString(_), letter @ ..] =
                        &parts[..]
                {
                    // A script that has failed.
                    outcome.end = End::Failed(Failure::dead(text(reason)));
                    let letter = letter.first().map(text);
                    match place.cast_unsigned() {
                        GONE => self.gone(outcome.place.0, &[outcome.place.1]),
                        place => self.buried(&outcome, place == IN_QUARANTINE, letter),
                    }
                } else {
                    self.completed(outcome.twice, numbers(&reply), 1);
                }
                self.link.release([outcome.place]);
            }
            Sent::Failed(outcome, fate) => {
                let (number, letter) = moved(&reply);
                match (fate, number) {
                    (_, 0) => {
                        tally.lost(1);
                        self.lose(outcome.place.0, vec![outcome.place.1]);
                    }
                    (_, 2) if !outcome.twice.is_repeated() => tally.lost(1),
                    (_, 4) => {
                        // Its owner lives, and said so before the burial.
                        self.backlog.push(Outcome { end: End::HandBack, ..outcome });
                        return;
                    }
                    (_, IN_QUARANTINE) => self.buried(&outcome, true, letter),
                    (_, GONE) => {
                        tally.lost(1);
                        self.gone(outcome.place.0, &[outcome.place.1]);
                    }
                    (Fate::Retry(_), _) => tally.retries(1),
                    (Fate::Bury, _) => self.buried(&outcome, false, letter),
                }
                self.link.release([outcome.place]);
            }
            Sent::Connections(stream) => {
                self.suspects.connections(stream, Some(&text(&reply)));
            }
            Sent::Promote(stream) => self.promoted(stream, &reply),
            Sent::Spare(stream, _) => self.unburied(stream, &ids(&reply)),
            Sent::Beat(_) | Sent::Reclaim(_) | Sent::Sweep => {}
        }
    }

    /// Learns what a heartbeat has found, and returns the server's time in milliseconds.
    fn beaten(&mut self, stream: usize, reply: &Value) -> Option<u64> {
        let Value::Array(parts) = reply else { return None };
        let [lost, spared, Value::Int(at_ms)] = &parts[..] else { return None };
        ids(spared).into_iter().for_each(|id| self.link.spare(&(stream, id)));
        self.lose_all(stream, lost);
        Some(at_ms.cast_unsigned())
    }

    /// Counts completions, of which the server has found some pending and has counted some as second runs.
    /// One that is sent again has done its job before, or does it now.
    fn completed(&self, twice: Twice, [pending, counted]: [u64; 2], all: u64) {
        let tally = &self.link.shared.tally;
        let (pending, counted) = (pending.min(all), counted.min(all));
        tally.done(if twice.is_repeated() { all } else { pending });
        tally.duplicates(counted);
        if !twice.is_repeated() {
            tally.lost(all - pending);
        }
    }

    /// Reports an attempt that its effect has failed, as any other.
    fn effect_failed(&self, outcome: &Outcome, handler: Option<&str>, failure: &Failure) {
        let (shared, (stream, entry)) = (&self.link.shared, outcome.place);
        let id = outcome.id.clone().unwrap_or_else(|| entry.to_string());
        let (stream, attempt) = (&*self.link.streams[stream].0, outcome.attempt);
        let attempts_max = shared.config.attempts_max;
        // A dead letter has a line of its own.
        if !failure.is_final && attempt < attempts_max {
            let text = &failure.text;
            let failed = Failed { stream, handler, id, attempt, attempts_max, text };
            failed.report(shared);
        }
    }

    /// Names a job by its own id and by its letter, which commands take. The reply with the letter may have
    /// been lost.
    fn buried(&self, outcome: &Outcome, is_in_quarantine: bool, letter: Option<String>) {
        let (shared, (stream, entry)) = (&self.link.shared, outcome.place);
        let place = if is_in_quarantine { ", and its entry stays in the stream" } else { "" };
        shared.tally.dead(1);
        let id = outcome.id.clone().unwrap_or_else(|| entry.to_string());
        let (attempt, End::Failed(failure)) = (outcome.attempt, &outcome.end) else { return };
        let letter =
            letter.map_or("a dead letter".to_owned(), |of| format!("the dead letter {of}"));
        shared.reporter.say(&format!(
            "{}: {id} is {letter} after {attempt} attempt(s){place}: {}",
            self.link.streams[stream].0,
            failure.text.lines().next().unwrap_or_default()
        ));
    }

    /// The entries in a reply that this consumer no longer owns.
    fn lose_all(&mut self, stream: usize, reply: &Value) -> Vec<EntryId> {
        let (mut lost, gone) = (ids(reply), ids_after(GONE_WORD, reply));
        self.lose(stream, lost.clone());
        // No consumer has them, so none must learn that this one lives.
        gone.iter().for_each(|&id| drop(self.link.lose((stream, id))));
        self.gone(stream, &gone);
        lost.extend(gone);
        lost
    }

    /// Reports entries of this consumer that another program has deleted.
    fn gone(&self, stream: usize, ids: &[EntryId]) {
        let Some(first) = ids.first() else { return };
        let more =
            if ids.len() > 1 { format!(" and {} more", ids.len() - 1) } else { String::new() };
        self.link.shared.reporter.say(&format!(
            "{}: another program has deleted {first}{more}: no further attempt, and no dead letter",
            self.link.streams[stream].0
        ));
    }

    /// Entries that other consumers own. Those that have begun here did not kill this one.
    fn lose(&mut self, stream: usize, ids: Vec<EntryId>) {
        let places = ids.into_iter().map(|id| (stream, id));
        self.lost.extend(places.filter_map(|place| self.link.lose(place)));
    }

    /// Jobs that were buried while this consumer, which had begun them, was away.
    fn unburied(&self, stream: usize, ids: &[EntryId]) {
        for id in ids {
            let stream = &self.link.streams[stream].0;
            self.link.shared.reporter.say(&format!(
                "{stream}: {id} is no dead letter any more, and runs again: its consumer was cut off, \
                 and has not died"
            ));
        }
    }

    fn reclaimed(&mut self, stream: usize, reply: Value, found: Option<Delivered>) {
        // It has had its turn.
        self.link.shared.leave_line(&self.link);
        let (Value::Array(parts), Some(found)) = (reply, found) else { return };
        let Ok([Value::BulkString(cursor), Value::Array(suspects), Value::Int(count)]) =
            <[Value; 3]>::try_from(parts)
        else {
            return;
        };
        let now = Instant::now();
        // What the consumer itself has handed back is no takeover.
        let Ok(count) = u64::try_from(count) else {
            self.next.came_too_late(now);
            return self.end_orphans_first(stream);
        };
        for (id, seen) in suspects.iter().filter_map(suspect) {
            self.suspects.look(now, (stream, id), seen);
        }
        self.suspects.forget(now);
        self.link.shared.tally.reclaimed(count);
        self.took[stream].add(count, Instant::now());
        self.cursors[stream] = String::from_utf8_lossy(&cursor).into_owned();
        // The pass is not over.
        let is_over = cursor == b"0-0";
        if is_over && count == 0 {
            self.took[stream].has_all();
        }
        if !is_over {
            self.next.reclaim[stream] = Instant::now();
        }
        self.link.admit(stream, found);
        if is_over {
            self.end_orphans_first(stream);
        }
    }

    fn promoted(&mut self, stream: usize, reply: &Value) {
        let Value::Array(parts) = reply else { return };
        let [Value::Int(buried), Value::Int(stuck), Value::Int(next_ms), why] = &parts[..] else {
            return;
        };
        let (&buried, &stuck, &next_ms) = (buried, stuck, next_ms);
        if buried > 0 {
            let (shared, name) = (&self.link.shared, &self.link.streams[stream].0);
            shared.tally.dead(buried.cast_unsigned());
            shared.reporter.say(&format!(
                "{name}: {buried} delayed member(s) that are no jobs of uwork are dead letters"
            ));
        }
        if stuck > 0 {
            let name = &self.link.streams[stream].0;
            self.link.shared.reporter.say(&format!(
                "{name}: neither the stream nor the dead letters take {stuck} delayed member(s), \
                 which are tried again in a minute: {}",
                text(why).lines().next().unwrap_or_default()
            ));
        }
        if let Ok(next_ms) = u64::try_from(next_ms) {
            let next = Duration::from_millis(next_ms).min(PROMOTE_EVERY);
            self.next.promote[stream] = Instant::now() + next;
        }
    }
}
