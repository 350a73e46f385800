//! Names for the addresses in a process's answers. They are read here, beside the process: a stuck
//! process on a busy machine should do as little as possible.
//!
//! The symbol table comes first, which takes milliseconds. Lines and inlined functions follow from the
//! debug information, if it is read in time.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::reading::{self, Part, Place, maps_of};
use crate::commands::process::apart::{self, Answer};
use crate::exchange::words_of;
use crate::printable::in_a_line;

/// The most addresses that are looked up at a time.
const ADDRESSES_MAX: usize = 16_384;
/// Precedes the address of a function without a name.
const FUNCTION: &str = "function 0x";
/// The same in JSON. Quotes within a string are escaped, so no string contains these.
const IN_JSON: &str = r#""function":{"address":"#;
/// Follows that address.
const NO_NAME: &str = r#","name":null"#;

/// The bytes that names may add to texts: a short text refers to a long name any number of times.
const ADDED_MAX: usize = 8 << 20;

/// What is left of the bytes that names may add.
struct Left {
    all: usize,
    left: Cell<usize>,
    /// A name has had no room. No other has, either: a text is named up to a place.
    is_over: Cell<bool>,
}

impl Left {
    fn of(bytes: usize) -> Left {
        Left { all: bytes, left: Cell::new(bytes), is_over: Cell::new(false) }
    }

    /// The names, if there is room for them.
    fn take<T>(&self, bytes: impl Fn(&T) -> usize, names: impl FnOnce() -> T) -> Option<T> {
        if self.is_over.get() {
            return None;
        }
        let names = names();
        match self.left.get().checked_sub(bytes(&names)) {
            Some(left) => self.left.set(left),
            None => self.is_over.set(true),
        }
        (!self.is_over.get()).then_some(names)
    }
}

impl Default for Left {
    fn default() -> Left {
        Left::of(ADDED_MAX)
    }
}

/// What was found out about addresses, and what could not be.
#[derive(Default)]
pub(in super::super) struct Names {
    places: HashMap<u64, Place>,
    /// The reasons why names or lines are missing, by file.
    pub(in super::super) missing: BTreeSet<String>,
    /// Whether the reader has not ended in time.
    is_late: bool,
    left: Left,
}

/// The names of all addresses in the texts, as far as they are found in time: a process may have mapped
/// any number of files of any size. `process` is its number here.
pub(in super::super) fn find(process: u32, texts: &[&str], until: Instant) -> Names {
    let wanted = texts.iter().flat_map(|text| addresses(text)).collect();
    find_by(process, wanted, texts, until).0
}

/// The same, with the reader, if it has not ended in time.
fn find_by(
    process: u32,
    wanted: BTreeSet<u64>,
    texts: &[&str],
    until: Instant,
) -> (Names, Option<Answer>) {
    let mut found = Names::default();
    if wanted.is_empty() {
        return (found, None);
    }
    let wanted = wanted.into_iter().take(ADDRESSES_MAX).collect();
    // Functions have no lines, only calls on stacks.
    let has_stacks = texts.iter().any(|text| text.lines().any(|line| frame(line).is_some()));
    let request = format!("names {}", reading::request(process, &wanted, has_stacks));
    let mut answer = match apart::ask(&request) {
        Ok(answer) => answer,
        Err(error) => {
            let reason = words_of(&error);
            found.missing.insert(format!("no process to read them: {reason}"));
            return (found, None);
        }
    };
    let mut waiting = vec![maps_of(process)];
    loop {
        match answer.line(until).map(|line| line.as_deref().and_then(Part::of)) {
            Ok(Some(Part::File(path))) => waiting.push(path),
            Ok(Some(Part::Place(address, place))) => found.add(address, place),
            Ok(Some(Part::Missing(reason))) => _ = found.missing.insert(reason),
            Ok(Some(Part::Done(path))) => waiting.retain(|it| *it != path),
            Ok(Some(Part::End)) => return (found, None),
            outcome => {
                let why = if outcome.is_err() { "was not read in time" } else { "cannot be read" };
                let late = waiting.into_iter().map(|path| format!("{path}: it {why}"));
                found.missing.extend(late);
                found.is_late = outcome.is_err();
                answer.stop();
                return (found, Some(answer));
            }
        }
    }
}

