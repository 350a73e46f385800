//! JSON for programs, which is safe on a terminal too.

use std::fmt::Write as _;

use serde_json::Value;

/// An object on a line. Characters that a terminal obeys, and those that change the direction of a
/// line, are escaped.
pub(crate) fn line(object: &Value) -> String {
    let mut text = String::new();
    for c in object.to_string().chars() {
        let is_obeyed =
            c.is_control() || !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1;
        if !is_obeyed {
            text.push(c);
            continue;
        }
        // Outside of strings JSON has none of these.
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text.push('\n');
    text
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

    #[test]
    fn bytes_that_are_no_text_are_hexadecimal() {
        let mut object = serde_json::json!({});
        bytes(&mut object, "payload", b"x\xff");
        bytes(&mut object, "other", b"text");
        assert_eq!(object.to_string(), r#"{"other":"text","payload_hex":"78ff"}"#);
    }
}
