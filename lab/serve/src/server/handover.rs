//! Operations that a connection requests on another thread's keys: an item that travels to that
//! thread and back.
//!
//! One item carries all operations of a round for one thread: the arguments as text and positions
//! on the way there, the replies on the way back. Threads recycle items, so the memory is reused.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};
use uwork::task::TaskWork;
use uwork::{Work, WorkItem};

use super::round::Round;
use super::shared::Shared;
use super::sink::{Leaving, Sink};
use crate::buffer::Buffer;
use crate::command::operation::{OUT_OF_MEMORY, Operation, Outcome, Place};
use crate::keyspace::{Budget, Keyspace, OutOfMemory};
use crate::notes::Notes;
use crate::resp::reply::{self, Version};
use crate::resp::{Args, Span};

/// Operations that travel to a thread, and their outcomes that travel back.
pub(crate) struct Handover {
    /// Carries the item from thread to thread.
    task: TaskWork<Handover>,
    /// Carries the item to a worker.
    work: Work<Handover>,
    body: Body,
}
uwork::has_task_work!(impl HasTaskWork for Handover { task });
uwork::has_work!(impl HasWork for Handover { work });

/// A pinned handover, as it travels.
pub(crate) type Item = Pin<Box<Handover>>;

/// The contents of a handover.
pub(crate) struct Body {
    shared: Arc<Shared>,
    /// The thread that owns the connection.
    pub(crate) home: usize,
    /// The thread that executes the operations: the owner of the keys, or `home` once they are
    /// executed in place.
    pub(crate) target: usize,
    /// The item's index in its round.
    pub(crate) place: usize,
    pub(crate) connection: usize,
    pub(crate) version: Version,
    /// The destination of the finished item, instead of its home thread.
    pub(crate) sink: Option<Arc<Sink>>,
    pub(crate) parcel: Option<Leaving>,
    /// The complete round that the item carries home.
    pub(crate) round: Option<Box<Round>>,
    /// Whether the operations are done.
    pub(crate) is_done: bool,
    text: Buffer,
    spans: Notes<Span>,
    operations: Notes<Requested>,
    pub(crate) replies: Buffer,
    pub(crate) answers: Notes<Answer>,
    /// The fetched value of a digest; the digest is the last operation.
    value: Buffer,
    /// The keys that a `Clear` has removed. They are freed once the lock of their keyspace is
    /// released.
    pub(crate) cleared: Option<Keyspace>,
    /// The size of the digested value in bytes.
    pub(crate) digested: usize,
}

struct Requested {
    operation: Operation,
    hash: u64,
    spans_end: usize,
}

/// The outcome of an operation, and the end of its reply.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) end: usize,
}

const NO_DIGEST: &str = "ERR no digest: the server's process has shut its work queues down";

/// Maximum capacity for arguments in a handover that is kept for the next use, in bytes.
const KEPT_MAX: usize = 4096;

impl Handover {
    pub(crate) fn new(shared: &Arc<Shared>, budget: &Arc<Budget>) -> Item {
        let body = Body {
            shared: Arc::clone(shared),
            home: 0,
            target: 0,
            place: 0,
            connection: 0,
            version: Version::default(),
            sink: None,
            parcel: None,
            round: None,
            is_done: false,
            text: Buffer::new(budget),
            spans: Notes::new(budget),
            operations: Notes::new(budget),
            replies: Buffer::new(budget),
            answers: Notes::new(budget),
            value: Buffer::new(budget),
            cleared: None,
            digested: 0,
        };
        Box::pin(Self { task: TaskWork::new(), work: Work::new(), body })
    }

    /// The thread that executes the operations.
    pub(crate) fn target(&self) -> usize {
        self.body.target
    }

    pub(crate) fn body(self: Pin<&mut Self>) -> &mut Body {
        // SAFETY: only `task` and `work` are structurally pinned. This projection gives access to
        // `body` alone, so neither of them moves.
        unsafe { &mut self.get_unchecked_mut().body }
    }
}

