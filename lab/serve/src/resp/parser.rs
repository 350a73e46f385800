//! The incremental request parser: it never scans the understood part of an incomplete request
//! again.

use std::fmt;

use super::{number, quotes};

/// The longest inline request, and the longest line that holds a count, in bytes.
const LINE_MAX: usize = 64 * 1024;
/// The first capacity, in arguments.
const SPANS_FIRST: usize = 16;
/// The largest argument count that Redis accepts.
const ARGS_MAX: i64 = i32::MAX as i64;

/// The position of an argument in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// # Panics
    /// The end is past 4 GiB; [`Limits`] keeps requests below that.
    pub(crate) fn new(start: usize, len: usize) -> Self {
        let narrow = |value| u32::try_from(value).expect("a request is below 4 GiB");
        narrow(start + len);
        Self { start: narrow(start), len: narrow(len) }
    }

    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..][..self.len as usize]
    }
}

/// A request's arguments, the name of the command first.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    text: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub(crate) fn new(text: &'a [u8], spans: &'a [Span]) -> Self {
        Self { text, spans }
    }

    /// The number of arguments.
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at the index.
    ///
    /// # Panics
    /// The index is out of range.
    pub fn at(self, place: usize) -> &'a [u8] {
        self.spans[place].of(self.text)
    }

    /// All arguments.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.spans.iter().map(move |span| span.of(self.text))
    }

    /// The arguments from an index on.
    pub(crate) fn from(self, place: usize) -> Self {
        Self { spans: &self.spans[place..], ..self }
    }

    /// `count` arguments from an index on.
    pub(crate) fn slice(self, place: usize, count: usize) -> Self {
        Self { spans: &self.spans[place..][..count], ..self }
    }
}

/// How large a request may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one argument; at most 1 GiB.
    pub bulk_max: usize,
    /// Bytes of one request, with everything in it; at most 2 GiB.
    pub request_max: usize,
}

/// The kind of the input's first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An incomplete request.
    Incomplete,
    /// The input starts with a request of this many bytes; [`Parser::args`] returns its arguments.
    Request(usize),
    /// The input starts with this many bytes that request nothing: an empty line, or an empty
    /// array.
    Nothing(usize),
}

/// The input is not RESP, or exceeds a limit. The rest of the input cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// An inline request without a line end in its first 64 KiB.
    InlineTooBig,
    /// An inline request with unbalanced quotes.
    UnbalancedQuotes,
    /// The line of the argument count has no end within the limit.
    CountTooBig,
    /// The argument count is invalid.
    Count,
    /// The line of an argument's length has no end within the limit.
    BulkCountTooBig,
    /// An argument must start with `$`; this byte was found instead.
    Expected(u8),
    /// An argument's length is not a number, or exceeds the limit.
    BulkLength,
    /// The whole request exceeds the limit.
    RequestTooBig,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::CountTooBig => f.write_str("too big mbulk count string"),
            Self::Count => f.write_str("invalid multibulk length"),
            Self::BulkCountTooBig => f.write_str("too big bulk count string"),
            Self::Expected(byte) => {
                let shown = if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
                write!(f, "expected '$', got '{shown}'")
            }
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::RequestTooBig => f.write_str("too big request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the first byte of a request.
    Start,
    /// This many arguments are missing, and a length comes next.
    Length(usize),
    /// As `Length`, but the argument itself comes next; the second number is its length in bytes.
    Body(usize, usize),
    /// An inline request is complete; its words are in `words`.
    Inline,
    /// The request is complete.
    Complete,
}

/// Parses one request after another.
///
/// Until a request is complete, the input of each call must start with that request's first byte.
/// An incomplete request may be passed again with any number of further bytes.
///
/// ```
/// use uwork_serve::resp::{Limits, Parsed, Parser};
///
/// let mut parser = Parser::new(Limits { bulk_max: 1024, request_max: 4096 });
/// let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n";
/// assert_eq!(parser.parse(&input[..9]), Ok(Parsed::Incomplete));
/// assert_eq!(parser.parse(input), Ok(Parsed::Request(20)));
/// assert_eq!(parser.args(input).at(1), b"a");
/// assert_eq!(parser.parse(&input[20..]), Ok(Parsed::Request(6)));
/// assert_eq!(parser.args(&input[20..]).at(0), b"PING");
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
    spans: Vec<Span>,
    /// The words of an inline request.
    words: Vec<u8>,
    /// The input before this offset is parsed.
    at: usize,
    /// The line that starts at `at` has no end before this offset.
    searched: usize,
}

impl Parser {
    /// A parser at the start of a request.
    ///
    /// # Panics
    /// A limit is above what [`Limits`] allows.
    pub fn new(limits: Limits) -> Self {
        assert!(limits.bulk_max <= 1 << 30 && limits.request_max <= 1 << 31);
        let (spans, words) = (Vec::new(), Vec::new());
        Self { limits, state: State::Start, spans, words, at: 0, searched: 0 }
    }

    /// Continues to parse.
    ///
    /// # Errors
    /// The input is not RESP. The parser cannot resynchronize, so the connection must be closed.
    #[inline]
    pub fn parse(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        loop {
            let step = match self.state {
                State::Start | State::Inline | State::Complete => match input.first() {
                    None => return Ok(Parsed::Incomplete),
                    Some(b'*') => self.count(input)?,
                    Some(_) => return self.inline(input),
                },
                State::Length(args) => self.length(args, input)?,
                State::Body(args, len) => self.body(args, len, input),
            };
            match step {
                Step::Wait if input.len() > self.limits.request_max => {
                    return Err(ProtocolError::RequestTooBig);
                }
                Step::Wait => return Ok(Parsed::Incomplete),
                Step::On => {}
                Step::Nothing => return Ok(Parsed::Nothing(self.at)),
                Step::Complete => return Ok(Parsed::Request(self.at)),
            }
        }
    }

