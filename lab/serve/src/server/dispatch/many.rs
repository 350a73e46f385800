//! Requests for many keys that belong to several threads.

use super::{Dispatch, Flow};
use crate::command::operation::{OUT_OF_MEMORY, Operation, Outcome, Place, SYNTAX};
use crate::keyspace::OutOfMemory;
use crate::resp::{Args, reply};
use crate::server::dispatch::Thread;
use crate::server::round::{Gather, GatherKind, Part};

impl Dispatch<'_> {
    /// Requests the value of each key, for one reply.
    ///
    /// # Errors
    /// There is no memory for the reply; no part of it may be sent.
    pub(super) fn values(&mut self, keys: Args<'_>) -> Result<(), OutOfMemory> {
        let (before, had_round) = (self.output.len(), self.round.is_some());
        self.here(|out| reply::array(out, keys.len()));
        for place in 0..keys.len() {
            let room = match self.round {
                None => self.output.make_room_for_line(),
                Some(round) => round.here.make_room_for_line(),
            };
            if room.is_err() {
                if let Some(round) = self.round {
                    round.has_failed = true;
                }
                if !had_round {
                    self.output.bytes.truncate(before);
                }
                return Err(OutOfMemory);
            }
            let key = keys.slice(place, 1);
            let hash = self.thread.shared.hash(key.at(0));
            let owner = self.thread.shared.owner(hash);
            if owner == self.thread.index {
                self.perform(Operation::Get, hash, key);
                continue;
            }
            // From here on, each key adds at most one part.
            let room = self.open_round().parts.make_room(keys.len() - place);
            if room.and_then(|()| self.send(owner, Operation::Get, hash, key)).is_err() {
                self.here(|out| reply::error(out, OUT_OF_MEMORY));
            }
        }
        Ok(())
    }

    /// Executes an operation on each key, for one combined reply.
    pub(super) fn gather(
        &mut self,
        kind: GatherKind,
        operation: Operation,
        operands: Args<'_>,
        step: usize,
    ) {
        let mut gather = Gather::new(kind);
        // The position of the combined reply, known once a key belongs to another thread.
        let (mut place, mut there) = (None, 0);
        for first in (0..operands.len()).step_by(step) {
            let args = operands.slice(first, step);
            let hash = self.thread.shared.hash(args.at(0));
            let owner = self.thread.shared.owner(hash);
            if owner == self.thread.index {
                gather.add(self.count(operation, hash, args));
                continue;
            }
            if place.is_none() {
                let parts = &mut self.open_round().parts;
                place = Some(parts.len());
                parts.push(Part::Gathered(gather, 0));
            }
            let left = (operands.len() - first).div_ceil(step);
            let room = self.open_round().parts.make_room(left);
            match room.and_then(|()| self.send(owner, operation, hash, args)) {
                Ok(()) => there += 1,
                Err(OutOfMemory) => gather.add(Outcome::OutOfMemory),
            }
        }
        match place {
            None => {
                self.here(|out| gather.reply(out));
            }
            Some(place) => self.open_round().parts[place] = Part::Gathered(gather, there),
        }
    }

    /// Executes an operation on one of this thread's keys that only counts towards a reply and
    /// therefore needs no part.
    fn count(&mut self, operation: Operation, hash: u64, args: Args<'_>) -> Outcome {
        let Thread { keys, now, .. } = &mut *self.thread;
        let mut place = Place { keys, now: *now, version: self.session.version };
        place.perform(operation, hash, args, self.output)
    }

    pub(super) fn flush_all(&mut self, options: Args<'_>) -> Flow {
        let is_known = |option: &[u8]| {
            option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync")
        };
        if options.len() > 1 || !options.iter().all(is_known) {
            return self.here(|out| reply::error(out, SYNTAX));
        }
        let mut gather = Gather::new(GatherKind::Ok);
        let nothing = options.slice(0, 0);
        let threads = self.thread.shared.posts.len();
        // The position of the combined reply, if other threads take part. It is filled in at the
        // end, when their number is known.
        let place = (threads > 1).then(|| {
            let parts = &mut self.open_round().parts;
            parts.push(Part::Gathered(gather, 0));
            parts.len() - 1
        });
        let mut there = 0;
        for thread in 0..threads {
            if thread == self.thread.index {
                gather.add(self.count(Operation::Clear, 0, nothing));
            } else {
                match self.send(thread, Operation::Clear, 0, nothing) {
                    Ok(()) => there += 1,
                    Err(OutOfMemory) => gather.add(Outcome::OutOfMemory),
                }
            }
        }
        match place {
            None => _ = self.here(|out| gather.reply(out)),
            Some(place) => self.open_round().parts[place] = Part::Gathered(gather, there),
        }
        Flow::EndRound
    }
}
