//! A queue's name, without an allocation of its own.

use std::fmt;

use super::NAME_MAX;

/// A character of a queue's name as a part of a path: a `!` for a `/` and for white space, which would end
/// it.
pub fn path_char(c: char) -> char {
    if c == '/' || c.is_whitespace() { '!' } else { c }
}

/// Up to [`NAME_MAX`] bytes of text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    length: u8,
    bytes: [u8; NAME_MAX],
}

impl Name {
    /// No name.
    pub(crate) const EMPTY: Name = Name { length: 0, bytes: [0; NAME_MAX] };

    /// A name from `text`, if it is valid: 1 to [`NAME_MAX`] bytes, and no control characters.
    pub(crate) fn new(text: &str) -> Option<Name> {
        if text.is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control) {
            return None;
        }
        let mut bytes = [0; NAME_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Name { length: text.len() as u8, bytes })
    }

    /// A name, or a part of a path, with [`path_char`] for each character. None if no queue can have it.
    pub(super) fn in_a_path(text: &str) -> Option<Name> {
        let mut name = Name::EMPTY;
        let mut length = 0;
        for c in text.chars().map(path_char) {
            let rest = &mut name.bytes[length..];
            if c.is_control() || c.len_utf8() > rest.len() {
                return None;
            }
            length += c.encode_utf8(rest).len();
        }
        name.length = length as u8;
        (length > 0).then_some(name)
    }

    /// The name with a number, cut so that it is not too long.
    pub(super) fn with_number(&self, number: u32) -> Name {
        let number = format!("#{number}");
        let text = self.as_str();
        let mut cut = text.len().min(NAME_MAX - number.len());
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let text = format!("{}{number}", &text[..cut]);
        Name::new(&text).expect("a part of a name, and a number")
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("made from a str")
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_31_bytes_and_no_control_characters() {
        let longest = "é".repeat(NAME_MAX / 2) + "x";
        assert_eq!(Name::new(&longest).unwrap().as_str(), longest);
        assert!(Name::new("").is_none() && Name::new("a\0b").is_none());
        assert!(Name::new("a\nb").is_none() && Name::new("\u{1b}[31m").is_none());
        assert!(Name::new(&"x".repeat(NAME_MAX + 1)).is_none());
        assert!(Name::new("a").unwrap() != Name::EMPTY);
    }

    #[test]
    fn names_in_paths_have_no_slashes_and_no_white_space() {
        let in_a_path = |text: &str| Name::in_a_path(text).map(|name| name.as_str().to_owned());
        assert_eq!(in_a_path("a/b c\u{2003}é!").as_deref(), Some("a!b!c!é!"));
        assert_eq!(in_a_path(&"/".repeat(NAME_MAX)), Some("!".repeat(NAME_MAX)));
        for none in ["", "a\0", &"x".repeat(NAME_MAX + 1), &"é".repeat(NAME_MAX / 2 + 1)] {
            assert_eq!(in_a_path(none), None, "{none:?}");
        }
    }
}
