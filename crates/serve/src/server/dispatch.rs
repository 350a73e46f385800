//! From a request to what is done about it: here, on other threads, or on a worker.

mod many;

use std::sync::Arc;

use super::handover::Item;
use super::round::{GatherKind, Pace, Part, Round};
use super::session::{self, Session};
use super::shared::Shared;
use super::sink::Sink;
use super::spare::Spare;
use crate::buffer::Buffer;
use crate::command::check::{Refusal, check};
use crate::command::operation::{OUT_OF_MEMORY, Operation, Outcome, Place};
use crate::command::table::Command;
use crate::keyspace::{Keyspace, OutOfMemory};
use crate::resp::{Args, reply};

/// A round leaves once it has so many bytes of arguments for one thread, or of replies.
const ROUND_BYTES_MAX: usize = 256 * 1024;

/// What one thread has, apart from its connections.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) keys: Keyspace,
    /// The time of this turn.
    pub(crate) now: u64,
    pub(crate) spare: Spare,
    pub(crate) requests: u64,
    pub(crate) handovers: u64,
    /// Empty between calls; kept for its memory.
    leaving: Vec<(usize, Item)>,
    /// There may be something in the inbox of which nobody told.
    pub(crate) looks_again: bool,
}

impl Thread {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            index,
            keys: Keyspace::new(Arc::clone(&shared.budget)),
            now: shared.now(),
            spare: Spare::new(&shared),
            requests: 0,
            handovers: 0,
            leaving: Vec::new(),
            looks_again: false,
            shared,
        }
    }

    /// Tells what this thread has done. Before anything that depends on it leaves.
    pub(crate) fn publish(&self) {
        use std::sync::atomic::Ordering::{Relaxed, Release};

        let figures = &self.shared.figures[self.index];
        figures.keys.store(self.keys.len(), Release);
        figures.expiring.store(self.keys.expiring(), Relaxed);
        figures.requests.store(self.requests, Relaxed);
        figures.handovers.store(self.handovers, Relaxed);
    }

    /// Does what an item asks for, and sends it on: home, or to a worker first.
    pub(crate) fn carry_out(&mut self, mut item: Item) {
        self.handovers += 1;
        let digest = item.as_mut().body().perform(&mut self.keys, self.now);
        self.publish();
        if digest {
            self.shared.digest(item);
        } else {
            self.shared.return_item(item);
        }
    }
}

/// What comes after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next one.
    Next,
    /// The end of the round, then the next one.
    EndRound,
    /// The end of the round, then this one again.
    Again,
    /// The end of the connection.
    Close,
    /// As `Close`: there is no memory for the reply.
    OutOfMemory,
}

/// Whether a line is of a request in HTTP, which a browser may have been led to send: behind its head come bytes that
/// somebody else has chosen, so that nothing more may be looked at.
#[cold]
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// One connection's requests on their way.
pub(crate) struct Dispatch<'a> {
    pub(crate) thread: &'a mut Thread,
    pub(crate) output: &'a mut Buffer,
    pub(crate) round: &'a mut Option<Box<Round>>,
    pub(crate) session: &'a mut Session,
    pub(crate) connection: usize,
    /// A round of so much leaves.
    pub(crate) pace: Pace,
}

