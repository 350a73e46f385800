//! Requests of one connection that are executed together, with replies in order.
//!
//! A round begins with the first operation that is handed over to another thread. From then on
//! replies are not sent at once: they are recorded as parts, in the order of the requests. When the
//! last handover returns, the parts are assembled.

use std::sync::Arc;

use super::handover::{Answer, Body, Item};
use super::sink::Leaving;
use crate::buffer::Buffer;
use crate::command::operation::{OUT_OF_MEMORY, Outcome};
use crate::keyspace::{Budget, OutOfMemory};
use crate::notes::Notes;
use crate::resp::reply;

/// Maximum capacity for parts in a round that is kept for the next use.
const PARTS_KEPT: usize = 2048;
/// First bound for the number of parts. The bound grows while the replies stay below
/// `REPLIES_HIGH`.
const PARTS_FIRST: usize = 16;
const PARTS_MAX: usize = 1024;
/// The intended maximum of reply bytes in a round.
const REPLIES_HIGH: usize = 256 * 1024;
/// Maximum number of digests in a round. The bound starts at one, because the sizes of the values
/// are unknown, and grows while the values stay below `VALUES_HIGH`.
const DIGESTS_MAX: usize = 64;
const VALUES_HIGH: usize = 1 << 20;

/// A part of the connection's replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The replies written by this thread, from the end of the previous `Here` up to this offset.
    Here(usize),
    /// The next outcome of that item.
    There(usize),
    /// One reply that combines this number of following outcomes, all of them `There`, with the
    /// outcomes of this thread.
    Gathered(Gather, u32),
}

/// One reply for operations on several keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    pub(crate) kind: GatherKind,
    /// Number of operations that counted.
    pub(crate) count: i64,
    /// Whether an operation failed for lack of memory.
    pub(crate) failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherKind {
    /// Reply with the number of operations that counted.
    Sum,
    /// Reply with OK.
    Ok,
}

impl Gather {
    pub(crate) fn new(kind: GatherKind) -> Self {
        Self { kind, count: 0, failed: false }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Counted(counts) => self.count += i64::from(counts),
            Outcome::OutOfMemory => self.failed = true,
            Outcome::Replied => {}
        }
    }

    pub(crate) fn reply(self, out: &mut Vec<u8>) {
        match self.kind {
            _ if self.failed => reply::error(out, OUT_OF_MEMORY),
            GatherKind::Sum => reply::integer(out, self.count),
            GatherKind::Ok => reply::simple(out, "OK"),
        }
    }
}

/// The bounds of a connection's rounds, learned from earlier rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) parts: usize,
    pub(crate) digests: usize,
}

impl Pace {
    pub(crate) const FIRST: Self = Self { parts: PARTS_FIRST, digests: 1 };

    /// Adapts the bounds to a finished round: its number of parts and the size of its replies, its
    /// number of digests and the size of their values, in bytes.
    pub(crate) fn learn(
        &mut self,
        (parts, replies): (usize, usize),
        (digests, values): (usize, usize),
    ) {
        self.parts = match replies {
            bytes if bytes > REPLIES_HIGH => (parts * REPLIES_HIGH / bytes).max(1),
            _ => (self.parts * 2).min(PARTS_MAX),
        };
        self.digests = match values {
            bytes if bytes > VALUES_HIGH => (digests * VALUES_HIGH / bytes).max(1),
            // Fewer digests than the bound do not show that a larger bound is safe.
            _ if digests < self.digests => self.digests,
            _ => (self.digests * 2).min(DIGESTS_MAX),
        };
    }
}

/// The state of a connection's requests in flight.
pub(crate) struct Round {
    pub(crate) parts: Notes<Part>,
    /// Replies of operations that this thread executed.
    pub(crate) here: Buffer,
    /// The items, in the order in which they leave. A place is empty while its item is away.
    pub(crate) items: Vec<Option<Item>>,
    /// By thread: the index of the item that takes further operations.
    open: Vec<Option<usize>>,
    /// By item: how many outcomes and bytes are consumed during assembly.
    used: Vec<(usize, usize)>,
    /// Number of items of which a worker computes a digest.
    pub(crate) digests: usize,
    /// Number of items in flight.
    pub(crate) out: usize,
    /// Some replies are missing for lack of memory, so none may be sent.
    pub(crate) has_failed: bool,
    /// If another thread has assembled the round: the replies, and how many bytes of them are sent.
    whole: Buffer,
    sent: usize,
    /// The number of parts before assembly.
    pub(crate) parts_had: usize,
    pub(crate) parcel: Option<Leaving>,
    /// Argument bytes of the largest item.
    pub(crate) bytes: usize,
}

impl Round {
    pub(crate) fn new(threads: usize, budget: &Arc<Budget>) -> Self {
        Self {
            parts: Notes::new(budget),
            here: Buffer::new(budget),
            items: Vec::with_capacity(threads),
            open: vec![None; threads],
            used: Vec::with_capacity(threads),
            digests: 0,
            out: 0,
            has_failed: false,
            whole: Buffer::new(budget),
            sent: 0,
            parts_had: 0,
            parcel: None,
            bytes: 0,
        }
    }