    /// The arguments of the request that the last call of `parse` found in this input.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let text = if self.state == State::Inline { &self.words } else { input };
        Args { text, spans: &self.spans }
    }

    /// Whether a request has begun but is incomplete.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Body(..)) || self.searched != 0
    }

    /// The known length of the incomplete request in bytes, some of which may not have arrived yet;
    /// 0 if the last request was complete.
    pub fn expected(&self) -> usize {
        match self.state {
            State::Body(_, len) => self.at + len + 2,
            State::Length(_) => self.at,
            State::Start | State::Inline | State::Complete => 0,
        }
    }

    /// Allocated bytes.
    pub fn allocated(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.words.capacity()
    }

    /// Frees the memory that only a large request needed.
    pub fn shrink(&mut self) {
        const KEPT: usize = 4096;
        if self.allocated() > KEPT && !self.is_inside() {
            self.spans = Vec::new();
            self.words = Vec::new();
        }
    }

    /// Frees all memory. The current request is lost, and the parser must not be used any more.
    pub(crate) fn free(&mut self) {
        (self.spans, self.words) = (Vec::new(), Vec::new());
    }

    fn begin(&mut self) {
        self.spans.clear();
        self.words.clear();
        self.at = 0;
    }

    fn count(&mut self, input: &[u8]) -> Result<Step, ProtocolError> {
        if self.state != State::Start {
            self.begin();
            self.state = State::Start;
        }
        let Some(line) = self.line(input, ProtocolError::CountTooBig)? else {
            return Ok(Step::Wait);
        };
        let count = number::parse(&line[1..]).filter(|&count| count <= ARGS_MAX);
        let count = count.ok_or(ProtocolError::Count)?;
        self.at = line.len() + 2;
        match usize::try_from(count) {
            Ok(args @ 1..) => {
                self.state = State::Length(args);
                Ok(Step::On)
            }
            _ => {
                self.state = State::Complete;
                Ok(Step::Nothing)
            }
        }
    }

    fn length(&mut self, args: usize, input: &[u8]) -> Result<Step, ProtocolError> {
        let Some(line) = self.line(input, ProtocolError::BulkCountTooBig)? else {
            return Ok(Step::Wait);
        };
        let Some((b'$', digits)) = line.split_first() else {
            return Err(ProtocolError::Expected(line.first().copied().unwrap_or(b'\r')));
        };
        let len = number::parse(digits).and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|&len| len <= self.limits.bulk_max);
        let len = len.ok_or(ProtocolError::BulkLength)?;
        self.at += line.len() + 2;
        if self.at + len > self.limits.request_max {
            return Err(ProtocolError::RequestTooBig);
        }
        self.state = State::Body(args, len);
        Ok(Step::On)
    }

    fn body(&mut self, args: usize, len: usize, input: &[u8]) -> Step {
        // As in Redis, the two bytes behind the argument are not checked.
        if input.len() < self.at + len + 2 {
            return Step::Wait;
        }
        if self.spans.len() == self.spans.capacity() {
            // Grows by a quarter instead of doubling, because the caller charges the memory only
            // afterwards.
            self.spans.reserve_exact((self.spans.len() / 4).max(SPANS_FIRST));
        }
        self.spans.push(Span::new(self.at, len));
        self.at += len + 2;
        if args > 1 {
            self.state = State::Length(args - 1);
            Step::On
        } else {
            self.state = State::Complete;
            Step::Complete
        }
    }

    /// The line at `at` without its end, once the line end and one more byte have arrived.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        too_long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let start = self.at.max(self.searched);
        match input[start..].iter().position(|&byte| byte == b'\r') {
            Some(end) if start + end + 1 < input.len() => {
                self.searched = 0;
                Ok(Some(&input[self.at..start + end]))
            }
            Some(end) => {
                self.searched = start + end;
                Ok(None)
            }
            None if input.len() - self.at > LINE_MAX => Err(too_long),
            None => {
                self.searched = input.len();
                Ok(None)
            }
        }
    }

    fn inline(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        if self.searched == 0 {
            self.begin();
            self.state = State::Start;
        }
        let start = self.searched;
        let Some(end) = input[start..].iter().position(|&byte| byte == b'\n') else {
            self.searched = input.len();
            let too_big = input.len() > LINE_MAX;
            return if too_big { Err(ProtocolError::InlineTooBig) } else { Ok(Parsed::Incomplete) };
        };
        let end = start + end;
        // The same limit applies whether the line arrives in one piece or in many.
        if end > LINE_MAX {
            return Err(ProtocolError::InlineTooBig);
        }
        self.searched = 0;
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        quotes::split(line, &mut self.words, &mut self.spans)
            .map_err(|quotes::Unbalanced| ProtocolError::UnbalancedQuotes)?;
        self.at = end + 1;
        if self.spans.is_empty() {
            self.state = State::Complete;
            return Ok(Parsed::Nothing(self.at));
        }
        self.state = State::Inline;
        Ok(Parsed::Request(self.at))
    }
}

enum Step {
    Wait,
    On,
    Nothing,
    Complete,
}