/// A frame without a name: its number and address.
fn frame(line: &str) -> Option<(usize, u64)> {
    let (number, address) = line.strip_prefix("    ")?.trim_start().split_once(" 0x")?;
    Some((number.parse().ok()?, u64::from_str_radix(address, 16).ok()?))
}

/// The address to look up: that of the call for a frame that waits for its return.
fn looked_up(number: usize, address: u64) -> u64 {
    if number == 0 { address } else { address.saturating_sub(1) }
}

/// The addresses in a text.
fn addresses(text: &str) -> Vec<u64> {
    let frames = text.lines().filter_map(frame).map(|(number, at)| looked_up(number, at));
    let functions = text.split(FUNCTION).skip(1).filter_map(|rest| hex_at_start(rest).0);
    let in_json = text.split(IN_JSON).skip(1).filter_map(|rest| unnamed(rest).map(|it| it.0));
    frames.chain(functions).chain(in_json).collect()
}

/// The address of a function in JSON that has no name, and the text behind.
fn unnamed(rest: &str) -> Option<(u64, &str)> {
    let (address, rest) = rest.split_once(NO_NAME)?;
    Some((address.parse().ok()?, rest))
}

/// A hexadecimal number, and the text behind it.
fn hex_at_start(text: &str) -> (Option<u64>, &str) {
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    (u64::from_str_radix(&text[..end], 16).ok(), &text[end..])
}

impl Names {
    /// Adds what is known of an address.
    fn add(&mut self, address: u64, new: Place) {
        let place = self.places.entry(address).or_default();
        if !new.position.is_empty() {
            place.position = new.position;
        }
        place.symbol = new.symbol.or_else(|| place.symbol.take());
        place.lines.extend(new.lines);
    }

    /// The same, for names of this many bytes in all texts.
    pub(in super::super) fn bounded(self, bytes: usize) -> Names {
        Names { left: Left::of(bytes), ..self }
    }

    /// Why names are missing in the texts so far that were found out.
    pub(in super::super) fn left_out(&self) -> Option<String> {
        let most = self.left.all >> 20;
        self.left.is_over.get().then(|| format!("those behind the first {most} MiB of them"))
    }

    /// The text with names.
    pub(in super::super) fn in_text(&self, text: &str) -> String {
        let (mut out, mut stack) = (String::new(), Vec::new());
        for line in text.lines() {
            match frame(line) {
                Some((number, address)) => stack.push((address, looked_up(number, address))),
                None => {
                    self.write_stack(&mut out, &mut stack);
                    self.write_line(&mut out, line);
                    out.push('\n');
                }
            }
        }
        self.write_stack(&mut out, &mut stack);
        out
    }

    /// Whether the process's files could not be looked up at all.
    pub(in super::super) fn is_unread(&self) -> bool {
        !self.is_late && self.places.is_empty() && !self.missing.is_empty()
    }

    /// A dump in JSON with names.
    pub(in super::super) fn in_json(&self, text: &str) -> String {
        let mut parts = text.split(IN_JSON);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str(IN_JSON);
            let named = unnamed(part).and_then(|(address, rest)| {
                let name = self.places.get(&address)?.symbol.as_deref()?;
                let name =
                    self.left.take(String::len, || serde_json::Value::from(name).to_string())?;
                Some(format!("{address},\"name\":{name}{rest}"))
            });
            out.push_str(named.as_deref().unwrap_or(part));
        }
        out
    }

    fn write_line(&self, out: &mut String, line: &str) {
        let mut parts = line.split(FUNCTION);
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (address, rest) = hex_at_start(part);
            let name = address.and_then(|address| {
                let place = self.places.get(&address)?;
                self.left.take(String::len, || match &place.symbol {
                    Some(symbol) => in_a_line(symbol),
                    None => format!("function {}", in_a_line(&place.position)),
                })
            });
            match name {
                Some(name) => _ = write!(out, "{name}{rest}"),
                None => _ = write!(out, "{FUNCTION}{part}"),
            }
        }
    }

    fn write_stack(&self, out: &mut String, stack: &mut Vec<(u64, u64)>) {
        let mut frames = Vec::new();
        for (address, looked_up) in stack.drain(..) {
            let bytes = |frames: &Vec<Frame>| {
                frames.iter().map(|(_, name, location)| name.len() + location.len()).sum()
            };
            let place = self.places.get(&looked_up);
            match place.and_then(|place| self.left.take(bytes, || place.frames(address))) {
                None => frames.push((address, String::new(), String::new())),
                Some(named) => frames.extend(named),
            }
        }
        let end = end_of_item(&frames);
        for (number, (address, name, location)) in frames[..end].iter().enumerate() {
            let _ = writeln!(out, "    {number:>3} {address:#x}{name}{location}");
        }
    }
}

