//! Foreign bytes on a terminal: payloads, ids, errors.

/// Bytes as text that a terminal only shows: bytes that are not text, control characters, and
/// characters that change the direction of a line are escaped, as in `\x07`, `\n` and `\u{202e}`.
///
/// ```
/// assert_eq!(uwork_bridge::shown(b"a\x1b[31m\xff\n"), r"a\u{1b}[31m\xff\n");
/// ```
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '"' | '\'' | '\\' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        part.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}