impl Dispatch<'_> {
    /// Does what the request asks for, as far as it can be done here.
    #[inline]
    pub(crate) fn request(&mut self, args: Args<'_>) -> Flow {
        self.thread.requests += 1;
        let command = match check(args) {
            Ok(command) => command,
            Err(Refusal::Unknown(args)) if is_http(args.at(0)) => {
                self.thread.shared.tell_of_http(self.session.address);
                return Flow::Close;
            }
            Err(refusal) => return self.here(|out| refusal.reply(out)),
        };
        let operands = args.from(1);
        match command {
            Command::Get => self.operation(Operation::Get, operands),
            Command::Set => self.operation(Operation::Set, operands),
            Command::Incr => self.operation(Operation::Incr, operands),
            Command::Incrby => self.operation(Operation::Incrby, operands),
            Command::Expire => self.operation(Operation::Expire, operands),
            Command::Ttl => self.operation(Operation::Ttl, operands),
            // Of more than may be noted down at once: not in a round with others, so that their replies are safe.
            Command::Mget if self.round.is_some() && operands.len() > self.pace.parts => {
                self.thread.requests -= 1;
                return Flow::Again;
            }
            Command::Mget => {
                if self.values(operands).is_err() {
                    return Flow::OutOfMemory;
                }
            }
            Command::Mset => self.gather(GatherKind::Ok, Operation::Put, operands, 2),
            Command::Del => self.gather(GatherKind::Sum, Operation::Remove, operands, 1),
            Command::Exists => self.gather(GatherKind::Sum, Operation::Contains, operands, 1),
            Command::Digest => return self.digest(operands),
            // About more than its own keys: what was asked before comes before it.
            _ if self.round.is_some() => {
                self.thread.requests -= 1;
                return Flow::Again;
            }
            Command::Flushall => return self.flush_all(operands),
            _ => {
                self.thread.publish();
                let Self { thread, session, output, .. } = self;
                return session::reply(command, args, &thread.shared, session, output);
            }
        }
        self.flow()
    }

    fn flow(&self) -> Flow {
        match &self.round {
            Some(round) if round.parts.len() >= self.pace.parts => Flow::EndRound,
            Some(round) if round.bytes.max(round.here.len()) > ROUND_BYTES_MAX => Flow::EndRound,
            _ => Flow::Next,
        }
    }

    /// Writes a reply in its place.
    fn here(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Flow {
        match self.round {
            None => write(&mut self.output.bytes),
            Some(round) => {
                write(&mut round.here.bytes);
                round.note_here();
            }
        }
        Flow::Next
    }

    /// An operation with a reply of its own.
    #[inline]
    fn operation(&mut self, operation: Operation, args: Args<'_>) {
        let hash = self.thread.shared.hash(args.at(0));
        let owner = self.thread.shared.owner(hash);
        if owner == self.thread.index {
            self.perform(operation, hash, args);
        } else if self.send(owner, operation, hash, args).is_err() {
            self.here(|out| reply::error(out, OUT_OF_MEMORY));
        }
    }

    /// On a key that this thread owns.
    #[inline]
    fn perform(&mut self, operation: Operation, hash: u64, args: Args<'_>) -> Outcome {
        let Thread { keys, now, .. } = &mut *self.thread;
        let mut place = Place { keys, now: *now, version: self.session.version };
        match self.round {
            None => place.perform(operation, hash, args, self.output),
            Some(round) => {
                let outcome = place.perform(operation, hash, args, &mut round.here);
                round.note_here();
                outcome
            }
        }
    }

    /// On a key that another thread owns.
    fn send(
        &mut self,
        owner: usize,
        operation: Operation,
        hash: u64,
        args: Args<'_>,
    ) -> Result<(), OutOfMemory> {
        let place = self.item(owner);
        let round = self.open_round();
        let body = round.item(place);
        body.add(operation, hash, args)?;
        let bytes = body.len();
        round.parts.push(Part::There(place));
        round.bytes = round.bytes.max(bytes);
        Ok(())
    }

    fn open_round(&mut self) -> &mut Round {
        if self.round.is_none() {
            *self.round = Some(self.thread.spare.take_round());
        }
        self.round.as_mut().expect("it is open")
    }

    /// The place of the item for the thread.
    fn item(&mut self, thread: usize) -> usize {
        if let Some(place) = self.open_round().open(thread) {
            return place;
        }
        let mut item = self.thread.spare.take_item();
        let body = item.as_mut().body();
        (body.home, body.connection) = (self.thread.index, self.connection);
        body.version = self.session.version;
        self.open_round().add(thread, item)
    }

    /// The last operation of its item, which is on its way for long, while others go on.
    fn digest(&mut self, args: Args<'_>) -> Flow {
        let hash = self.thread.shared.hash(args.at(0));
        let owner = self.thread.shared.owner(hash);
        if self.send(owner, Operation::Fetch, hash, args).is_err() {
            return self.here(|out| reply::error(out, OUT_OF_MEMORY));
        }
        let (place, index) = (self.item(owner), self.thread.index);
        let digests_max = self.pace.digests;
        let Self { round: Some(round), thread, .. } = self else { return Flow::EndRound };
        round.close(owner);
        if owner == index {
            // What comes next may change the value. `post` has the digest made, if there is one.
            let _ = round.item(place).perform(&mut thread.keys, thread.now);
        }
        round.digests += 1;
        if round.digests >= digests_max { Flow::EndRound } else { self.flow() }
    }

    /// Sends the items of the round away; they and the round meet again at the sink. `false` if there are none.
    pub(crate) fn lend(&mut self, sink: &Arc<Sink>) -> bool {
        let Some(mut round) = self.round.take() else { return false };
        for mut item in round.items.iter_mut().filter_map(Option::take) {
            let target = item.as_mut().body().target;
            self.thread.leaving.push((target, item));
        }
        round.out = self.thread.leaving.len();
        if round.out == 0 {
            *self.round = Some(round);
            return false;
        }
        let Thread { shared, leaving, .. } = &mut *self.thread;
        sink.lend(shared, round);
        for (thread, mut item) in leaving.drain(..) {
            item.as_mut().body().sink = Some(Arc::clone(sink));
            shared.hand_over(thread, item);
        }
        true
    }

    /// Sends the items of the round away, and what this very thread has fetched to workers.
    pub(crate) fn post(&mut self) {
        let Some(round) = self.round else { return };
        for slot in &mut round.items {
            let Some(mut item) = slot.take() else { continue };
            let body = item.as_mut().body();
            if body.is_done {
                *slot = Some(item);
                continue;
            }
            round.out += 1;
            match body.target {
                thread if thread == self.thread.index => self.thread.shared.digest(item),
                thread => self.thread.shared.hand_over(thread, item),
            }
        }
    }
}
