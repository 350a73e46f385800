//! The characters that may reach a terminal. All text of other processes is escaped here.
//!
//! A process writes into its answers, its name and the names of its threads what it likes. Control
//! characters (C0 and C1) would move the cursor, set the title or type into the shell, and format
//! characters would change the direction of a line or hide a part of it.
//!
//! Text is kept as it came: it names queues in requests and is a value in JSON. It is escaped on each
//! way out: [`written`](crate::commands::written), [`one_line`](crate::commands::one_line) of messages
//! and findings, the cells of `uwork top`, and the file of `uwork trace`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The most combining marks of a letter: the words of no language have more. A mark takes no cell, so
/// that any number of them would be drawn at the place of one letter.
const MARKS_MAX: usize = 8;

/// Whether the character has no effect but to be seen: a newline, a tab, or a character that the
/// standard library prints as it is. That excludes control and format characters, line and paragraph
/// separators, all spaces but the usual one, private and unassigned characters. Two texts that look the
/// same should be the same: characters that are not seen are no plain ones, either.
pub(crate) fn is_plain(c: char) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => true,
        _ if c.is_ascii() || is_invisible(c) => false,
        _ => {
            // The letter before it has a combining mark pass, as it does in words.
            let mut bytes = [b'a'; 5];
            let length = 1 + c.encode_utf8(&mut bytes[1..]).len();
            let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
            text.escape_debug().count() == 2
        }
    }
}

/// Whether the character is drawn as nothing, or as a blank: those that Unicode calls default-ignorable,
/// as far as the standard library prints them, and the blank pattern of Braille.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{16fe4}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a plain character is drawn at the place of the one before it.
fn is_mark(c: char) -> bool {
    // The parts of a Hangul syllable behind its first; the standard library escapes a lone mark.
    matches!(c, '\u{1160}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}')
        || !c.is_ascii() && c.escape_debug().nth(1).is_some()
}

/// The characters of a text, each with whether it may reach a terminal.
fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut marks = 0;
    text.chars().map(move |c| {
        let is_plain = is_plain(c);
        marks = if is_plain && is_mark(c) { marks + 1 } else { 0 };
        (c, is_plain && marks <= MARKS_MAX)
    })
}

/// Whether [`printable`] changes nothing.
pub(crate) fn is_printable(text: &str) -> bool {
    judged(text).all(|(_, is_plain)| is_plain)
}

/// The escape of JSON for a character.
fn push_escape(escaped: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(escaped, "\\u{unit:04x}");
    }
}

/// The text with the escapes of JSON, such as `\u001b`, in place of all characters that a terminal
/// could obey. In JSON, whose strings alone may have such characters, the value is the same.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if is_printable(text) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for (c, is_plain) in judged(text) {
        match is_plain {
            true => escaped.push(c),
            false => push_escape(&mut escaped, c),
        }
    }
    Cow::Owned(escaped)
}

/// The same as a part of a line, or as a cell of a table: newlines and tabs are escaped, too. Text of
/// others could add lines else.
pub(crate) fn in_a_line(text: &str) -> String {
    printable(text).replace('\n', "\\u000a").replace('\t', "\\u0009")
}

/// The characters of [`in_a_line`], one by one: of a text of any length as many are made as are taken.
#[cfg(feature = "process")]
pub(crate) fn chars_in_a_line(text: &str) -> impl Iterator<Item = char> {
    judged(text).flat_map(|(c, is_plain)| {
        let is_kept = is_plain && !matches!(c, '\n' | '\t');
        let mut escaped = String::new();
        if !is_kept {
            push_escape(&mut escaped, c);
        }
        is_kept.then_some(c).into_iter().chain(escaped.into_bytes().into_iter().map(char::from))
    })
}

/// The same of bytes. Those that are no UTF-8 become U+FFFD.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match printable(&text) {
        Cow::Owned(escaped) => escaped,
        Cow::Borrowed(_) => text.into_owned(),
    }
}

/// The content of a file in /proc that the process itself may choose, such as its name, without
/// white space at the end. None: the process has ended.
pub(crate) fn file(path: &str) -> Option<String> {
    Some(printable_bytes(std::fs::read(path).ok()?.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_script_passes() {
        for text in ["", "a\tb\n", "\"'\\`$", "größe", "हिन्दी", "日本語", "e\u{301}", "▁█→", "🦀"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn what_a_terminal_could_obey_is_escaped() {
        for (text, escaped) in [
            ("\x1b[31mRED", "\\u001b[31mRED"),
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("a\r\0\x7f", "a\\u000d\\u0000\\u007f"),
            ("\u{9b}2J\u{85}", "\\u009b2J\\u0085"),
            ("\u{202e}\u{2066}\u{61c}\u{200f}", "\\u202e\\u2066\\u061c\\u200f"),
            ("\u{200b}\u{feff}\u{ad}\u{2028}", "\\u200b\\ufeff\\u00ad\\u2028"),
            ("\u{e0041}\u{e000}\u{fffe}", "\\udb40\\udc41\\ue000\\ufffe"),
        ] {
            assert_eq!(printable(text), escaped);
        }
        assert_eq!(printable_bytes(b"a\xff\xfe\x1b"), "a\u{fffd}\u{fffd}\\u001b");
    }

    // Catches: a name that looks like that of another process.
    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, escaped) in [
            ("a\u{fe0f}\u{fe00}", "a\\ufe0f\\ufe00"),
            ("a\u{e0100}", "a\\udb40\\udd00"),
            ("a\u{34f}\u{115f}\u{1160}", "a\\u034f\\u115f\\u1160"),
            ("\u{3164}\u{ffa0}\u{2800}", "\\u3164\\uffa0\\u2800"),
            ("\u{17b4}\u{180b}\u{180e}\u{2060}", "\\u17b4\\u180b\\u180e\\u2060"),
        ] {
            assert_eq!(printable(text), escaped);
        }
    }

    #[test]
    fn a_letter_has_a_bounded_number_of_marks() {
        for mark in ["\u{301}", "\u{1161}"] {
            let most = format!("e{}", mark.repeat(MARKS_MAX));
            assert!(is_printable(&most.repeat(3)), "{mark:?}");
            let escaped = printable(&format!("{most}{mark}{mark}e{mark}")).into_owned();
            let escape = format!("\\u{:04x}", u32::from(mark.chars().next().unwrap()));
            assert_eq!(escaped, format!("{most}{escape}{escape}e{mark}"));
            assert_eq!(printable(&escaped), escaped);
        }
    }

    #[test]
    fn a_part_of_a_line_has_one_line() {
        assert_eq!(in_a_line("a\n7 \u{1b}\tü"), "a\\u000a7 \\u001b\\u0009ü");
    }

    #[test]
    fn escaped_text_stays_as_it_is_and_json_keeps_its_value() {
        let value = serde_json::json!({"a": "\u{9b}\u{202e}\u{e0041}\u{10ffff}"});
        let text = value.to_string();
        let escaped = printable(&text).into_owned();
        assert!(is_printable(&escaped) && escaped != text);
        assert_eq!(printable(&escaped), escaped);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_become_printable(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            let text = printable_bytes(&bytes);
            assert!(is_printable(&text));
            assert!(text.bytes().all(|byte| byte >= 0x20 || matches!(byte, b'\n' | b'\t')));
        }

        #[test]
        fn a_line_is_the_same_character_by_character(
            text in "[a\u{301}\u{1161}\u{202e}\u{10000}\n\tü]{0,40}",
        ) {
            assert_eq!(chars_in_a_line(&text).collect::<String>(), in_a_line(&text));
        }
    }
}
