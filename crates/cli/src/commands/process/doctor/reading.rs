//! Reads the files that a process has mapped: the functions at addresses, then their lines.
//!
//! The process may belong to another user. Its mappings, its files and the names in them are of any
//! number and size, and what a reader keeps of them is bounded.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::elf::{Elf, NOT_BELIEVED, TEXT_MAX};
use super::lines::{Line, demangled, lines};
use crate::commands::process::apart::{Stop, Turn};

/// The bytes of /proc/PID/maps that are read.
const MAPS_MAX: u64 = 32 << 20;
/// A mapped part of a file.
struct Mapping {
    addresses: Range<u64>,
    offset: u64,
    inode: u64,
    path: String,
}

/// What was found out about an address.
#[derive(Clone, Default)]
pub(super) struct Place {
    /// The file and the address in it.
    pub(super) position: String,
    pub(super) symbol: Option<String>,
    pub(super) lines: Vec<Line>,
}

impl Place {
    /// The memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        let text = self.position.len() + self.symbol.as_ref().map_or(0, String::len);
        size_of::<Place>() + text + self.lines.iter().map(Line::bytes).sum::<usize>()
    }
}

/// What a reader may find yet, in bytes of memory. 0: it has found more.
struct Room(Cell<usize>);

impl Room {
    /// The place, if there is room for it.
    fn take(&self, place: (u64, Place)) -> Option<(u64, Place)> {
        let left = self.0.get().checked_sub(place.1.bytes());
        self.0.set(left.unwrap_or(0));
        left.map(|_| place)
    }
}

/// What a reader of files has found.
pub(super) enum Part {
    /// A file that it is going to read.
    File(String),
    Place(u64, Place),
    /// Why names or lines are missing.
    Missing(String),
    /// A file has been read.
    Done(String),
    /// All is told.
    End,
}

impl Part {
    /// A line for the process that waits for it.
    fn line(&self) -> String {
        let lines = |lines: &[Line]| -> Vec<Value> {
            lines.iter().map(|line| json!([line.function, line.location])).collect()
        };
        let part = match self {
            Part::File(path) => json!({ "file": path }),
            Part::Place(address, place) => {
                json!({"place": [address, place.position, place.symbol, lines(&place.lines)]})
            }
            Part::Missing(reason) => json!({ "missing": reason }),
            Part::Done(path) => json!({ "done": path }),
            Part::End => json!({}),
        };
        format!("{part}\n")
    }

    /// The part of such a line.
    pub(super) fn of(line: &str) -> Option<Part> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let line_of = |value: &Value| Line { function: text(&value[0]), location: text(&value[1]) };
        let value: Value = serde_json::from_str(line).ok()?;
        let Some((kind, part)) = value.as_object()?.iter().next() else { return Some(Part::End) };
        Some(match kind.as_str() {
            "file" => Part::File(text(part)?),
            "place" => {
                let lines = part[3].as_array()?.iter().map(line_of).collect();
                let place = Place { position: text(&part[1])?, symbol: text(&part[2]), lines };
                Part::Place(part[0].as_u64()?, place)
            }
            "missing" => Part::Missing(text(part)?),
            "done" => Part::Done(text(part)?),
            _ => return None,
        })
    }
}

/// The request for [`answer`], without the first word.
pub(super) fn request(process: u32, wanted: &BTreeSet<u64>, has_stacks: bool) -> String {
    let mut text = format!("{process} {has_stacks}");
    wanted.iter().for_each(|address| _ = write!(text, " {address:x}"));
    text
}

/// Reads the files for a request, and tells the parts as lines.
pub(in crate::commands) fn answer(
    request: &str,
    stop: &Stop,
    tell: impl Fn(&str) -> bool,
) -> Option<()> {
    let mut words = request.split(' ');
    let (process, has_stacks) = (words.next()?.parse().ok()?, words.next()? == "true");
    let wanted = words.filter_map(|address| u64::from_str_radix(address, 16).ok()).collect();
    read(process, wanted, has_stacks, stop, |part| tell(&part.line()))?;
    tell(&Part::End.line()).then_some(())
}