impl Body {
    /// Adds an operation.
    ///
    /// # Errors
    /// There is no memory for it; nothing was added.
    pub(crate) fn add(
        &mut self,
        operation: Operation,
        hash: u64,
        args: Args<'_>,
    ) -> Result<(), OutOfMemory> {
        self.text.make_room_for(args.iter().map(<[u8]>::len).sum())?;
        self.spans.make_room(args.len())?;
        self.operations.make_room(1)?;
        // Reserved for the outcomes, which the target thread appends.
        self.answers.make_room(self.operations.len() + 1)?;
        for arg in args.iter() {
            self.spans.push(Span::new(self.text.len(), arg.len()));
            self.text.bytes.extend_from_slice(arg);
        }
        let spans_end = self.spans.len();
        self.operations.push(Requested { operation, hash, spans_end });
        Ok(())
    }

    /// Bytes of arguments in the item.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Executes the operations. Returns whether a digest remains, which takes too long for this
    /// thread.
    #[must_use]
    pub(crate) fn perform(&mut self, keys: &mut Keyspace, now: u64) -> bool {
        let mut place = Place { keys, now, version: self.version };
        let (mut first, mut digest) = (0, false);
        for &Requested { operation, hash, spans_end } in self.operations.iter() {
            let args = Args::new(&self.text.bytes, &self.spans[first..spans_end]);
            first = spans_end;
            if operation.has_reply() && self.replies.make_room_for_line().is_err() {
                let (outcome, end) = (Outcome::OutOfMemory, self.replies.len());
                self.answers.push(Answer { outcome, end });
                continue;
            }
            if operation == Operation::Clear {
                self.cleared = Some(place.keys.clear());
                let (outcome, end) = (Outcome::Counted(true), self.replies.len());
                self.answers.push(Answer { outcome, end });
                continue;
            }
            let is_fetch = operation == Operation::Fetch;
            let into = if is_fetch { &mut self.value } else { &mut self.replies };
            let mut outcome = place.perform(operation, hash, args, into);
            if is_fetch {
                digest = outcome == Outcome::Replied;
                self.digested = self.value.len();
                match outcome {
                    Outcome::Replied => continue,
                    Outcome::OutOfMemory => reply::error(&mut self.replies.bytes, OUT_OF_MEMORY),
                    Outcome::Counted(_) => reply::null(&mut self.replies.bytes, self.version),
                }
                outcome = Outcome::Replied;
            }
            self.answers.push(Answer { outcome, end: self.replies.len() });
        }
        self.replies.settle();
        self.is_done = !digest;
        digest
    }

    fn digest(&mut self) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digest = Sha256::digest(&self.value.bytes);
        let mut text = [0_u8; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        reply::bulk(&mut self.replies.bytes, &text);
        self.end_digest();
    }

    /// Replies that the digest cannot be made, because the queue accepts no more items.
    pub(crate) fn refuse_digest(&mut self) {
        reply::error(&mut self.replies.bytes, NO_DIGEST);
        self.end_digest();
    }

    fn end_digest(&mut self) {
        self.replies.settle();
        self.answers.push(Answer { outcome: Outcome::Replied, end: self.replies.len() });
        self.value.clear_or_free();
        self.is_done = true;
    }

    /// Bytes charged to the budget.
    pub(crate) fn charged(&self) -> usize {
        let buffers = [&self.text, &self.replies, &self.value].map(Buffer::charged);
        let notes = [self.spans.charged(), self.operations.charged(), self.answers.charged()];
        buffers.into_iter().chain(notes).sum()
    }

    /// Empties the item for its next use.
    pub(crate) fn clear(&mut self) {
        for buffer in [&mut self.text, &mut self.replies, &mut self.value] {
            buffer.clear_or_free();
        }
        self.spans.clear(KEPT_MAX);
        self.operations.clear(KEPT_MAX);
        self.answers.clear(KEPT_MAX);
        (self.is_done, self.digested) = (false, 0);
    }
}

/// Computes the digest on a worker, and sends the item home.
impl WorkItem for Handover {
    type Pointer = Item;