/// The most addresses of which the results are kept. More than the functions of a program's items: a
/// process that invents addresses has the files read again.
const KEPT_MAX: usize = 4_096;

/// How long a round of `uwork top` waits for names. What is found later is left out.
const NAMES_MAX: Duration = Duration::from_millis(500);

/// Names for texts that come again and again. The files are read when a text has new addresses, by a
/// reader at a time.
#[derive(Default)]
pub(in super::super) struct Kept {
    found: Names,
    addresses: BTreeSet<u64>,
    reader: Option<Answer>,
}

impl Kept {
    /// The text with names. None if the process's files could not be looked up.
    pub(in super::super) fn in_text(&mut self, process: u32, text: &str) -> Option<String> {
        let wanted: BTreeSet<u64> = addresses(text).into_iter().collect();
        let may_read = self.reader.as_mut().is_none_or(Answer::is_over);
        if may_read && !wanted.is_subset(&self.addresses) {
            if self.addresses.len() + wanted.len() > KEPT_MAX {
                *self = Kept::default();
            }
            let until = Instant::now() + NAMES_MAX;
            let (found, reader) = find_by(process, wanted.clone(), &[text], until);
            self.reader = reader;
            self.found.places.extend(found.places);
            self.found.missing.extend(found.missing);
            self.found.is_late |= found.is_late;
            self.addresses.extend(wanted);
        }
        self.found.left = Left::default();
        (!self.found.is_unread()).then(|| self.found.in_text(text))
    }
}

type Frame = (u64, String, String);

impl Place {
    /// The frames of an address: the function that contains it, after those that were inlined there.
    fn frames(&self, address: u64) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self
            .lines
            .iter()
            .map(|line| {
                let name = line.function.as_deref().map(|name| format!(" {}", in_a_line(name)));
                let location = line.location.as_deref().map(|it| format!(" ({})", in_a_line(it)));
                (address, name.unwrap_or_default(), location.unwrap_or_default())
            })
            .collect();
        if frames.is_empty() {
            let location = format!(" ({})", in_a_line(&self.position));
            let location = if self.symbol.is_some() { String::new() } else { location };
            frames.push((address, String::new(), location));
        }
        // The symbol has the function's path, which line tables lack.
        if let (Some(outer), Some(symbol)) = (frames.last_mut(), &self.symbol) {
            outer.1 = format!(" {}", in_a_line(symbol));
        }
        frames
    }
}