/// Reads the files that have these addresses: first the functions of all, then the lines. Ends if
/// `tell` returns false, or is told to stop.
fn read(
    process: u32,
    wanted: BTreeSet<u64>,
    has_stacks: bool,
    stop: &Stop,
    tell: impl Fn(Part) -> bool,
) -> Option<()> {
    let tell = |part| tell(part).then_some(());
    let _turn = Turn::of(process, stop)?;
    let (file, room) = (maps_of(process), Room(Cell::new(TEXT_MAX)));
    let maps = match mappings(&file, &wanted, stop) {
        Ok(maps) => maps,
        Err(error) => return tell(Part::Missing(format!("{file}: {error}"))),
    };
    let mut files: BTreeMap<&str, Vec<(u64, &Mapping)>> = BTreeMap::new();
    for address in wanted {
        // They are in the order of their addresses.
        let at = maps.partition_point(|it| it.addresses.end <= address);
        if let Some(it) = maps.get(at).filter(|it| it.addresses.contains(&address)) {
            files.entry(&it.path).or_default().push((address, it));
        }
    }
    files.retain(|path, _| path.starts_with('/'));
    for path in files.keys() {
        tell(Part::File((*path).to_owned()))?;
    }
    tell(Part::Done(file))?;
    // A place in a line: no end has to keep all of them as text.
    let tell_all = |places: Vec<(u64, Place)>| {
        places.into_iter().try_for_each(|(address, place)| tell(Part::Place(address, place)))
    };
    let mut rest = Vec::new();
    for (path, addresses) in files {
        tell_all(positions(&addresses, &room))?;
        match named(process, &addresses, stop, &room, &tell) {
            Ok((elf, _)) if has_stacks && elf.has_lines() && !elf.is_believed => {
                tell(Part::Missing(format!("{path}: no lines: {NOT_BELIEVED}")))?;
            }
            Ok((elf, pairs)) if has_stacks && elf.has_lines() => {
                rest.push((path, elf, pairs));
                continue;
            }
            Ok(_) => {}
            Err(reason) => tell(Part::Missing(format!("{path}: {reason}")))?,
        }
        tell(Part::Done(path.to_owned()))?;
    }
    for (path, elf, pairs) in rest {
        let own: Vec<u64> = pairs.iter().map(|&(_, own)| own).collect();
        match lines(&elf, &own) {
            Err(reason) => tell(Part::Missing(format!("{path}: no lines: {reason}")))?,
            Ok(lines) => {
                let place = |(address, own): (u64, u64)| {
                    let lines = lines.get(&own).cloned().unwrap_or_default();
                    (address, Place { lines, ..Place::default() })
                };
                let places = pairs.into_iter().map(place).map_while(|it| room.take(it));
                tell_all(places.collect())?;
            }
        }
        tell(Part::Done(path.to_owned()))?;
    }
    if room.0.get() == 0 {
        tell(Part::Missing(format!("there are more than {} MiB of them", TEXT_MAX >> 20)))?;
    }
    Some(())
}

/// The file that lists the mappings of a process.
pub(super) fn maps_of(process: u32) -> String {
    format!("/proc/{process}/maps")
}

/// The mappings that have these addresses, as far as they are read. The others may be any number.
fn mappings(file: &str, wanted: &BTreeSet<u64>, stop: &Stop) -> io::Result<Vec<Mapping>> {
    let mut found = Vec::new();
    for line in BufReader::new(File::open(file)?.take(MAPS_MAX)).split(b'\n') {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let it = mapping(&String::from_utf8_lossy(&line?));
        let has_any = |it: &Mapping| wanted.range(it.addresses.clone()).next().is_some();
        found.extend(it.filter(|it| !it.addresses.is_empty() && has_any(it)));
    }
    Ok(found)
}

/// Where addresses are in their files.
fn positions(wanted: &[(u64, &Mapping)], room: &Room) -> Vec<(u64, Place)> {
    let place = |&(address, it): &(u64, &Mapping)| {
        let offset = address - it.addresses.start + it.offset;
        let position = format!("{}+{offset:#x}", it.path);
        (address, Place { position, ..Place::default() })
    };
    wanted.iter().map(place).map_while(|it| room.take(it)).collect()
}

/// Addresses of a file: in the process, and in the file's own numbers.
type Pairs = Vec<(u64, u64)>;

