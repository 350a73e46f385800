//! Requests of one connection that are carried out together, and whose replies leave in order.
//!
//! A round begins with the first operation on a key that another thread owns. From then on replies
//! are not sent at once but noted down as parts, in the order of the requests; once the last handover
//! is back, the parts are put together.

use std::sync::Arc;

use super::handover::{Answer, Body, Item};
use super::sink::Leaving;
use crate::buffer::Buffer;
use crate::command::operation::{OUT_OF_MEMORY, Outcome};
use crate::keyspace::{Budget, OutOfMemory};
use crate::notes::Notes;
use crate::resp::reply;

/// Parts of rounds that are kept for the next use.
const PARTS_KEPT: usize = 2048;
/// The parts of a round: at first, and as long as what they bring is far less than `REPLIES_HIGH`.
const PARTS_FIRST: usize = 16;
const PARTS_MAX: usize = 1024;
/// Bytes of replies that a round should not have more of.
const REPLIES_HIGH: usize = 256 * 1024;
/// Digests of a round, as long as the values are far less than `VALUES_HIGH` together. At first it is one: nobody
/// knows how large the values are.
const DIGESTS_MAX: usize = 64;
const VALUES_HIGH: usize = 1 << 20;

/// A piece of what the connection gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The replies written here, from the last such part up to this place.
    Here(usize),
    /// The next answer of that item.
    There(usize),
    /// One reply for the next so many answers, which are all `There`, and for what was done here.
    Gathered(Gather, u32),
}

/// One reply for operations on several keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gather {
    pub(crate) kind: GatherKind,
    /// Keys that counted.
    pub(crate) count: i64,
    /// Whether there was no memory for one.
    pub(crate) failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherKind {
    /// How many keys counted.
    Sum,
    /// That all is well.
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

/// How much a round of a connection takes up before it leaves, as experience has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) parts: usize,
    pub(crate) digests: usize,
}

impl Pace {
    pub(crate) const FIRST: Self = Self { parts: PARTS_FIRST, digests: 1 };

    /// So many parts and digests have brought replies, and taken values, of so many bytes.
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
            // A few are no proof that more can be had.
            _ if digests < self.digests => self.digests,
            _ => (self.digests * 2).min(DIGESTS_MAX),
        };
    }
}

/// What is out for a connection.
pub(crate) struct Round {
    pub(crate) parts: Notes<Part>,
    /// Replies of what was done here.
    pub(crate) here: Buffer,
    /// In the order in which they leave: before that, and when they are back.
    pub(crate) items: Vec<Option<Item>>,
    /// By thread: the item that takes what comes next.
    open: Vec<Option<usize>>,
    /// By item: how much of it has been used, when replies are put together.
    used: Vec<(usize, usize)>,
    /// Items of which a worker makes a digest.
    pub(crate) digests: usize,
    /// Items that are not back.
    pub(crate) out: usize,
    /// There was no memory for some of the replies, so that none may be sent.
    pub(crate) has_failed: bool,
    /// Where it was put together elsewhere than at home: the replies, and how many bytes of them are sent.
    whole: Buffer,
    sent: usize,
    /// How many parts there were.
    pub(crate) parts_had: usize,
    pub(crate) parcel: Option<Leaving>,
    /// Of the largest item.
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

    /// The place of the item that takes operations for the thread.
    #[inline]
    pub(crate) fn open(&self, thread: usize) -> Option<usize> {
        self.open[thread]
    }

    /// Adds an item that takes operations for the thread; its place.
    pub(crate) fn add(&mut self, thread: usize, mut item: Item) -> usize {
        let place = self.items.len();
        let body = item.as_mut().body();
        (body.target, body.place) = (thread, place);
        self.items.push(Some(item));
        self.used.push((0, 0));
        self.open[thread] = Some(place);
        place
    }

    /// The item for the thread takes no more: what comes next goes into another, behind it.
    pub(crate) fn close(&mut self, thread: usize) {
        self.open[thread] = None;
    }

    /// The item at the place, which must be there.
    #[inline]
    pub(crate) fn item(&mut self, place: usize) -> &mut Body {
        self.items[place].as_mut().expect("it is there").as_mut().body()
    }

    /// How many digests were made, and of how many bytes.
    pub(crate) fn digested(&mut self) -> (usize, usize) {
        let Self { items, digests, .. } = self;
        if *digests == 0 {
            return (0, 0);
        }
        (*digests, items.iter_mut().flatten().map(|item| item.as_mut().body().digested).sum())
    }

    /// Puts the replies together and sends what can be sent.
    pub(crate) fn send(&mut self, send: impl FnOnce(&[u8]) -> usize) {
        let mut whole = std::mem::replace(&mut self.whole, Buffer::new(self.here.budget()));
        self.parts_had = self.parts.len();
        self.has_failed = self.assemble(&mut whole).is_err();
        self.sent = if self.has_failed { 0 } else { send(&whole.bytes) };
        self.whole = whole;
        self.whole.settle();
    }

    /// What `send` has not sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.whole.bytes[self.sent..]
    }

    /// Bytes of all replies that `send` has put together.
    pub(crate) fn len(&self) -> usize {
        self.whole.len()
    }

    /// Bytes that it has taken from the budget, beside its items.
    pub(crate) fn charged(&self) -> usize {
        self.parts.charged() + self.here.charged() + self.whole.charged()
    }

    /// Makes it empty, for the next use.
    pub(crate) fn clear(&mut self) {
        self.parts.clear(PARTS_KEPT);
        self.here.clear_or_free();
        self.whole.clear_or_free();
        self.items.clear();
        self.used.clear();
        self.open.fill(None);
        (self.digests, self.sent, self.bytes, self.has_failed) = (0, 0, 0, false);
    }

    /// Notes that replies were written here.
    pub(crate) fn note_here(&mut self) {
        let end = self.here.len();
        match self.parts.last_mut() {
            Some(Part::Here(last)) => *last = end,
            _ => self.parts.push(Part::Here(end)),
        }
    }

    /// Puts the replies together, and empties the round.
    ///
    /// # Errors
    /// There is no memory for them: some are missing, so that none may be sent.
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
