//! Inlined functions and lines of source files, from the debug information of a file.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian};

use super::elf::{Elf, NAME_MAX, TEXT_MAX, text_at};

/// The most functions that are inlined at an address, and the function itself.
const FRAMES_MAX: usize = 64;

/// The longest name of a function or a file that is shown. A file's own name for a function, which says the
/// same in another form, may be longer.
const SHOWN_MAX: usize = 512;

/// A function, and the line in it.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) function: Option<String>,
    pub(super) location: Option<String>,
}

impl Line {
    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let text = [&self.function, &self.location].into_iter().flatten();
        size_of::<Line>() + text.map(String::len).sum::<usize>()
    }
}

/// The functions at these addresses with their lines, those that were inlined first. Reads all debug
/// information of the file, which takes 100 ms for 100 MB. Addresses beyond [`TEXT_MAX`] have none.
pub(super) fn lines(elf: &Elf, addresses: &[u64]) -> Result<BTreeMap<u64, Vec<Line>>, String> {
    let sections = DwarfSections::load(|section| elf.debug(section.name()));
    let sections = sections.map_err(|error| error.to_string())?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let context = Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
    let (mut found, mut left) = (BTreeMap::new(), TEXT_MAX);
    for &address in addresses {
        elf.go_on().map_err(|error| error.to_string())?;
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { continue };
        let mut lines = Vec::new();
        while lines.len() < FRAMES_MAX
            && let Ok(Some(frame)) = frames.next()
        {
            elf.go_on().map_err(|error| error.to_string())?;
            let name = frame.function.map(|it| text_at(it.name.slice(), 0, NAME_MAX));
            let location = frame.location.and_then(|it| it.file.zip(it.line));
            lines.push(Line {
                function: name.map(|name| demangled(&name)),
                location: location.map(|(file, line)| format!("{}:{line}", shortened(file))),
            });
        }
        let Some(rest) = left.checked_sub(lines.iter().map(Line::bytes).sum()) else { break };
        left = rest;
        found.insert(address, lines);
    }
    Ok(found)
}

/// Text that is cut at [`SHOWN_MAX`] bytes.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = start_of(text, SHOWN_MAX - self.0.len());
        self.0.push_str(start);
        if start.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The start of a text, of at most `most` bytes.
fn start_of(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The name as its program has it, without the hash of a Rust function. A name may stand for one that
/// is thousands of times as long, which is cut.
pub(super) fn demangled(name: &str) -> String {
    let mut cut = Cut(String::new());
    // An error ends the name.
    let _ = write!(cut, "{:#}", rustc_demangle::demangle(name));
    cut.0
}

/// The path of a source file, without the prefix that shows where the standard library was built.
fn shortened(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    start_of(rest.map_or(file, |(_, path)| path), SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::commands::process::apart::Stop;

    /// A file with these sections of debug information.
    fn file_of(sections: &[(&str, &[u8])]) -> Elf {
        let mut names: Vec<u8> = vec![0];
        let mut bytes = vec![0; 64 * (sections.len() + 2)];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
        bytes[60..62].copy_from_slice(&(sections.len() as u16 + 1).to_le_bytes());
        let mut add = |number: usize, name: usize, content: &[u8]| {
            let header = 64 * (number + 1);
            let place = bytes.len() as u64;
            bytes[header..header + 4].copy_from_slice(&(name as u32).to_le_bytes());
            bytes[header + 24..header + 32].copy_from_slice(&place.to_le_bytes());
            bytes[header + 32..header + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            bytes.extend(content);
        };
        for (number, (name, content)) in sections.iter().enumerate() {
            add(number + 1, names.len(), content);
            names.extend([name.as_bytes(), &[0]].concat());
        }
        // The first section has the names of all.
        add(0, 0, &names);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        Elf::new(file, &Stop::default()).unwrap()
    }

    /// Debug information of a function at the addresses below 16, whose name is in `.debug_str`, with
    /// these bytes as what is inlined in it.
    fn function(inlined: &[u8], names: &[u8]) -> Elf {
        let place = [0x11, 0x01, 0x12, 0x07];
        let named = [0x03, 0x0e];
        let abbreviations = [
            &[1_u8, 0x11, 1][..],
            &place,
            &[0, 0],
            &[2, 0x2e, 1],
            &place,
            &named,
            &[0, 0],
            &[3, 0x1d, 1],
            &place,
            &named,
            &[0, 0],
            // An entry of one byte.
            &[4, 0x1d, 1, 0, 0],
            &[0],
        ];
        let at = [0_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat();
        let entries = [&[1_u8][..], &at, &[2], &at, &[0; 4], inlined].concat();
        let unit = [&[4_u8, 0][..], &[0; 4], &[8], &entries].concat();
        let unit = [&(unit.len() as u32).to_le_bytes()[..], &unit].concat();
        file_of(&[
            (".debug_abbrev", &abbreviations.concat()),
            (".debug_info", &unit),
            (".debug_str", names),
        ])
    }

    /// An inlined function at the same addresses.
    fn inlined() -> Vec<u8> {
        [&[3_u8][..], &0_u64.to_le_bytes(), &16_u64.to_le_bytes(), &[0; 4]].concat()
    }

    #[test]
    fn frames_and_their_names_are_bounded() {
        let few = [inlined().repeat(2), vec![0; 4]].concat();
        let found = lines(&function(&few, b"_ZN3app3jobE\0"), &[7, 99]).unwrap();
        let names: Vec<&str> = found[&7].iter().filter_map(|it| it.function.as_deref()).collect();
        assert_eq!((names, found[&99].len()), (vec!["app::job"; 3], 0));
        let many = [inlined().repeat(FRAMES_MAX + 8), vec![0; FRAMES_MAX + 10]].concat();
        let found =
            lines(&function(&many, &[vec![b'x'; 1 << 20], vec![0]].concat()), &[7]).unwrap();
        let lengths = found[&7].iter().map(|it| it.function.as_ref().map_or(0, String::len));
        assert_eq!(lengths.collect::<Vec<_>>(), [SHOWN_MAX; FRAMES_MAX]);
    }

    /// The parser needs a stack frame for each level.
    #[test]
    fn debug_information_of_a_file_that_is_not_believed_is_not_parsed() {
        let mut elf = function(&vec![4; 4 << 20], b"f\0");
        elf.is_believed = false;
        let why = lines(&elf, &[7]).err();
        assert_eq!(why.as_deref(), Some("users other than root can write it"));
    }

    #[test]
    fn a_name_that_stands_for_a_longer_one_is_cut() {
        let name = format!("_RIC1a{}E", "m".repeat(2_000));
        assert!(demangled(&name).starts_with("a::<u32, u32, "), "{}", demangled(&name));
        assert_eq!(demangled(&name).len(), SHOWN_MAX);
        assert_eq!(demangled(&"\u{e9}".repeat(SHOWN_MAX)).len(), SHOWN_MAX);
        assert_eq!(demangled(&format!("x{}", "\u{e9}".repeat(SHOWN_MAX))).len(), SHOWN_MAX - 1);
        assert_eq!(shortened(&"f".repeat(2 * SHOWN_MAX)).len(), SHOWN_MAX);
    }
}
