//! What a test binary says: libtest's events, one JSON object a line, among everything that tests
//! write to the same descriptor.

use serde_json::{Deserializer, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Began(String),
    Passed(String),
    Ignored(String),
    /// The name, and the captured output.
    Failed(String, String),
    /// Still running after libtest's patience.
    Slow(String),
    /// All tests of the process have ended. Whether none of them failed.
    Over(bool),
}

/// The parts of one line.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Line {
    /// What is not an event: the output of a test, or of a process that it started.
    pub(super) text: String,
    pub(super) events: Vec<Event>,
}

const OPENING: &str = "{ \"type\": \"";

/// Splits a line. An event may stand behind text whose line has not ended, and before text of
/// another process.
pub(super) fn split(line: &str) -> Line {
    let mut parts = Line::default();
    let mut rest = line;
    while let Some(at) = rest.find(OPENING) {
        let mut values = Deserializer::from_str(&rest[at..]).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else { break };
        let end = at + values.byte_offset();
        parts.text += &rest[..at];
        match of(&value) {
            Some(event) => parts.events.extend(event),
            None => parts.text += &rest[at..end],
        }
        rest = &rest[end..];
    }
    parts.text += rest;
    parts
}

/// `None` if the object is not libtest's; no event if it says nothing of interest.
fn of(value: &Value) -> Option<Option<Event>> {
    let word = |key: &str| value.get(key).and_then(Value::as_str);
    let name = || word("name").map(str::to_owned);
    match (word("type")?, word("event")?) {
        ("suite", "started") => Some(None),
        ("suite", "ok") => Some(Some(Event::Over(true))),
        ("suite", "failed") => Some(Some(Event::Over(false))),
        ("test", "started") => Some(Some(Event::Began(name()?))),
        ("test", "ok") => Some(Some(Event::Passed(name()?))),
        ("test", "ignored") => Some(Some(Event::Ignored(name()?))),
        ("test", "timeout") => Some(Some(Event::Slow(name()?))),
        ("test", "failed") => {
            let said = [word("message"), word("stdout")].into_iter().flatten();
            Some(Some(Event::Failed(name()?, said.collect::<Vec<_>>().join("\n"))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Line, split};

    #[test]
    fn each_event_of_libtest_is_known() {
        let events = |line: &str| split(line).events;
        assert_eq!(events(r#"{ "type": "suite", "event": "started", "test_count": 4 }"#), []);
        assert_eq!(
            events(r#"{ "type": "test", "event": "started", "name": "a::b" }"#),
            [Event::Began("a::b".into())]
        );
        assert_eq!(
            events(r#"{ "type": "test", "name": "b", "event": "ok", "exec_time": 0.1 }"#),
            [Event::Passed("b".into())]
        );
        assert_eq!(
            events(r#"{ "type": "test", "name": "c", "event": "ignored" }"#),
            [Event::Ignored("c".into())]
        );
        assert_eq!(
            events(r#"{ "type": "test", "event": "timeout", "name": "d" }"#),
            [Event::Slow("d".into())]
        );
        let failed = r#"{ "type": "test", "name": "a", "event": "failed", "stdout": "x\"y\n" }"#;
        assert_eq!(events(failed), [Event::Failed("a".into(), "x\"y\n".into())]);
        let over = r#"{ "type": "suite", "event": "ok", "passed": 3, "failed": 0 }"#;
        assert_eq!(events(over), [Event::Over(true)]);
        let over = r#"{ "type": "suite", "event": "failed", "passed": 3, "failed": 1 }"#;
        assert_eq!(events(over), [Event::Over(false)]);
    }

    #[test]
    fn an_event_is_found_between_the_texts_of_other_processes() {
        let line = concat!(
            "uwork: queue \"x\" {",
            r#"{ "type": "test", "name": "a", "event": "ok" }{ "type": "test", "name": "b", "event": "ok" }"#,
            " says: 5",
        );
        let events = vec![Event::Passed("a".into()), Event::Passed("b".into())];
        assert_eq!(split(line), Line { text: "uwork: queue \"x\" { says: 5".into(), events });
    }

    #[test]
    fn text_that_looks_like_an_event_stays_text() {
        for line in
            ["test a::b ... ok", r#"{ "type": "queue", "event": "ok" }"#, r#"{ "type": "te"#]
        {
            assert_eq!(split(line), Line { text: line.into(), events: vec![] });
        }
    }
}
