//! The JSON format of trace events, which Perfetto and `chrome://tracing` open.

use std::fmt::Write;

/// A track: a number of its process, and its own number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// The group of tracks; the format calls it a process.
    pub group: u32,
    /// The track's number in the group; the format calls it a thread.
    pub number: u64,
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Nanoseconds in the unit of the format, microseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

/// The length from which text goes to a sink, in bytes.
const PIECE: usize = 64 << 10;

/// Takes the text of a file in pieces.
pub type Sink<'a> = Box<dyn FnMut(&str) + 'a>;

/// Events, in the order in which they are added. All times are in nanoseconds.
#[derive(Default)]
pub struct Events<'a> {
    /// What the sink has not got.
    text: String,
    has_any: bool,
    sink: Option<Sink<'a>>,
}

impl<'a> Events<'a> {
    /// Events whose text is not kept: `sink` gets it in pieces, each with whole events. The last one
    /// comes with [`Events::file`].
    #[must_use]
    pub fn to(sink: Sink<'a>) -> Self {
        Events { sink: Some(sink), ..Events::default() }
    }

    fn push(&mut self, event: &str) {
        self.text += if self.has_any { ",\n" } else { "{\"traceEvents\":[\n" };
        self.has_any = true;
        self.text += event;
        if let Some(sink) = self.sink.as_mut().filter(|_| self.text.len() >= PIECE) {
            sink(&self.text);
            self.text.clear();
        }
    }

    /// Names a group of tracks.
    pub fn name_group(&mut self, group: u32, name: &str) {
        self.name("process_name", Track { group, number: 0 }, name);
    }

    /// Names a track.
    pub fn name_track(&mut self, track: Track, name: &str) {
        self.name("thread_name", track, name);
    }

    fn name(&mut self, what: &str, Track { group, number }: Track, name: &str) {
        let name = quoted(name);
        self.push(&format!(
            r#"{{"name":"{what}","ph":"M","pid":{group},"tid":{number},"args":{{"name":{name}}}}}"#
        ));
    }

    /// Adds an event of a phase with further members.
    fn add(&mut self, phase: char, at: u64, track: Track, name: &str, more: &str) {
        let (name, at, Track { group, number }) = (quoted(name), us(at), track);
        self.push(&format!(
            r#"{{"name":{name},"ph":"{phase}","ts":{at},"pid":{group},"tid":{number}{more}}}"#
        ));
    }

    /// A slice begins.
    pub fn begin(&mut self, at: u64, track: Track, name: &str) {
        self.add('B', at, track, name, "");
    }

    /// The slice of this name ends.
    pub fn end(&mut self, at: u64, track: Track, name: &str) {
        self.add('E', at, track, name, "");
    }

    /// An instant.
    pub fn instant(&mut self, at: u64, track: Track, name: &str) {
        self.add('i', at, track, name, r#","s":"t""#);
    }

    /// A slice from its begin to its end.
    pub fn slice(&mut self, from: u64, to: u64, track: Track, name: &str) {
        self.add('X', from, track, name, &format!(r#","dur":{}"#, us(to - from)));
    }

    /// An arrow begins, at the slice of the track that contains this time.
    pub fn arrow_from(&mut self, at: u64, track: Track, name: &str, id: u64) {
        self.add('s', at, track, name, &format!(r#","cat":"uwork","id":{id}"#));
    }

    /// The arrow with the same name and number ends, at the slice of the track that contains this
    /// time.
    pub fn arrow_to(&mut self, at: u64, track: Track, name: &str, id: u64) {
        self.add('f', at, track, name, &format!(r#","cat":"uwork","id":{id},"bp":"e""#));
    }

    /// The text of the file, or the rest of what the sink has got. `about` are the members of a JSON object
    /// that describes it.
    #[must_use]
    pub fn file(mut self, about: &str) -> String {
        if !self.has_any {
            self.text += "{\"traceEvents\":[";
        }
        self.text + &format!("\n],\n\"otherData\":{{{about}}}}}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\\n"), r#""a\"b\\\u000a""#);
    }

    #[test]
    fn an_arrow_has_the_same_number_at_both_ends() {
        let (from, to) = (Track { group: 1, number: 2 }, Track { group: 1, number: 3 });
        let mut events = Events::default();
        events.slice(1_000, 2_500, from, "queue");
        events.arrow_from(1_500, from, "queued", 7);
        events.arrow_to(4_000, to, "queued", 7);
        let text = events.file("");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..4],
            [
                r#"{"name":"queue","ph":"X","ts":1.000,"pid":1,"tid":2,"dur":1.500},"#,
                r#"{"name":"queued","ph":"s","ts":1.500,"pid":1,"tid":2,"cat":"uwork","id":7},"#,
                r#"{"name":"queued","ph":"f","ts":4.000,"pid":1,"tid":3,"cat":"uwork","id":7,"bp":"e"}"#,
            ]
        );
    }

    // Catches: gigabytes for the text of a trace of millions of events.
    #[test]
    fn a_sink_gets_the_text_in_pieces_of_whole_events() {
        let track = Track { group: 1, number: 2 };
        let add = |events: &mut Events<'_>| {
            (0..10_000).for_each(|at| events.instant(at, track, "an event"));
        };
        let mut kept = Events::default();
        add(&mut kept);
        let mut pieces: Vec<String> = Vec::new();
        let mut events = Events::to(Box::new(|text| pieces.push(text.to_owned())));
        add(&mut events);
        let rest = events.file("");
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() < 2 * PIECE));
        assert!(pieces.iter().all(|piece| piece.ends_with('}')));
        assert_eq!(pieces.concat() + &rest, kept.file(""));
        assert_eq!(Events::default().file(""), "{\"traceEvents\":[\n],\n\"otherData\":{}}\n");
    }
}