/// Finds the functions of addresses in one file.
fn named(
    process: u32,
    wanted: &[(u64, &Mapping)],
    stop: &Stop,
    room: &Room,
    tell: &impl Fn(Part) -> Option<()>,
) -> Result<(Elf, Pairs), String> {
    let Some(&(_, of)) = wanted.first() else { return Err("no address".to_owned()) };
    let elf = Elf::new(opened(process, of)?, stop).map_err(|error| error.to_string())?;
    let in_file = |&(address, it): &(u64, &Mapping)| {
        Some((address, elf.address_of(address - it.addresses.start + it.offset)?))
    };
    let pairs: Pairs = wanted.iter().filter_map(in_file).collect();
    // Stripped: the system may have the symbols elsewhere. Lines of its libraries are not looked for.
    let separate = || Elf::new(File::open(elf.separate()?).ok()?, stop).ok();
    let symbols = if elf.has_symbols() { None } else { separate() };
    let symbols = symbols.as_ref().unwrap_or(&elf);
    let own: Vec<u64> = pairs.iter().map(|&(_, own)| own).collect();
    let names = symbols.symbols(&own).map_err(|error| error.to_string())?;
    let place = |&(address, own): &(u64, u64)| {
        let symbol = names.get(&own).map(|name| demangled(name));
        // What `addr2line` takes, too.
        (address, Place { position: format!("{}+{own:#x}", of.path), symbol, ..Place::default() })
    };
    let go_on = |_: &&(u64, u64)| !stop.load(Ordering::Relaxed);
    let mut places = pairs.iter().take_while(go_on).map(place).map_while(|it| room.take(it));
    // The receiver may have gone, as the next part shows.
    let _ = places.try_for_each(|(address, place)| tell(Part::Place(address, place)));
    if !symbols.has_symbols() && names.len() < own.iter().collect::<BTreeSet<_>>().len() {
        let _ = tell(Part::Missing(format!("{}: it is stripped of its symbols", of.path)));
    }
    Ok((elf, pairs))
}

/// Opens a file of a process, as the process has mapped it.
fn opened(process: u32, of: &Mapping) -> Result<File, String> {
    let Range { start, end } = of.addresses;
    // The first needs privileges, and is right even if the file was replaced.
    let names = [
        format!("/proc/{process}/map_files/{start:x}-{end:x}"),
        format!("/proc/{process}/exe"),
        format!("/proc/{process}/root{}", of.path),
    ];
    let mut reason = String::new();
    for name in names {
        match checked(Path::new(&name), of.inode) {
            Ok(file) => return Ok(file),
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

/// Opens a regular file with this number. A file of another kind is not opened: to open a device may
/// have effects, and a pipe would block.
fn checked(path: &Path, inode: u64) -> Result<File, String> {
    let known = fs::metadata(path).map_err(|error| error.to_string())?;
    if !known.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|error| error.to_string())?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    match found.is_file() && found.ino() == inode {
        true => Ok(file),
        false => Err("another file has its name by now".to_owned()),
    }
}

/// A line of /proc/PID/maps.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (_, offset, _, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Mapping {
        addresses: hex(start)?..hex(end)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: words.next().unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        assert!(checked(file.path(), inode).is_ok());
        assert_eq!(
            checked(file.path(), inode + 1).unwrap_err(),
            "another file has its name by now"
        );
        assert_eq!(checked(Path::new("/dev/null"), 1).unwrap_err(), "it is no regular file");
    }

    #[test]
    fn only_mappings_with_wanted_addresses_are_kept() {
        let address = (maps_of as *const ()).addr() as u64;
        let wanted = BTreeSet::from([address, 1]);
        let found = mappings(&maps_of(std::process::id()), &wanted, &Stop::default()).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].addresses.contains(&address));
    }

    #[test]
    fn parts_are_the_same_behind_the_wire() {
        let own = Place { position: "/a\n+0x5".to_owned(), symbol: None, lines: Vec::new() };
        let line = Line { function: None, location: Some("a.rs:7".to_owned()) };
        let symbol = Some("\"\u{202e}".to_owned());
        let named = Place { symbol, lines: vec![line], ..own.clone() };
        let places = [Part::Place(7, own), Part::Place(u64::MAX, named)];
        let [file, done] = [Part::File, Part::Done].map(|part| part("/a".to_owned()));
        let rest = [file, done, Part::Missing("x".to_owned()), Part::End];
        for part in places.into_iter().chain(rest) {
            let line = part.line();
            assert_eq!(line.find('\n'), Some(line.len() - 1));
            assert_eq!(Part::of(&line).unwrap().line(), line);
        }
        assert!(Part::of("").is_none() && Part::of("{\"other\":1}").is_none());
    }

    #[test]
    fn the_places_that_are_found_are_bounded_in_bytes() {
        let room = Room(Cell::new(2 * size_of::<Place>() + 8));
        let place =
            |symbol: &str| (7, Place { symbol: Some(symbol.to_owned()), ..Place::default() });
        assert!(room.take(place("12345")).is_some());
        assert!(room.take(place("1234")).is_none(), "one byte too many");
        assert!(room.take(place("")).is_none(), "the rest is left out");
    }
}