/// Where the frames of the item end, and those of its worker begin: at the outermost functions of the
/// engine. All frames, if these have no names.
fn end_of_item(frames: &[Frame]) -> usize {
    let is_of = |(_, name, location): &Frame, path: &str, file: &str| {
        name.trim_start_matches([' ', '<']).starts_with(path) || location.contains(file)
    };
    let is_worker = |it: &Frame| is_of(it, "uwork_engine::worker::", "engine/src/worker/");
    let Some(worker) = frames.iter().rposition(is_worker) else { return frames.len() };
    let is_engine = |it: &Frame| {
        is_of(it, "uwork_engine::", "engine/src/")
            || is_of(it, "core::", "library/core/")
            || is_of(it, "std::", "library/std/")
            || it.1.starts_with(" __rust_try")
    };
    let of_item = frames[..worker].iter().rposition(|it| !is_engine(it));
    of_item.map_or(worker, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process::apart::tests::{answer_by, soon};

    fn found() -> Names {
        let place = |symbol: &str| Place {
            position: "/bin/app+0x5".to_owned(),
            symbol: Some(symbol.to_owned()).filter(|symbol| !symbol.is_empty()),
            lines: Vec::new(),
        };
        let names = [(0x10, "app::wait"), (0x1f, "app::job"), (0x2f, "uwork_engine::worker::run")];
        let mut places: HashMap<u64, Place> =
            names.into_iter().map(|(address, name)| (address, place(name))).collect();
        places.insert(0x30, place(""));
        Names { places, ..Names::default() }
    }

    #[test]
    fn frames_get_names_and_end_with_the_item() {
        let text = "  uw/0 (thread 7), asleep, in function 0x1f of queue \"q\"\n      \
                    0 0x10\n      1 0x20\n      2 0x30\n  deadlock: item function 0x30 0x99\n";
        assert_eq!(
            found().in_text(text),
            "  uw/0 (thread 7), asleep, in app::job of queue \"q\"\n      \
             0 0x10 app::wait\n      1 0x20 app::job\n  deadlock: item function /bin/app+0x5 0x99\n"
        );
        assert_eq!(addresses(text), [0x10, 0x1f, 0x2f, 0x1f, 0x30]);
    }

    #[test]
    fn functions_in_json_get_names() {
        let function = |number: u8, name: &str| {
            format!(r#"{{"function":{{"address":{number},"name":{name}}}}}"#)
        };
        let quoted = serde_json::Value::from(function(16, "null"));
        let all = [function(31, "null"), quoted.to_string(), function(16, r#""own""#)];
        let text = &format!("[{},{}]", all.join(","), function(99, "null"));
        assert_eq!(addresses(text), [31, 99]);
        let named = found().in_json(text);
        let expected = text.replacen("31,\"name\":null", "31,\"name\":\"app::job\"", 1);
        assert_eq!(named, expected);
        assert!(serde_json::from_str::<serde_json::Value>(&named).is_ok());
    }

    // Catches: gigabytes that a dump of eight MiB becomes.
    #[test]
    fn the_bytes_that_names_add_are_bounded() {
        let long = "\u{202e}".repeat(512 / 3);
        let named = |bytes| {
            let mut names = found().bounded(bytes);
            names.places.get_mut(&0x10).unwrap().symbol = Some(long.clone());
            names
        };
        let in_json = r#"{"function":{"address":16,"name":null}} "#.repeat(4_000) + "\n";
        let texts = ["  function 0x10,\n".repeat(4_000), "item\n      0 0x10\n".repeat(4_000)];
        for text in texts.iter().chain([&in_json]) {
            let names = named(ADDED_MAX);
            let all = names.in_json(&names.in_text(text));
            assert!(all.len() > 4_000 * 512 && names.left_out().is_none());
            let names = named(1 << 20);
            let some = names.in_json(&names.in_text(text));
            assert!(some.len() <= text.len() + 8 * 4_000 + (1 << 20), "{}", some.len());
            assert!(some.as_bytes().starts_with(&all.as_bytes()[..1_000]));
            assert!(some.ends_with(&text[text.len() - 1_000..]));
            assert_eq!(names.left_out().unwrap(), "those behind the first 1 MiB of them");
            assert_eq!(names.in_text("function 0x10"), "function 0x10\n", "all texts together");
        }
    }

    #[test]
    fn unknown_addresses_stay() {
        let text = "  in function 0x77 of\n      0 0x78\n      1 named 0x5\n";
        assert_eq!(found().in_text(text), text);
    }

    #[test]
    fn one_reader_reads_at_a_time() {
        let (reader, reads) = answer_by();
        let mut kept = Kept { reader: Some(reader), ..Kept::default() };
        let address = (end_of_item as *const ()).addr();
        let text = format!("  in function {address:#x} of\n");
        let own = std::process::id();
        assert_eq!(kept.in_text(own, &text).as_ref(), Some(&text), "it is as it was");
        drop(reads);
        kept.in_text(own, &text);
        assert_eq!(kept.addresses.len(), 1);
    }

    #[test]
    fn the_reason_for_missing_names_is_kept() {
        assert!(find(99_999_998, &["none"], soon()).missing.is_empty(), "no address");
        let gone = find(99_999_998, &["      0 0x10"], soon());
        assert!(gone.missing.iter().any(|why| why.contains("/proc/99999998/maps")));
    }
}
