//! What becomes of an entry that the server has delivered: it is held, and its job is queued, decided or
//! handed back.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::delivered::Delivered;
use super::link::{DIED, Held, Link, Place};
use super::outcome::{End, Outcome, Twice};
use super::pause::Trial;
use super::run::Run;
use super::shared::lock;
use crate::handler::Failure;
use crate::job::{Entry, Fields, Job, Ticket};
use crate::policy::{self, Begin, Deliveries};

/// An entry that is held from now on.
struct Admitted {
    place: Place,
    attempt: u32,
    /// The server's counter when it was delivered.
    of: Deliveries,
    ticket: Arc<Ticket>,
    /// None if there was no memory for them.
    fields: Option<Fields>,
}

impl Link {
    /// Takes entries that the server has delivered to this consumer, and queues their jobs. Entries
    /// that are held already are skipped, and those without memory are handed back.
    pub(super) fn admit(self: &Arc<Self>, stream: usize, mut delivered: Delivered) {
        let entries = std::mem::take(&mut delivered.entries);
        if entries.is_empty() {
            return;
        }
        self.shared.has_read(delivered.largest);
        let was_slow = delivered.since.elapsed() > self.shared.config.heartbeat / 2;
        // The server may know another owner by now, or none.
        let are_doubted = was_slow || delivered.are_orphans;
        let admitted = self.hold(stream, entries, &mut delivered);
        // From here on heartbeats go to those that are held, and to none that is handed back.
        delivered.end_arrivals();
        for admitted in admitted {
            self.queue(admitted, are_doubted, &mut delivered);
        }
    }

    /// Adds entries to those that are held.
    fn hold(&self, stream: usize, entries: Vec<Entry>, delivered: &mut Delivered) -> Vec<Admitted> {
        let mut admitted = Vec::with_capacity(entries.len());
        let mut held = lock(&self.held);
        if self.shared.sealed.load(Ordering::Relaxed) {
            return admitted;
        }
        for Entry { id, of, fields, bytes } in entries {
            let place = (stream, id);
            let vacant = match held.entry(place) {
                Vacant(vacant) => vacant,
                Occupied(mut back) => {
                    // Another consumer had it meanwhile. Its run here is news again if that one takes
                    // it once more.
                    back.get_mut().is_lost = false;
                    continue;
                }
            };
            let known = fields.as_ref();
            let before = known.map_or(0, |fields| fields.attempts).saturating_add(of.begun);
            let attempt = before.saturating_add(1);
            let payload = known.and_then(|fields| fields.payload.as_ref()).map_or(0, Vec::len);
            let ticket = Ticket::new();
            vacant.insert(Held {
                ticket: ticket.clone(),
                id: known.and_then(|fields| fields.id.clone()),
                attempt,
                of,
                first: known.and_then(|fields| fields.first.clone()),
                is_lost: false,
                bytes: delivered.leave(bytes - payload),
            });
            admitted.push(Admitted { place, attempt, of, ticket, fields });
        }
        // Before another thread can decide and release them: the count would fall below zero.
        self.shared.add(admitted.len());
        admitted
    }

    /// Queues the job of an entry, or decides it, or hands it back.
    fn queue(self: &Arc<Self>, entry: Admitted, are_doubted: bool, delivered: &mut Delivered) {
        let Admitted { place, attempt, of, ticket, fields } = entry;
        let config = &self.shared.config;
        let decide = |attempt, id, twice, end| {
            let may_decide = match end {
                End::HandBack => ticket.settle_unstarted(),
                _ => ticket.settle(),
            };
            if may_decide {
                self.deliver(Outcome { place, id, attempt, twice, end });
            }
        };
        let Some(fields) = fields else {
            return decide(attempt, None, Twice::IfMissing, End::HandBack);
        };
        if let Some(group) = fields.group.filter(|group| *group != config.group)
            && !self.must_run(&place)
        {
            return decide(attempt, None, Twice::IfMissing, End::Skipped(group));
        }
        let begin = policy::how_to_begin(fields.attempts, of, config.attempts_max);
        if begin == Begin::Never {
            let before = fields.last_error.as_deref().unwrap_or("none was recorded");
            let text = match of.begun {
                0 => "all its attempts are used up",
                _ => DIED,
            };
            let failure = Failure::dead(format!("{text}; the last error: {before}"));
            // This attempt is not made.
            return decide(attempt - 1, fields.id, Twice::IfMissing, End::Failed(failure));
        }
        let trial = Trial::take(&self.shared, &ticket);
        let is_late = self.shared.pause.is_on() && trial.is_none();
        if self.shared.is_alone() || is_late {
            // It was on its way when the job began that runs alone, or when the pause did.
            return decide(attempt, fields.id, Twice::IfMissing, End::HandBack);
        }
        let Some(payload) = fields.payload else {
            let failure = Failure::dead("the entry has no field \"p\", the payload");
            return decide(attempt, fields.id, Twice::IfMissing, End::Failed(failure));
        };
        let bytes = delivered.leave(payload.len());
        let job = Job {
            stream: self.streams[place.0].0.clone(),
            entry: place.1,
            payload,
            handler: fields.handler,
            id: fields.id,
            key: fields.key,
            attempt,
            last_error: fields.last_error,
            first: fields.first,
            limit: config.limit,
            ticket,
            trial,
        };
        let record = (begin != Begin::Now || are_doubted).then_some(begin == Begin::Alone);
        let is_again = of.is_again();
        let run = Run { link: self.clone(), place, is_again, record, bytes, job: Some(job) };
        drop(self.shared.queue.spawn(move || run.run()));
    }
}
