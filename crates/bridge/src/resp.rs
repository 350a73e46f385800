//! Replies of a server in the second version of its protocol, as they arrive: read into values, or in
//! parts, or skipped. Nothing is kept of what is skipped, and a long string is read to its place.

use std::io::{self, ErrorKind, Read};

use redis::Value;

/// Bytes that are read ahead.
const BUFFER: usize = 32 << 10;
/// Bytes of a line: a status, a number, an error.
const LINE_MAX: usize = 1 << 20;
/// Arrays in arrays.
const DEPTH_MAX: usize = 64;
/// The longest string that a server sends, 512 MiB unless it is configured otherwise.
const BYTES_MAX: usize = 1 << 40;
/// Places of an array that are allocated before its values arrive.
const PLACES_MAX: usize = 4_096;

/// What has arrived and was not read yet.
pub(crate) struct Arrived {
    bytes: Vec<u8>,
    /// The part that was not read.
    at: usize,
    end: usize,
}

impl Arrived {
    pub(crate) fn nothing() -> Arrived {
        Arrived { bytes: vec![0; BUFFER], at: 0, end: 0 }
    }
}

/// How a value begins.
#[derive(Debug)]
pub(crate) enum Head {
    /// So many values follow.
    Array(usize),
    /// So many bytes follow.
    Bytes(usize),
    /// A value without parts: a status, a number, an error, nil.
    Whole(Value),
}

/// Replies on a stream, whose reads wait for bytes.
pub(crate) struct Replies<'a> {
    arrived: &'a mut Arrived,
    from: &'a mut dyn Read,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(arrived: &'a mut Arrived, from: &'a mut dyn Read) -> Replies<'a> {
        Replies { arrived, from }
    }

    /// Reads a whole value.
    pub(crate) fn value(&mut self) -> io::Result<Value> {
        let head = self.head()?;
        self.value_of(head, 0)
    }

    fn value_of(&mut self, head: Head, depth: usize) -> io::Result<Value> {
        match head {
            Head::Whole(value) => Ok(value),
            Head::Bytes(length) => Ok(Value::BulkString(self.bytes(length)?)),
            Head::Array(_) if depth == DEPTH_MAX => Err(malformed("arrays in arrays")),
            Head::Array(count) => {
                let mut values = Vec::with_capacity(count.min(PLACES_MAX));
                for _ in 0..count {
                    let head = self.head()?;
                    values.push(self.value_of(head, depth + 1)?);
                }
                Ok(Value::Array(values))
            }
        }
    }

    /// Reads the beginning of a value. Its bytes or values come next.
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let line = self.line()?;
        let (kind, text) = line.split_first().ok_or_else(|| malformed("an empty line"))?;
        Ok(match kind {
            b'*' | b'$' => match number(text)? {
                -1 => Head::Whole(Value::Nil),
                count => {
                    let count = usize::try_from(count).ok().filter(|&count| count <= BYTES_MAX);
                    let count = count.ok_or_else(|| malformed("a length"))?;
                    if *kind == b'*' { Head::Array(count) } else { Head::Bytes(count) }
                }
            },
            b':' => Head::Whole(Value::Int(number(text)?)),
            b'+' if text == b"OK" => Head::Whole(Value::Okay),
            b'+' => Head::Whole(Value::SimpleString(String::from_utf8_lossy(text).into_owned())),
            b'-' => {
                // The crate alone can make errors of this kind.
                let line = format!("-{}\r\n", String::from_utf8_lossy(text));
                Head::Whole(redis::parse_redis_value(line.as_bytes()).map_err(io::Error::other)?)
            }
            other => return Err(malformed(&format!("the kind {:?}", char::from(*other)))),
        })
    }

    /// Reads the beginning of an array.
    pub(crate) fn array(&mut self) -> io::Result<usize> {
        match self.head()? {
            Head::Array(count) => Ok(count),
            _ => Err(malformed("no array")),
        }
    }

    /// Reads a number.
    pub(crate) fn int(&mut self) -> io::Result<i64> {
        match self.head()? {
            Head::Whole(Value::Int(number)) => Ok(number),
            _ => Err(malformed("no number")),
        }
    }

    /// Reads a string of this length to a place of its own.
    pub(crate) fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| malformed("a length beyond the memory"))?;
        let arrived = self.take(length);
        bytes.extend_from_slice(arrived);
        let missing = length - bytes.len();
        let from = &mut *self.from;
        if missing > 0 && from.take(missing as u64).read_to_end(&mut bytes)? < missing {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.end_of_string()?;
        Ok(bytes)
    }

    /// Reads a string of this length, if it is a short one; else skips it.
    pub(crate) fn short(&mut self, length: usize) -> io::Result<Option<&[u8]>> {
        if length > BUFFER / 2 {
            self.skip(Head::Bytes(length))?;
            return Ok(None);
        }
        while self.arrived.end - self.arrived.at < length + 2 {
            self.fill()?;
        }
        let at = self.arrived.at;
        self.arrived.at += length;
        self.end_of_string()?;
        Ok(Some(&self.arrived.bytes[at..at + length]))
    }

    /// Skips the rest of a value.
    pub(crate) fn skip(&mut self, head: Head) -> io::Result<()> {
        let mut values: usize = 0;
        let mut next = Some(head);
        while let Some(head) = next {
            match head {
                Head::Whole(_) => {}
                Head::Array(count) => values = values.saturating_add(count),
                Head::Bytes(length) => {
                    let mut left = length - self.take(length).len();
                    while left > 0 {
                        // All that had arrived is skipped.
                        self.fill()?;
                        left -= self.take(left).len();
                    }
                    self.end_of_string()?;
                }
            }
            next = if values == 0 { None } else { Some(self.head()?) };
            values = values.saturating_sub(1);
        }
        Ok(())
    }

    /// Takes up to `length` bytes of what has arrived.
    fn take(&mut self, length: usize) -> &[u8] {
        let arrived = &mut *self.arrived;
        let from = arrived.at;
        arrived.at = arrived.end.min(from + length);
        &arrived.bytes[from..arrived.at]
    }

    fn end_of_string(&mut self) -> io::Result<()> {
        if self.line()?.is_empty() { Ok(()) } else { Err(malformed("the end of a string")) }
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> io::Result<&[u8]> {
        let mut seen = 0;
        loop {
            let Arrived { bytes, at, end } = &*self.arrived;
            let length = bytes[at + seen..*end].iter().position(|&byte| byte == b'\n');
            if let Some(length) = length {
                let (from, to) = (*at, at + seen + length);
                self.arrived.at = to + 1;
                let line = &self.arrived.bytes[from..to];
                return line.strip_suffix(b"\r").ok_or_else(|| malformed("the end of a line"));
            }
            seen = end - at;
            if seen >= LINE_MAX {
                return Err(malformed("a line without an end"));
            }
            self.fill()?;
        }
    }

    /// Waits for more bytes. What has arrived stays.
    fn fill(&mut self) -> io::Result<()> {
        let Arrived { bytes, at, end } = &mut *self.arrived;
        if *at == *end {
            (*at, *end) = (0, 0);
            // A long line has made it larger.
            bytes.truncate(BUFFER);
            bytes.shrink_to(BUFFER);
        } else if *end == bytes.len() && *at > 0 {
            bytes.copy_within(*at..*end, 0);
            (*at, *end) = (0, *end - *at);
        }
        if *end == bytes.len() {
            bytes.resize(2 * bytes.len(), 0);
        }
        match self.from.read(&mut bytes[*end..])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                *end += count;
                Ok(())
            }
        }
    }
}

