//! Writes replies to a connection's output.

use std::fmt::{Display, Write};

use super::number;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Version {
    /// The version that every connection starts with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Version {
    /// The number used in `HELLO`.
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// An upper bound for a bulk string's header and its line ends, in bytes.
pub(crate) const AROUND: usize = 32;

/// `+TEXT`
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// `-TEXT`. The first word is the kind of error. Line ends in the text become spaces.
pub fn error(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'-');
    // Writing to memory cannot fail.
    let _ = write!(OneLine(out), "{text}");
    out.extend_from_slice(b"\r\n");
}

/// As [`error`], from pieces that may contain any bytes; a quotation of the client's input is
/// written unchanged.
pub fn error_of(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    out.push(b'-');
    let mut line = OneLine(out);
    pieces.iter().for_each(|piece| line.append(piece));
    out.extend_from_slice(b"\r\n");
}

/// `:VALUE`
pub fn integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    number::write(out, value);
    out.extend_from_slice(b"\r\n");
}

/// `$LENGTH`, followed by the bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// No value: `$-1`, or `_` in RESP3.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// The header of an array; its elements follow.
pub fn array(out: &mut Vec<u8>, elements: usize) {
    header(out, b'*', elements);
}

/// The header of a map with this number of entries; each key follows, then its value. An array in
/// RESP2.
pub fn map(out: &mut Vec<u8>, version: Version, entries: usize) {
    match version {
        Version::Resp2 => header(out, b'*', entries * 2),
        Version::Resp3 => header(out, b'%', entries),
    }
}

/// The header of a set; its elements follow. An array in RESP2.
pub fn set(out: &mut Vec<u8>, version: Version, elements: usize) {
    header(out, if version == Version::Resp3 { b'~' } else { b'*' }, elements);
}

/// Text for human readers: a bulk string in RESP2.
pub fn verbatim(out: &mut Vec<u8>, version: Version, text: &str) {
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => {
            header(out, b'=', text.len() + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    // The size of data in memory fits into an `i64`.
    number::write(out, count as i64);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

struct OneLine<'a>(&'a mut Vec<u8>);

impl OneLine<'_> {
    fn append(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().map(|&byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        }));
    }
}

impl Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn each_reply_type_has_its_wire_format() {
        use Version::{Resp2, Resp3};
        assert_eq!(written(|out| simple(out, "OK")), b"+OK\r\n");
        assert_eq!(written(|out| integer(out, -7)), b":-7\r\n");
        assert_eq!(written(|out| bulk(out, b"a\r\n")), b"$3\r\na\r\n\r\n");
        assert_eq!(written(|out| null(out, Resp2)), b"$-1\r\n");
        assert_eq!(written(|out| null(out, Resp3)), b"_\r\n");
        assert_eq!(written(|out| map(out, Resp2, 2)), b"*4\r\n");
        assert_eq!(written(|out| map(out, Resp3, 2)), b"%2\r\n");
        assert_eq!(written(|out| set(out, Resp3, 2)), b"~2\r\n");
        assert_eq!(written(|out| verbatim(out, Resp3, "ab")), b"=6\r\ntxt:ab\r\n");
        assert_eq!(written(|out| verbatim(out, Resp2, "ab")), b"$2\r\nab\r\n");
    }

    #[test]
    fn an_error_is_one_line_for_any_text() {
        assert_eq!(written(|out| error(out, "ERR a\r\nb")), b"-ERR a  b\r\n");
        let out = written(|out| error_of(out, &[b"ERR '", b"a\r\nb\xff", b"'"]));
        assert_eq!(out, b"-ERR 'a  b\xff'\r\n");
    }
}
