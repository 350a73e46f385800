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
use crate::command::operation::{OUT_OF_MEMORY, Operation, Place, free_cleared};
use crate::command::table::Command;
use crate::keyspace::{Keyspace, OutOfMemory};
use crate::resp::{Args, reply};

/// A round is sent once it has this many bytes of arguments for one thread, or of replies.
const ROUND_BYTES_MAX: usize = 256 * 1024;

/// The state of one server thread except its connections.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
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
        use std::sync::atomic::Ordering::Relaxed;

        let figures = &self.shared.figures[self.index];
        figures.requests.store(self.requests, Relaxed);
        figures.handovers.store(self.handovers, Relaxed);
    }

    /// Operates on the owner's keys, if this thread may do so now. `is_awaited`: earlier operations
    /// of the same connection wait for the owner.
    #[inline]
    fn operate<R>(
        &self,
        owner: usize,
        is_awaited: bool,
        operate: impl FnOnce(&mut Keyspace) -> R,
    ) -> Option<R> {
        if owner == self.index {
            Some(self.shared.shard(owner).operate(operate))
        } else if is_awaited || !self.shared.operates_in_place() {
            None
        } else {
            self.shared.operate_in_place(owner, operate)
        }
    }

    /// Executes the operations of an item and passes it on: to its home thread, or to a worker
    /// first.
    pub(crate) fn carry_out(&mut self, mut item: Item) {
        self.handovers += 1;
        let (body, now) = (item.as_mut().body(), self.now);
        let digest = self.shared.shard(self.index).operate(|keys| body.perform(keys, now));
        if let Some(keys) = body.cleared.take() {
            free_cleared(keys);
        }
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
        if !self.perform(owner, operation, hash, args)
            && self.send(owner, operation, hash, args).is_err()
        {
            self.here(|out| reply::error(out, OUT_OF_MEMORY));
        }
    }

    /// Executes an operation that has a reply of its own, if this thread may use the owner's keys
    /// now; returns whether it has.
    #[inline]
    fn perform(&mut self, owner: usize, operation: Operation, hash: u64, args: Args<'_>) -> bool {
        let is_awaited = self.awaits(owner);
        let Self { thread, output, round, session, .. } = self;
        let (now, version) = (thread.now, session.version);
        let into = match &mut **round {
            None => &mut **output,
            Some(round) => &mut round.here,
        };
        let operate = |keys: &mut Keyspace| {
            Place { keys, now, version }.perform(operation, hash, args, into);
        };
        let is_done = thread.operate(owner, is_awaited, operate).is_some();
        if is_done && let Some(round) = &mut **round {
            round.note_here();
        }
        is_done
    }

    /// Whether earlier operations of this connection wait for the owner, another thread.
    #[inline]
    fn awaits(&self, owner: usize) -> bool {
        owner != self.thread.index && self.round.as_ref().is_some_and(|round| round.awaits(owner))
    }

    /// Adds an operation that another thread is to execute to the round.
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
        let is_awaited = self.awaits(owner);
        if self.send(owner, Operation::Fetch, hash, args).is_err() {
            return self.here(|out| reply::error(out, OUT_OF_MEMORY));
        }
        let place = self.item(owner);
        let digests_max = self.pace.digests;
        let Self { round: Some(round), thread, .. } = self else { return Flow::EndRound };
        round.close(owner);
        let (body, now) = (round.item(place), thread.now);
        // The value is fetched now if possible, because a later request may change it. `post` then
        // submits the digest, if there is a value.
        if thread.operate(owner, is_awaited, |keys| body.perform(keys, now)).is_some() {
            body.target = thread.index;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Condition, Expiry};
    use crate::resp::Span;
    use crate::server::Config;
    use crate::server::config::ForeignKeys;
    use crate::server::post::Post;

    /// The state of thread 0 of two.
    fn thread(queue: &str, foreign_keys: ForeignKeys) -> Thread {
        thread_of(2, queue, foreign_keys)
    }

    fn thread_of(threads: usize, queue: &str, foreign_keys: ForeignKeys) -> Thread {
        let heavy = uwork::Queue::builder(queue).build().unwrap();
        let config = Config { threads, foreign_keys, ..Config::default() };
        let posts = (0..threads).map(|_| Post::current()).collect();
        Thread::new(Arc::new(Shared::new(config, 0, heavy, posts, "")), 0)
    }

    /// A key of thread 1.
    fn foreign(thread: &Thread) -> String {
        let shared = &thread.shared;
        let is_foreign = |key: &String| shared.owner(shared.hash(key.as_bytes())) == 1;
        (0..).map(|number: u32| number.to_string()).find(is_foreign).unwrap()
    }

    /// The connection's part of a dispatch.
    struct Client {
        output: Buffer,
        round: Option<Box<Round>>,
        session: Session,
    }

    impl Client {
        fn new(thread: &Thread) -> Self {
            let output = Buffer::new(&thread.shared.budget);
            Self { output, round: None, session: Session::new(1, None, 0) }
        }

        fn request(&mut self, thread: &mut Thread, command: &str, key: &str) {
            let text = format!("{command}{key}");
            let spans = [Span::new(0, command.len()), Span::new(command.len(), key.len())];
            let Self { output, round, session } = self;
            let pace = Pace { parts: 100, digests: 100 };
            let mut dispatch = Dispatch { thread, output, round, session, connection: 0, pace };
            dispatch.request(Args::new(text.as_bytes(), &spans));
        }
    }

    #[test]
    fn an_operation_on_a_foreign_key_is_executed_in_place() {
        let mut thread = thread("dispatch-in-place", ForeignKeys::InPlace);
        let (key, mut client) = (foreign(&thread), Client::new(&thread));
        client.request(&mut thread, "INCR", &key);
        client.request(&mut thread, "INCR", &key);
        client.request(&mut thread, "DEL", &key);
        assert_eq!(client.output.bytes, b":1\r\n:2\r\n:1\r\n");
        assert!(client.round.is_none());
    }

    #[test]
    fn an_operation_is_handed_over_if_that_is_configured() {
        let mut thread = thread("dispatch-handed-over", ForeignKeys::HandedOver);
        let (key, mut client) = (foreign(&thread), Client::new(&thread));
        client.request(&mut thread, "INCR", &key);
        assert!(client.output.is_empty() && client.round.unwrap().awaits(1));
    }

    // Catches: a later operation that is executed in place before an earlier one on the same key.
    #[test]
    fn operations_behind_one_that_is_handed_over_follow_it() {
        let mut thread = thread("dispatch-follow", ForeignKeys::InPlace);
        let (key, mut client) = (foreign(&thread), Client::new(&thread));
        let shared = Arc::clone(&thread.shared);
        let held = shared.shard(1).hold();
        client.request(&mut thread, "INCR", &key);
        drop(held);
        client.request(&mut thread, "INCR", &key);
        client.request(&mut thread, "MGET", &key);
        client.request(&mut thread, "EXISTS", &key);
        client.request(&mut thread, "DIGEST", &key);
        client.request(&mut thread, "GET", &key);
        assert_eq!(shared.shard(1).len(), 0);
        let mut round = client.round.unwrap();
        assert_eq!(round.items.len(), 2, "a digest is the last operation of its item");
        shared.shard(1).operate(|keys| {
            assert!(round.item(0).perform(keys, 1), "a digest remains");
            assert!(!round.item(1).perform(keys, 1));
        });
        shared.heavy.destroy().unwrap();
        round.item(0).refuse_digest();
        let mut replies = Buffer::new(&shared.budget);
        round.assemble(&mut replies).unwrap();
        let replies = String::from_utf8(replies.bytes.clone()).unwrap();
        assert!(
            replies.starts_with(":1\r\n:2\r\n*1\r\n$1\r\n2\r\n:1\r\n-ERR no digest"),
            "{replies}"
        );
        assert!(replies.ends_with("\r\n$1\r\n2\r\n"), "{replies}");
    }

    // Catches: a FLUSHALL that fails for lack of the memory that it would free.
    #[test]
    fn flushall_works_with_no_memory_left_and_many_threads() {
        let mut thread = thread_of(40, "dispatch-flush", ForeignKeys::HandedOver);
        let mut client = Client::new(&thread);
        let budget = Arc::clone(&thread.shared.budget);
        budget.force(budget.limit());
        client.request(&mut thread, "FLUSHALL", "ASYNC");
        let mut round = client.round.unwrap();
        assert_eq!(round.items.len(), 39);
        let mut keys = Keyspace::new(Arc::clone(&budget));
        for place in 0..39 {
            assert!(!round.item(place).perform(&mut keys, 1));
        }
        let mut replies = Buffer::new(&budget);
        round.assemble(&mut replies).unwrap();
        assert_eq!(replies.bytes, b"+OK\r\n");
    }

    // Catches: a digest of a value that a later request has changed.
    #[test]
    fn the_value_of_a_foreign_digest_is_fetched_in_place() {
        let mut thread = thread("dispatch-digest", ForeignKeys::InPlace);
        let (key, mut client) = (foreign(&thread), Client::new(&thread));
        let hash = thread.shared.hash(key.as_bytes());
        thread.shared.shard(1).operate(|keys| {
            let value = (b"abc", Expiry::Never, Condition::Always);
            keys.set((hash, key.as_bytes()), value.0, value.1, value.2, 1).unwrap();
        });
        client.request(&mut thread, "DIGEST", &key);
        client.request(&mut thread, "DEL", &key);
        let mut round = client.round.unwrap();
        assert_eq!((round.awaits(1), thread.shared.keys()), (false, 0));
        assert_eq!(round.item(0).target, 0, "the item goes to a worker next");
    }
}