fn number(text: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| malformed("a number"))
}

pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the reply is malformed: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream, and the bytes that each of its reads brings.
    struct Parts<'a>(&'a [u8], usize);

    impl Read for Parts<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(bytes.len());
            let (part, left) = self.0.split_at(count);
            bytes[..count].copy_from_slice(part);
            self.0 = left;
            Ok(count)
        }
    }

    fn with<T>(text: &[u8], part: usize, read: impl FnOnce(&mut Replies<'_>) -> T) -> T {
        read(&mut Replies::new(&mut Arrived::nothing(), &mut Parts(text, part)))
    }

    fn bulk(bytes: &[u8]) -> Vec<u8> {
        [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
    }

    #[test]
    fn replies_are_read_as_the_crate_reads_them_however_they_are_cut() {
        let long = vec![b'x'; 3 * BUFFER];
        let error = format!("-ERR {}\r\n", "why ".repeat(BUFFER));
        let whole = [
            &b"+OK\r\n+PONG\r\n:-17\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n-NOGROUP no such group\r\n"[..],
            &bulk(b"a\r\nb"),
            b"*3\r\n*2\r\n$1\r\nn\r\n:7\r\n-MOVED 7 host:1\r\n",
            &bulk(&long),
            error.as_bytes(),
            &bulk(b"the last"),
        ]
        .concat();
        let mut parser = redis::Parser::new();
        let mut text = &whole[..];
        let mut expected = Vec::new();
        while expected.len() < 12 {
            expected.push(parser.parse_value(&mut text).unwrap());
        }
        assert_eq!(expected[11], Value::BulkString(b"the last".to_vec()));
        for part in [1, 2, 7, 1_000, BUFFER, usize::MAX] {
            let read = with(&whole, part, |replies| {
                (0..12).map(|_| replies.value().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(read, expected, "parts of {part} bytes");
        }
    }

    #[test]
    fn what_is_skipped_ends_where_the_next_value_begins() {
        let nested = [&b"*2\r\n*2\r\n:1\r\n*0\r\n"[..], &bulk(&[b'\n'; 3 * BUFFER])].concat();
        let whole = [&nested[..], &bulk(b"next"), &bulk(&[b'y'; BUFFER]), b":7\r\n"].concat();
        for part in [1, 1_000, usize::MAX] {
            with(&whole, part, |replies| {
                let head = replies.head().unwrap();
                replies.skip(head).unwrap();
                let Head::Bytes(length) = replies.head().unwrap() else { panic!() };
                assert_eq!(replies.short(length).unwrap(), Some(&b"next"[..]));
                let Head::Bytes(length) = replies.head().unwrap() else { panic!() };
                assert_eq!(replies.short(length).unwrap(), None, "not a short one");
                assert_eq!(replies.value().unwrap(), Value::Int(7));
            });
        }
    }

    #[test]
    fn a_malformed_reply_is_an_error_and_takes_no_memory() {
        let deep = "*1\r\n".repeat(DEPTH_MAX + 2);
        let lengths = ["$99999999999999\r\n", "*99999999999999\r\n", "$-2\r\n", "*x\r\n"];
        for text in lengths.into_iter().chain(["?\r\n", "\r\n", ":1\n", "$1\r\nab\r\n", &deep]) {
            let error = with(text.as_bytes(), 1, |replies| replies.value().unwrap_err());
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{text}");
        }
        let cut = with(b"*4000000000\r\n:1\r\n", 1, |replies| replies.value().unwrap_err());
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
    }
}