    /// The index of the item that takes operations for the thread.
    #[inline]
    pub(crate) fn open(&self, thread: usize) -> Option<usize> {
        self.open[thread]
    }

    /// Adds an item that takes operations for the thread; returns its index.
    pub(crate) fn add(&mut self, thread: usize, mut item: Item) -> usize {
        let place = self.items.len();
        let body = item.as_mut().body();
        (body.target, body.place) = (thread, place);
        self.items.push(Some(item));
        self.used.push((0, 0));
        self.open[thread] = Some(place);
        place
    }

    /// Whether operations wait for the thread. Later operations on its keys must be executed after
    /// them.
    #[inline]
    pub(crate) fn awaits(&self, thread: usize) -> bool {
        self.items.iter().flatten().any(|item| item.target() == thread)
    }

    /// Closes the thread's current item; further operations go into a new item behind it.
    pub(crate) fn close(&mut self, thread: usize) {
        self.open[thread] = None;
    }

    /// The item at the index, which must be present.
    #[inline]
    pub(crate) fn item(&mut self, place: usize) -> &mut Body {
        self.items[place].as_mut().expect("it is there").as_mut().body()
    }

    /// The number of digests, and the total size of their values in bytes.
    pub(crate) fn digested(&mut self) -> (usize, usize) {
        let Self { items, digests, .. } = self;
        if *digests == 0 {
            return (0, 0);
        }
        (*digests, items.iter_mut().flatten().map(|item| item.as_mut().body().digested).sum())
    }

    /// Assembles the replies and sends as many bytes as possible.
    pub(crate) fn send(&mut self, send: impl FnOnce(&[u8]) -> usize) {
        let mut whole = std::mem::replace(&mut self.whole, Buffer::new(self.here.budget()));
        self.parts_had = self.parts.len();
        self.has_failed = self.assemble(&mut whole).is_err();
        self.sent = if self.has_failed { 0 } else { send(&whole.bytes) };
        self.whole = whole;
        self.whole.settle();
    }

    /// The bytes that `send` has not sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.whole.bytes[self.sent..]
    }

    /// Total size of the replies that `send` has assembled, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.whole.len()
    }

    /// Bytes charged to the budget, without the items.
    pub(crate) fn charged(&self) -> usize {
        self.parts.charged() + self.here.charged() + self.whole.charged()
    }

    /// Empties the round for its next use.
    pub(crate) fn clear(&mut self) {
        self.parts.clear(PARTS_KEPT);
        self.here.clear_or_free();
        self.whole.clear_or_free();
        self.items.clear();
        self.used.clear();
        self.open.fill(None);
        (self.digests, self.sent, self.bytes, self.has_failed) = (0, 0, 0, false);
    }

    /// Records replies that this thread has written.
    pub(crate) fn note_here(&mut self) {
        let end = self.here.len();
        match self.parts.last_mut() {
            Some(Part::Here(last)) => *last = end,
            _ => self.parts.push(Part::Here(end)),
        }
    }

    /// Assembles the replies, and empties the round.
    ///
    /// # Errors
    /// There is no memory for them. Some replies are missing, so none may be sent.
    pub(crate) fn assemble(&mut self, out: &mut Buffer) -> Result<(), OutOfMemory> {
        if self.has_failed {
            return Err(OutOfMemory);
        }
        let Self { parts, here, items, used, .. } = self;
        let mut here_start = 0;
        let mut parts = parts.drain();
        while let Some(part) = parts.next() {
            match part {
                Part::Here(end) => {
                    out.append_reply(&here.bytes[here_start..end])?;
                    here_start = end;
                }
                Part::There(place) => {
                    let (answer, text) = next_answer(items, used, place);
                    if answer.outcome == Outcome::OutOfMemory {
                        return Err(OutOfMemory);
                    }
                    out.append_reply(text)?;
                }
                Part::Gathered(mut gather, answers) => {
                    for part in parts.by_ref().take(answers as usize) {
                        if let Part::There(place) = part {
                            gather.add(next_answer(items, used, place).0.outcome);
                        }
                    }
                    gather.reply(&mut out.bytes);
                }
            }
        }
        here.clear_or_free();
        Ok(())
    }
}

fn next_answer<'a>(
    items: &'a mut [Option<Item>],
    used: &mut [(usize, usize)],
    place: usize,
) -> (Answer, &'a [u8]) {
    let item = items[place].as_mut().expect("every item of the round is back");
    let body = item.as_mut().body();
    let (next, start) = &mut used[place];
    let answer = body.answers[*next];
    let text = &body.replies.bytes[*start..answer.end];
    (*next, *start) = (*next + 1, answer.end);
    (answer, text)
}
