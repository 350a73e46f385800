//! A connection: its received input, its pending replies and its state.

mod shutdown;

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use shutdown::LastWords;

use super::dispatch::{Dispatch, Flow, Thread};
use super::handover::Item;
use super::round::{Pace, Round};
use super::session::Session;
use super::sink::Sink;
use crate::buffer::Buffer;
use crate::resp::{Limits, Parsed, Parser};

/// With this many bytes to send, no more requests are processed.
const OUTPUT_HIGH: usize = 256 * 1024;
/// This much parser memory, in bytes, is always granted, so that a client can still send the
/// commands that free memory when none is left.
const PARSER_FREE: usize = 512;
/// Room for the announced rest of a request is made in advance up to this size, or up to the size
/// that has arrived already.
const AHEAD_MIN: usize = 16 * 1024;
/// With this many received but unprocessed bytes, receiving pauses.
const INPUT_HIGH: usize = 64 * 1024;

/// A connection. One thread owns it.
pub(crate) struct Connection {
    socket: Arc<OwnedFd>,
    /// The sending end for other threads, with a dedicated receiver.
    sink: Option<Arc<Sink>>,
    parser: Parser,
    /// Bytes of parser memory that are charged to the budget.
    parser_bytes: usize,
    session: Session,
    /// Received and not consumed yet.
    input: Buffer,
    /// The next bytes to send.
    output: Buffer,
    /// The bytes being sent. Must not change while `is_sending`.
    sending: Buffer,
    sent: usize,
    pub(crate) is_sending: bool,
    /// Between calls, a round exists only while some of its items are in flight.
    round: Option<Box<Round>>,
    pace: Pace,
    /// The sink holds the round, and the thread that completes the round sends its replies.
    is_lent: bool,
    /// The client wants none of the round's replies; otherwise it wants all of them.
    is_round_mute: bool,
    /// Why no more requests are processed; written as an error after all replies.
    last_words: Option<LastWords>,
    /// When the last check for idle connections was that found no traffic before it. None: there was
    /// traffic since the last check. The time of the turn would be too early by the duration of the
    /// turn, in which a busy system may preempt the thread for long.
    idle_since: Option<u64>,
    /// New input is ignored: the peer has closed its direction, or the server stops.
    has_ended: bool,
    /// While the server stops: the number of bytes that had arrived by then and are still to be
    /// received.
    left: Option<usize>,
    /// All output, including the end of the stream, was sent.
    pub(crate) has_parted: bool,
    /// No more requests are processed.
    is_closing: bool,
    is_broken: bool,
    pub(crate) is_paused: bool,
    /// Whether the connection is in its thread's list of connections that may have output.
    pub(crate) is_listed: bool,
    /// `is_removed`: the driver was asked to remove the connection. `is_gone`: it has done so.
    pub(crate) is_removed: bool,
    pub(crate) is_gone: bool,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, limits: Limits, session: Session, thread: &Thread) -> Self {
        let buffer = || Buffer::new(&thread.shared.budget);
        let socket = Arc::new(socket);
        let shared = &thread.shared;
        let sink = || Sink::new(Arc::clone(&socket), shared.config.replies);
        let sink = shared.lends_rounds().then(sink);
        Self {
            socket,
            sink,
            is_lent: false,
            is_round_mute: false,
            parser: Parser::new(limits),
            parser_bytes: 0,
            session,
            input: buffer(),
            output: buffer(),
            sending: buffer(),
            sent: 0,
            is_sending: false,
            round: None,
            pace: Pace::FIRST,
            last_words: None,
            idle_since: None,
            has_ended: false,
            left: None,
            has_parted: false,
            is_closing: false,
            is_broken: false,
            is_paused: false,
            is_listed: false,
            is_removed: false,
            is_gone: false,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Processes bytes that have arrived.
    #[inline]
    pub(crate) fn receive(&mut self, token: usize, thread: &mut Thread, bytes: &[u8]) {
        self.idle_since = None;
        if self.is_closing || self.is_broken || self.has_ended {
            return;
        }
        let most = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        let bytes = &bytes[..most];
        if let Some(left) = &mut self.left {
            *left -= most;
            self.has_ended = *left == 0;
        }
        if self.input.is_empty() && self.takes_requests() {
            let consumed = self.process(token, thread, bytes);
            self.store(thread, &bytes[consumed..]);
        } else {
            self.store(thread, bytes);
            self.go_on(token, thread);
        }
    }

    /// Processes input that was stored earlier.
    pub(crate) fn go_on(&mut self, token: usize, thread: &mut Thread) {
        if self.input.is_empty() || !self.takes_requests() {
            return;
        }
        let empty = Buffer::new(&thread.shared.budget);
        let mut input = mem::replace(&mut self.input, empty);
        let consumed = self.process(token, thread, &input.bytes);
        if consumed == input.len() || self.is_closing {
            thread.spare.give(input);
            return;
        }
        input.bytes.drain(..consumed);
        self.input = input;
    }

    /// Requests a notification for the return of the lent round, if there is work to do then.
    /// Called at the end of each turn that touched the connection.
    pub(crate) fn wait_for_round(&mut self, thread: &mut Thread) {
        let is_over = self.has_ended || self.is_closing || self.is_broken;
        if let (true, Some(sink)) = (self.is_lent, &self.sink)
            && (is_over || !self.input.is_empty())
        {
            sink.wait_for();
            thread.looks_again = true;
        }
    }

    /// Takes back an item that was handed over.
    pub(crate) fn take_back(&mut self, token: usize, thread: &mut Thread, mut item: Item) {
        let body = item.as_mut().body();
        let from = body.place;
        if let Some(mut round) = body.round.take() {
            round.items[from] = Some(item);
            self.is_lent = false;
            self.finish_lent(thread, round);
            return self.go_on(token, thread);
        }
        let Some(round) = &mut self.round else { return };
        round.items[from] = Some(item);
        round.out -= 1;
        if round.out == 0 {
            self.finish(thread);
            self.go_on(token, thread);
        }
    }

    /// Whether too much unprocessed input is stored while requests cannot be processed.
    pub(crate) fn is_full(&self) -> bool {
        self.input.len() > INPUT_HIGH && !self.takes_requests()
    }

    /// Whether there is output that is not being sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.is_broken && !self.is_sending && (!self.output.is_empty() || !self.sending.is_empty())
    }

    /// The bytes to send now. They stay in place until `sent` is called.
    pub(crate) fn unsent(&mut self) -> &[u8] {
        if self.sending.is_empty() {
            mem::swap(&mut self.output, &mut self.sending);
            self.sent = 0;
        }
        &self.sending.bytes[self.sent..]
    }

    /// Whether there is work to do as soon as they are sent.
    pub(crate) fn awaits_sent(&self) -> bool {
        self.has_ended || self.is_closing || !self.input.is_empty()
    }

    /// Notes that `bytes` of the output were sent.
    pub(crate) fn sent(&mut self, thread: &mut Thread, bytes: usize) {
        self.sent += bytes;
        if bytes > 0 {
            // A client that reads its replies is not idle.
            self.idle_since = None;
        }
        if self.sent == self.sending.len() {
            let empty = Buffer::new(&thread.shared.budget);
            thread.spare.give(mem::replace(&mut self.sending, empty));
        }
    }

    /// Whether items of this connection are in flight; they refer to it when they return.
    pub(crate) fn is_awaited(&self) -> bool {
        self.round.is_some() || self.is_lent
    }

    /// A check for idle connections: whether this one only waits for a request, and had no traffic
    /// for `most` when the turn began. `now` is the time of the check.
    pub(crate) fn is_idle_for(&mut self, most: u64, turn_began: u64, now: u64) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        !self.is_awaited() && !self.is_removed && turn_began.saturating_sub(since) >= most
    }

    fn takes_requests(&self) -> bool {
        // A round under construction has no items in flight.
        self.round.as_ref().is_none_or(|round| round.out == 0)
            && !self.is_lent
            && !self.is_closing
            && !self.is_broken
            && self.output.len() + self.sending.len() < OUTPUT_HIGH
    }

    /// Stores the unprocessed input.
    fn store(&mut self, thread: &mut Thread, bytes: &[u8]) {
        if bytes.is_empty() || self.is_closing {
            return;
        }
        if self.input.is_empty() {
            self.input = thread.spare.take();
        }
        // A long argument gets its room in a few steps. Its announced length alone reserves little,
        // so a client cannot claim memory without sending bytes.
        let received = self.input.len() + bytes.len();
        let kept = match self.parser.expected() {
            known if known > received => {
                self.input.make_room_of(received, known.min(received + received.max(AHEAD_MIN)))
            }
            _ => self.input.make_room(bytes.len()),
        };
        if kept.and_then(|()| self.input.append(bytes)).is_err() {
            self.end_for_want_of_memory();
        }
    }

    #[inline]
    fn provide_output(&mut self, thread: &mut Thread) {
        if self.output.bytes.capacity() == 0 {
            self.output = thread.spare.take();
        }
    }

    /// Processes requests until one is incomplete or the connection has to wait. Returns the number
    /// of consumed bytes.
    fn process(&mut self, token: usize, thread: &mut Thread, input: &[u8]) -> usize {
        let mut at = 0;
        while self.takes_requests() {
            self.provide_output(thread);
            let (was_mute, before) = (self.session.is_mute(), self.output.len());
            if self.round.is_some() && was_mute != self.is_round_mute {
                self.end_round(token, thread);
                continue;
            }
            let pace = self.pace;
            let Self { parser, output, round, session, .. } = self;
            let flow = match parser.parse(&input[at..]) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Nothing(len)) => {
                    at += len;
                    continue;
                }
                Ok(Parsed::Request(len)) => {
                    let args = parser.args(&input[at..]);
                    let mut dispatch =
                        Dispatch { thread, output, round, session, connection: token, pace };
                    let flow = dispatch.request(args);
                    at += if flow == Flow::Again { 0 } else { len };
                    // `CLIENT REPLY ON` itself gets a reply although replies were off before it.
                    let is_mute = was_mute && session.is_mute();
                    session.go_on();
                    if is_mute {
                        output.bytes.truncate(before);
                        self.is_round_mute = round.is_some();
                    }
                    flow
                }
                Err(error) => {
                    self.last_words = Some(LastWords::Protocol(error));
                    Flow::Close
                }
            };
            match flow {
                Flow::Next => {}
                Flow::EndRound | Flow::Again => self.end_round(token, thread),
                Flow::Close => self.is_closing = true,
                Flow::OutOfMemory => {
                    self.last_words = Some(LastWords::OutOfMemory);
                    self.is_closing = true;
                }
            }
        }
        self.end_round(token, thread);
        self.parser.shrink();
        if self.parser.allocated() != self.parser_bytes && !self.charge_parser(thread) {
            self.end_for_want_of_memory();
        }
        at
    }

    /// Adjusts the charge for the parser's argument positions, which can exceed the arguments in
    /// size. Returns `false` if the budget refuses.
    #[cold]
    fn charge_parser(&mut self, thread: &Thread) -> bool {
        let (budget, bytes) = (&thread.shared.budget, self.parser.allocated());
        let is_less = bytes < self.parser_bytes;
        if is_less {
            budget.give(self.parser_bytes - bytes);
        } else if bytes <= PARSER_FREE {
            budget.force(bytes - self.parser_bytes);
        } else if !budget.take(bytes - self.parser_bytes) {
            return false;
        }
        self.parser_bytes = bytes;
        true
    }

    /// Sends the round's items to their threads, if there is a round.
    fn end_round(&mut self, token: usize, thread: &mut Thread) {
        let pace = self.pace;
        // The sink may only send if no earlier output is pending, since its replies would overtake
        // that output.
        let has_nothing_to_send = self.output.is_empty() && self.sending.is_empty();
        let can_lend = has_nothing_to_send && !self.is_round_mute;
        let sink = self.sink.as_ref().filter(|_| can_lend);
        let Self { output, round, session, .. } = self;
        let mut dispatch = Dispatch { thread, output, round, session, connection: token, pace };
        if sink.is_some_and(|sink| dispatch.lend(sink)) {
            self.is_lent = true;
            return;
        }
        dispatch.post();
        if self.round.as_ref().is_none_or(|round| round.out == 0) {
            self.finish(thread);
        }
    }

    /// Writes the replies of the round, if there is one.
    fn finish(&mut self, thread: &mut Thread) {
        if let Some(mut round) = self.round.take() {
            self.provide_output(thread);
            let (before, parts) = (self.output.len(), round.parts.len());
            let is_wanted = !mem::take(&mut self.is_round_mute) && !self.is_broken;
            if is_wanted && round.assemble(&mut self.output).is_err() {
                // Some replies are missing. Later replies would be mistaken for them, so the
                // connection ends.
                self.output.bytes.truncate(before);
                self.refuse();
            }
            let replies = self.output.len() - before;
            self.pace.learn((parts, replies), round.digested());
            thread.spare.keep(round);
        }
        self.say_last_words();
        self.output.settle();
    }

    /// Appends the replies that the sink could not send.
    fn finish_lent(&mut self, thread: &mut Thread, mut round: Box<Round>) {
        self.provide_output(thread);
        let is_kept = !round.has_failed && self.output.append_reply(round.unsent()).is_ok();
        if !self.is_broken && !is_kept {
            self.refuse();
        }
        self.pace.learn((round.parts_had, round.len()), round.digested());
        thread.spare.keep(round);
        self.say_last_words();
        self.output.settle();
    }
}
