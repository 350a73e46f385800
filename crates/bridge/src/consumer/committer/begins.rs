//! The records of begins, and the job that runs alone.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::Cmd;

use super::{BEATS_MAX, Committer, RECORD_EVERY};
use crate::consumer::alone::Alone;
use crate::consumer::commands as command_of;
use crate::consumer::link::{Lost, Place};
use crate::consumer::run::Waiting;
use crate::consumer::sent::Sent;

impl Committer {
    /// Begins: of jobs that wait for it, and of runs that last. They are signs of life, and like
    /// heartbeats go before the outcomes.
    pub(super) fn add_begins(
        &mut self,
        now: Instant,
        commands: &mut Vec<Cmd>,
        sent: &mut Vec<Sent>,
    ) {
        self.parked.append(&mut self.link.take_waiting());
        self.parked.retain(|waiting| !waiting.is_settled());
        self.watch_alone(now);
        let shared = &self.link.shared;
        let chosen = self.alone.as_ref().map(|alone| alone.place);
        let is_free = shared.held() == 1 && !shared.hangs();
        let is_ready =
            |waiting: &mut Waiting| !waiting.is_alone || (is_free && chosen == Some(waiting.place));
        let mut by_stream: BTreeMap<usize, Vec<Waiting>> = BTreeMap::new();
        for waiting in self.parked.extract_if(.., is_ready) {
            by_stream.entry(waiting.place.0).or_default().push(waiting);
        }
        for (stream, waiting) in by_stream {
            let begins = waiting.iter().map(|waiting| (waiting.place, waiting.is_alone));
            commands.push(command_of::begin(&self.link, stream, begins));
            sent.push(Sent::Begin(stream, waiting));
        }
        if let Some(place) = chosen
            && self.alone.as_ref().is_some_and(|alone| alone.is_long(now))
        {
            let beside = std::iter::once((place, false));
            commands.push(command_of::begin(&self.link, place.0, beside));
            sent.push(Sent::Record(place.0, vec![place]));
        }
        if now >= self.next.spare || self.link.is_closing() {
            self.add_spares(commands, sent);
        }
        if now < self.record {
            return;
        }
        self.record = now + RECORD_EVERY;
        for stream in 0..self.link.streams.len() {
            for runs in self.link.unrecorded(stream).chunks(BEATS_MAX) {
                let begins = runs.iter().map(|place| (*place, false));
                commands.push(command_of::begin(&self.link, stream, begins));
                sent.push(Sent::Record(stream, runs.to_vec()));
            }
        }
    }

    /// Signs of life for jobs that were lost.
    fn add_spares(&mut self, commands: &mut Vec<Cmd>, sent: &mut Vec<Sent>) {
        let mut by_stream: BTreeMap<usize, Vec<Lost>> = BTreeMap::new();
        for lost in self.lost.drain(..) {
            by_stream.entry(lost.place.0).or_default().push(lost);
        }
        for (stream, mut lost) in by_stream {
            while !lost.is_empty() {
                let rest = lost.split_off(lost.len().min(BEATS_MAX));
                commands.push(command_of::spare(&self.link, stream, &lost));
                sent.push(Sent::Spare(stream, std::mem::replace(&mut lost, rest)));
            }
        }
    }

    /// Whether to take over a job that must run alone.
    pub(super) fn takes_one(&self, now: Instant) -> bool {
        self.turns.takes_one(now, self.link.shared.held())
    }

    /// Chooses the job that runs alone. All others that have not begun are handed back meanwhile. It
    /// is handed back itself if the others do not end in time.
    pub(super) fn watch_alone(&mut self, now: Instant) {
        let shared = self.link.shared.clone();
        if let Some(alone) = &mut self.alone {
            let is_held = self.link.is_held(&alone.place);
            let has_ended = alone.has_begun() && self.link.is_settled(&alone.place);
            if is_held && alone.lets_others_run(now, has_ended) {
                shared.end_alone();
            }
            let in_vain = is_held
                && (alone.is_in_vain(now, &self.turns) || (!alone.has_begun() && shared.hangs()));
            if in_vain {
                self.link.hand_back(alone.place);
                self.turns.waited_in_vain(now);
            } else if alone.has_begun() && !is_held {
                self.turns.has_run();
            }
            if in_vain || !is_held {
                self.end_alone();
            }
        }
        let candidate =
            self.parked.iter().find(|waiting| waiting.is_alone && !waiting.is_settled());
        if let Some(waiting) = candidate {
            if shared.hangs() {
                self.link.hand_back(waiting.place);
            } else if self.alone.is_none() && shared.begin_alone() {
                let attempt = self.link.attempt(&waiting.place).unwrap_or_default();
                let surplus = attempt.saturating_sub(shared.config.attempts_max);
                let heartbeat = shared.config.heartbeat;
                self.alone = Some(Alone::new(now, waiting.place, heartbeat, surplus));
            }
        }
        if shared.is_alone() {
            self.link.hand_back_all_but(self.alone.as_ref().map(|alone| alone.place));
        }
    }

    /// The server knows that a job has begun, perhaps alone.
    pub(super) fn begun(&mut self, place: Place) {
        if let Some(alone) = self.alone.as_mut().filter(|alone| alone.place == place) {
            alone.begins(Instant::now());
        }
    }

    /// The server knows that others run beside a job from now on, or that it is another consumer's.
    pub(super) fn runs_beside(&mut self, place: Place) {
        if self.alone.as_ref().is_some_and(|alone| alone.place == place) {
            self.turns.has_run();
            self.end_alone();
        }
    }

    fn end_alone(&mut self) {
        // Else another shard's job may run alone now.
        if self.alone.take().is_some_and(|alone| !alone.others_run()) {
            self.link.shared.end_alone();
        }
    }
}
