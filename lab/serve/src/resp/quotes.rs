//! Inline requests: words, possibly quoted, as typed in a terminal.

use super::Span;

/// A quotation without an end, or with text directly behind its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Splits the line into words. The words are appended to `text`, and their positions to `spans`.
///
/// Double quotes accept `\n`, `\r`, `\t`, `\b`, `\a`, `\xHH` and `\` before any other byte; single
/// quotes accept `\'`.
pub(super) fn split(
    line: &[u8],
    text: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        let start = rest.iter().position(|&byte| !is_space(byte));
        rest = &rest[start.unwrap_or(rest.len())..];
        // As in Redis, a NUL ends the line.
        if rest.first().is_none_or(|&byte| byte == 0) {
            return Ok(());
        }
        let start = text.len();
        rest = word(rest, text)?;
        spans.push(Span::new(start, text.len() - start));
    }
}

/// As `isspace` of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Copies the word at the start of `rest`, and returns the text behind it.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => return Ok(rest),
            [b'"', inside @ ..] => return ended(double_quoted(inside, text)?),
            [b'\'', inside @ ..] => return ended(single_quoted(inside, text)?),
            [byte, behind @ ..] => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Checks that the closing quote ends the word.
fn ended(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    match rest {
        [] => Ok(rest),
        [byte, ..] if is_space(*byte) => Ok(rest),
        _ => Err(Unbalanced),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, behind) = match rest {
            [] | [0, ..] => return Err(Unbalanced),
            [b'"', behind @ ..] => return Ok(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), behind)
            }
            [b'\\', escaped, behind @ ..] if *escaped != 0 => (unescaped(*escaped), behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        text.push(byte);
        rest = behind;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, behind) = match rest {
            [] | [0, ..] => return Err(Unbalanced),
            [b'\'', behind @ ..] => return Ok(behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        text.push(byte);
        rest = behind;
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut spans)?;
        Ok(spans.iter().map(|span| span.of(&text).to_vec()).collect())
    }

    #[test]
    fn words_are_split_at_white_space() {
        assert_eq!(words(b"  set a\t1 ").unwrap(), [b"set".to_vec(), b"a".to_vec(), b"1".to_vec()]);
        assert_eq!(words(b" \t ").unwrap(), [] as [Vec<u8>; 0]);
        assert_eq!(words(b"a\0b").unwrap(), [b"a".to_vec()]);
        assert_eq!(words(b"\x0ba\x0bb 'c'\x0b").unwrap(), [b"a\x0bb".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn quotes_keep_spaces_in_a_word() {
        assert_eq!(words(br#""a b" 'c d'"#).unwrap(), [b"a b".to_vec(), b"c d".to_vec()]);
        assert_eq!(words(br#""" ''"#).unwrap(), [b"".to_vec(), b"".to_vec()]);
        assert_eq!(words(br#""\x00\xfF\n\"\q\xg1""#).unwrap(), [b"\0\xff\n\"qxg1".to_vec()]);
        assert_eq!(words(br"'it\'s \n'").unwrap(), [br"it's \n".to_vec()]);
        assert_eq!(words(br#"a"b c""#).unwrap(), [b"ab c".to_vec()]);
    }

    #[test]
    fn a_quotation_must_be_closed_and_must_end_its_word() {
        for line in [&br#""a"#[..], b"'a", br#""a"b"#, b"'a'b", br#""a\""#, b"'a\\'", b"\"\0\""] {
            assert_eq!(words(line), Err(Unbalanced), "{}", line.escape_ascii());
        }
    }
}
