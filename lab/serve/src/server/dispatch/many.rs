//! Requests for many keys that belong to several threads.

use super::{Dispatch, Flow};
use crate::command::operation::{OUT_OF_MEMORY, Operation, Outcome, Place, SYNTAX, free_cleared};
use crate::keyspace::{Keyspace, OutOfMemory};
use crate::resp::{Args, reply};
use crate::server::round::{Gather, GatherKind, Part};

/// A combined reply under construction.
struct Gathered {
    gather: Gather,
    /// The position of its part, once an operation is sent to another thread.
    place: Option<usize>,
    /// How many operations are sent; their parts follow.
    there: u32,
}

impl Gathered {
    fn new(kind: GatherKind) -> Self {
        Self { gather: Gather::new(kind), place: None, there: 0 }
    }
}

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
            if self.perform(owner, Operation::Get, hash, key) {
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
        let mut gathered = Gathered::new(kind);
        for first in (0..operands.len()).step_by(step) {
            let args = operands.slice(first, step);
            let hash = self.thread.shared.hash(args.at(0));
            let owner = self.thread.shared.owner(hash);
            let left = (operands.len() - first).div_ceil(step);
            self.add(&mut gathered, (owner, left), operation, hash, args);
        }
        self.end(gathered);
    }

    /// Executes an operation that only counts towards a combined reply, or sends it to the owner.
    /// `left`: how many operations the reply still combines, this one included.
    fn add(
        &mut self,
        gathered: &mut Gathered,
        (owner, left): (usize, usize),
        operation: Operation,
        hash: u64,
        args: Args<'_>,
    ) {
        let is_awaited = self.awaits(owner);
        let Self { thread, session, output, .. } = self;
        let (now, version) = (thread.now, session.version);
        // It writes no reply, and therefore needs no part.
        let operate = |keys: &mut Keyspace| {
            Place { keys, now, version }.perform(operation, hash, args, output)
        };
        if let Some(outcome) = thread.operate(owner, is_awaited, operate) {
            return gathered.gather.add(outcome);
        }
        self.add_there(gathered, (owner, left), operation, hash, args);
    }

    /// Sends an operation that only counts towards a combined reply to the owner. `left`: for how
    /// many operations to ask for room.
    fn add_there(
        &mut self,
        gathered: &mut Gathered,
        (owner, left): (usize, usize),
        operation: Operation,
        hash: u64,
        args: Args<'_>,
    ) {
        let parts = &mut self.open_round().parts;
        if gathered.place.is_none() {
            gathered.place = Some(parts.len());
            parts.push(Part::Gathered(gathered.gather, 0));
        }
        let room = parts.make_room(left);
        match room.and_then(|()| self.send(owner, operation, hash, args)) {
            Ok(()) => gathered.there += 1,
            Err(OutOfMemory) => gathered.gather.add(Outcome::OutOfMemory),
        }
    }

    /// Writes the combined reply, or fills in its part.
    fn end(&mut self, gathered: Gathered) {
        let Gathered { gather, place, there } = gathered;
        match place {
            None => _ = self.here(|out| gather.reply(out)),
            Some(place) => self.open_round().parts[place] = Part::Gathered(gather, there),
        }
    }

    pub(super) fn flush_all(&mut self, options: Args<'_>) -> Flow {
        let is_known = |option: &[u8]| {
            option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync")
        };
        if options.len() > 1 || !options.iter().all(is_known) {
            return self.here(|out| reply::error(out, SYNTAX));
        }
        let mut gathered = Gathered::new(GatherKind::Ok);
        for owner in 0..self.thread.shared.posts.len() {
            // The request has no round before it, so no earlier operation waits for the owner.
            if let Some(keys) = self.thread.operate(owner, false, Keyspace::clear) {
                free_cleared(keys);
                continue;
            }
            // It asks for no room, because it must work with no memory left: there is at most one
            // part for each thread.
            self.add_there(&mut gathered, (owner, 0), Operation::Clear, 0, options.slice(0, 0));
        }
        self.end(gathered);
        Flow::EndRound
    }
}