    fn run(mut this: Item) {
        let body = this.as_mut().body();
        let shared = Arc::clone(&body.shared);
        shared.digests.fetch_sub(1, Ordering::Relaxed);
        // Many digests may be queued when the server ends, and it must not wait for them.
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        body.digest();
        shared.return_item(this);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Condition, Expiry};
    use crate::server::Config;
    use crate::server::post::{self, Inbox, Post};

    fn shared(queue: &str) -> Arc<Shared> {
        let heavy = uwork::Queue::builder(queue).build().unwrap();
        let posts = vec![Post::current()];
        Arc::new(Shared::new(Config::default(), 0, heavy, posts, ""))
    }

    /// An item with the fetched value "abc" that awaits its digest.
    fn fetched(shared: &Arc<Shared>) -> Item {
        let mut keys = Keyspace::new(Arc::clone(&shared.budget));
        let value = (b"abc", Expiry::Never, Condition::Always);
        keys.set((7, b"key"), value.0, value.1, value.2, 1).unwrap();
        let mut item = Handover::new(shared, &shared.budget);
        let body = item.as_mut().body();
        body.add(Operation::Fetch, 7, Args::new(b"key", &[Span::new(0, 3)])).unwrap();
        assert!(body.perform(&mut keys, 1));
        item
    }

    /// The items in this thread's inbox.
    fn arrived() -> Vec<Item> {
        uwork::task::run_once();
        let mut inbox = Inbox::default();
        post::swap(&mut inbox);
        inbox.items
    }

    /// The items in the home thread's inbox after a worker has processed a digest.
    fn digested(shared: &Arc<Shared>) -> Vec<Item> {
        let item = fetched(shared);
        shared.digests.fetch_add(1, Ordering::Relaxed);
        Handover::run(item);
        arrived()
    }

    #[test]
    fn a_stopped_server_computes_no_digest() {
        let shared = shared("handover-over");
        let mut items = digested(&shared);
        let body = items[0].as_mut().body();
        assert!(body.is_done && body.replies.bytes.starts_with(b"$64\r\nba7816bf"));
        drop(items);
        shared.is_over.store(true, Ordering::Relaxed);
        assert_eq!(digested(&shared).len(), 0);
        assert_eq!(shared.digests.load(Ordering::Relaxed), 0);
        assert_eq!(shared.budget.used(), 0);
    }

    // Catches: keys that are freed, or a worker that is woken, while the keys' lock is held.
    #[test]
    fn cleared_keys_outlive_the_operations_of_their_item() {
        let shared = shared("handover-cleared");
        let mut keys = Keyspace::new(Arc::clone(&shared.budget));
        let value = (b"abc", Expiry::Never, Condition::Always);
        keys.set((7, b"key"), value.0, value.1, value.2, 1).unwrap();
        let mut item = Handover::new(&shared, &shared.budget);
        let body = item.as_mut().body();
        body.add(Operation::Clear, 0, Args::new(b"", &[])).unwrap();
        assert!(!body.perform(&mut keys, 1));
        let cleared = body.cleared.take().expect("the item has the keys");
        assert_eq!((keys.len(), cleared.len(), body.answers.len()), (0, 1, 1));
        let used = shared.budget.used();
        drop(cleared);
        assert!(shared.budget.used() < used);
    }

    // Catches: a connection that waits forever, and a count of pending digests that stays too high.
    #[test]
    fn a_refused_digest_is_an_error_and_is_not_counted() {
        let shared = shared("handover-refused");
        shared.heavy.destroy().unwrap();
        shared.digest(fetched(&shared));
        assert_eq!(shared.digests.load(Ordering::Relaxed), 0);
        let mut items = arrived();
        let body = items[0].as_mut().body();
        assert!(body.is_done && body.replies.bytes.starts_with(b"-ERR no digest: "));
        assert_eq!((body.answers.len(), body.answers[0].end), (1, body.replies.len()));
        drop(items);
        assert_eq!(shared.budget.used(), 0);
    }
}
