//! File names as bytes: escaping and unescaping for checksum lines, quoting for messages.
//!
//! A checksum must fit on one line, so GNU coreutils writes `\\`, `\n` and `\r` for a backslash, a
//! newline and a carriage return in a name, and marks such a line with a leading backslash. All
//! other bytes are written unchanged.

use std::io;

use crate::printable::is_plain;

/// Whether a checksum line with this name needs escapes.
pub(super) fn needs_escape(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'))
}

/// Appends `name`, escaped.
pub(super) fn write_escaped(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'\r' => out.extend_from_slice(br"\r"),
            _ => out.push(byte),
        }
    }
}

/// Appends the name that `escaped` stands for. If the escapes are invalid, returns false and leaves
/// `out` unchanged.
#[must_use]
pub(super) fn write_unescaped(escaped: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        let plain = match byte {
            b'\\' => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => {
                    out.truncate(start);
                    return false;
                }
            },
            _ => byte,
        };
        out.push(plain);
    }
    true
}

/// A name for a message on the terminal: unchanged if a shell would read it as one word, otherwise
/// quoted for a shell. So a name cannot break the line or send control sequences.
pub(super) fn quoted(name: &[u8]) -> String {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.chars().any(is_escaped));
    match text {
        Some(text) if !name.is_empty() && !has_shell_meaning(name) => text.to_owned(),
        Some(text) if text.contains('\'') && !text.contains(['"', '$', '`', '\\', '!']) => {
            format!("\"{text}\"")
        }
        _ => single_quoted(name),
    }
}

/// Whether a terminal could obey the character, or a reader not see it.
fn is_escaped(c: char) -> bool {
    c.is_control() || !is_plain(c)
}

/// Messages end in `: reason`, so a name with a colon is quoted too.
fn has_shell_meaning(name: &[u8]) -> bool {
    matches!(name, [b'#' | b'~', ..] | b"{" | b"}")
        || name.iter().any(|byte| br#" !"$&'()*:;<=>?[\^`|"#.contains(byte))
}

/// `'...'`, with `$'\n'` for an escaped character ([`is_escaped`]) and `$'\377'` for a byte that is not
/// valid UTF-8.
fn single_quoted(name: &[u8]) -> String {
    let mut out = String::from("'");
    let mut in_dollar = false;
    let mut put = |dollar: bool, text: &str| {
        if dollar != in_dollar {
            out.push_str(if dollar { "'$'" } else { "''" });
            in_dollar = dollar;
        }
        out.push_str(text);
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => put(true, r"\n"),
                '\t' => put(true, r"\t"),
                '\r' => put(true, r"\r"),
                '\'' => put(false, r"'\''"),
                c if is_escaped(c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        put(true, &format!("\\{byte:03o}"));
                    }
                }
                c => put(false, c.encode_utf8(&mut [0; 4])),
            }
        }
        for byte in chunk.invalid() {
            put(true, &format!("\\{byte:03o}"));
        }
    }
    out.push('\'');
    out
}

/// The message for a file that could not be read: `uwork: NAME: reason`.
pub(super) fn complaint(name: &[u8], error: &io::Error) -> String {
    format!("uwork: {}: {}\n", quoted(name), reason(error))
}

/// The error in the words of strerror(3). The standard library appends the error number, other
/// tools do not.
pub(super) fn reason(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(number) = text.rfind(" (os error") {
        text.truncate(number);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(name: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_escaped(name, &mut out);
        out
    }

    #[test]
    fn only_backslash_newline_and_carriage_return_are_escaped() {
        assert_eq!(escaped(b"a\\b\nc\rd\te\xff f"), b"a\\\\b\\nc\\rd\te\xff f");
        assert!(!needs_escape(b"a\tb \xff'\""));
        for name in [&b"\\"[..], b"x\n", b"\ry"] {
            assert!(needs_escape(name));
        }
    }

    #[test]
    fn an_unknown_escape_is_rejected_and_leaves_the_output_unchanged() {
        for text in [&b"ab\\"[..], b"\\t", b"\\0", b"a\\ b"] {
            let mut out = b"kept".to_vec();
            assert!(!write_unescaped(text, &mut out));
            assert_eq!(out, b"kept");
        }
    }

    /// The expected strings are the output of GNU coreutils 9.1.
    #[test]
    fn messages_quote_as_a_shell_would_read_them() {
        let expected = [
            (&b"usr/a-b_c.d,e+f@g%h~i#j{k}"[..], "usr/a-b_c.d,e+f@g%h~i#j{k}"),
            (b"nope it", "'nope it'"),
            (b"q\n", "'q'$'\\n'"),
            (b"t\tb", "'t'$'\\t''b'"),
            (b"\xff", "''$'\\377'"),
            (b"nope:", "'nope:'"),
            (b"it's", "\"it's\""),
            (b"a\\b", "'a\\b'"),
            (b"~x", "'~x'"),
            (b"", "''"),
            ("é".as_bytes(), "é"),
        ];
        for (name, message) in expected {
            assert_eq!(quoted(name), message);
        }
    }

    #[test]
    fn a_message_has_no_character_that_turns_or_hides_a_part_of_it() {
        assert_eq!(quoted("a\u{202e}b".as_bytes()), r"'a'$'\342\200\256''b'");
        assert_eq!(quoted("\u{200b}".as_bytes()), r"''$'\342\200\213'");
    }

    proptest! {
        #[test]
        fn unescaping_restores_every_name(name: Vec<u8>) {
            let line = escaped(&name);
            prop_assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
            let mut back = Vec::new();
            prop_assert!(write_unescaped(&line, &mut back));
            prop_assert_eq!(&back, &name);
            prop_assert_eq!(line == name, !needs_escape(&name));
        }

        #[test]
        fn a_message_stays_on_its_line(name: Vec<u8>) {
            prop_assert!(!quoted(&name).chars().any(is_escaped));
        }
    }
}
