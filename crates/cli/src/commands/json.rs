//! JSON for programs, which is safe on a terminal too.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::printable::printable;

/// An object on a line. Characters that a terminal obeys, and those that change the direction of a
/// line, are escaped.
pub(crate) fn line(object: &Value) -> String {
    let mut text = printable(&object.to_string()).into_owned();
    text.push('\n');
    text
}

/// The object that a text is, on a line, with the strings and numbers as they are. None if the text is
/// anything else. No value is kept: one of a few bytes may take a hundred times as much memory.
pub(crate) fn object_of(text: &str) -> Option<String> {
    let text = serde_json::from_str::<&RawValue>(text).ok()?.get();
    let mut line = String::with_capacity(text.len() + 1);
    let (mut is_in_string, mut is_escaped) = (false, false);
    for c in text.chars() {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        if is_in_string || !is_space {
            line.push(c);
        }
        is_in_string ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
    }
    line.push('\n');
    line.starts_with('{').then_some(line)
}

/// Adds bytes under a name: as a string if they are text, else in hexadecimal under `NAME_hex`.
pub(crate) fn bytes(object: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object[name] = text.into(),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            object[format!("{name}_hex")] = hex.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_character_that_a_terminal_obeys_and_keeps_its_value() {
        let value =
            serde_json::json!({"a": "\u{1b}[31m \u{9b}\u{202e}\n \u{e000}\"'\\ é \u{10ffff}"});
        let line = line(&value);
        let plain = |c: char| !c.is_control() && c != '\u{202e}';
        assert!(line.trim_end().chars().all(plain), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    // Catches: white space that would be escaped on the way out, and an object on several lines.
    #[test]
    fn an_object_of_another_process_is_a_line() {
        for (text, line) in [
            ("\n{\r\"a\" :\t1,\n \"b\": [ ] }\n", Some(r#"{"a":1,"b":[]}"#)),
            (r#"{"a\" b\\": "\\", "c": " d"}"#, Some(r#"{"a\" b\\":"\\","c":" d"}"#)),
            ("{}", Some("{}")),
            ("7", None),
            ("[{}]", None),
            ("\"{}\"", None),
            ("{} {}", None),
            ("{\"a\":\"\r\"}", None),
            ("", None),
        ] {
            assert_eq!(object_of(text).as_deref().map(str::trim_end), line, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_hexadecimal() {
        let mut object = serde_json::json!({});
        bytes(&mut object, "payload", b"x\xff");
        bytes(&mut object, "other", b"text");
        assert_eq!(object.to_string(), r#"{"other":"text","payload_hex":"78ff"}"#);
    }
}
