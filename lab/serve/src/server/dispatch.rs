//! Executes a request: on this thread, on other threads, or on a worker.

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

/// A round is sent once it has this many bytes of arguments for one thread, or of replies.
const ROUND_BYTES_MAX: usize = 256 * 1024;

/// The state of one server thread except its connections.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) keys: Keyspace,
    /// The time at the start of this turn, in milliseconds.
    pub(crate) now: u64,
    pub(crate) spare: Spare,
    pub(crate) requests: u64,
    pub(crate) handovers: u64,
    /// Scratch list, empty between calls; kept to reuse its memory.
    leaving: Vec<(usize, Item)>,
    /// The inbox may hold items that were added without a notification, so the thread must check it
    /// again before it waits.
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

    /// Publishes this thread's statistics. Called before replies that depend on them are sent.
    pub(crate) fn publish(&self) {
        use std::sync::atomic::Ordering::{Relaxed, Release};

        let figures = &self.shared.figures[self.index];
        figures.keys.store(self.keys.len(), Release);
        figures.expiring.store(self.keys.expiring(), Relaxed);
        figures.requests.store(self.requests, Relaxed);
        figures.handovers.store(self.handovers, Relaxed);
    }

    /// Executes the operations of an item and passes it on: to its home thread, or to a worker
    /// first.
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

/// The next step after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Process the next request.
    Next,
    /// End the round, then process the next request.
    EndRound,
    /// End the round, then process the same request again.
    Again,
    /// Close the connection.
    Close,
    /// As `Close`, because there is no memory for the reply.
    OutOfMemory,
}

/// Whether the request is a line of an HTTP request. A web page can make a browser send HTTP to
/// this server with a body of the page's choice, so nothing after such a line may be executed.
#[cold]
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The execution context of one connection's requests.
pub(crate) struct Dispatch<'a> {
    pub(crate) thread: &'a mut Thread,
    pub(crate) output: &'a mut Buffer,
    pub(crate) round: &'a mut Option<Box<Round>>,
    pub(crate) session: &'a mut Session,
    pub(crate) connection: usize,
    /// The size at which a round is sent.
    pub(crate) pace: Pace,
}

impl Dispatch<'_> {
    /// Executes the request, as far as this thread can.
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
            // An MGET with more keys than a round may have parts gets a round of its own. If memory
            // runs out, only its own reply is affected.
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
            // The request concerns more than its own keys, so earlier requests must complete first.
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

    /// Writes a reply at its position in the order of replies.
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

    /// Executes an operation that has a reply of its own.
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

    /// Executes an operation on a key of this thread.
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

    /// Adds an operation on a key of another thread to the round.
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

    /// The index of the round's item for the thread.
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

    /// Makes the fetch of a value the last operation of its item, because a worker then keeps that
    /// item for long. Later operations use another item.
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
            // The value is fetched now, because a later request may change it. `post` then submits
            // the digest, if there is a value.
            let _ = round.item(place).perform(&mut thread.keys, thread.now);
        }
        round.digests += 1;
        if round.digests >= digests_max { Flow::EndRound } else { self.flow() }
    }

    /// Sends the round's items to their threads and lends the round to the sink, where they meet
    /// again. Returns `false` if there are no items.
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

    /// Sends the round's items to their threads, and the values that this thread has fetched to
    /// workers.
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
