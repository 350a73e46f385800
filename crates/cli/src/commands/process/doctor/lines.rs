//! Inlined functions and lines of source files, from the debug information of a file.

use std::collections::BTreeMap;

use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian};

use super::elf::Elf;

/// A function, and the line in it.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) function: Option<String>,
    pub(super) location: Option<String>,
}

/// The functions at these addresses with their lines, those that were inlined first. Reads all debug
/// information of the file, which takes 100 ms for 100 MB.
pub(super) fn lines(elf: &Elf, addresses: &[u64]) -> Result<BTreeMap<u64, Vec<Line>>, String> {
    let sections = DwarfSections::load(|section| elf.debug(section.name()));
    let sections = sections.map_err(|error| error.to_string())?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let context = Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
    let mut found = BTreeMap::new();
    for &address in addresses {
        elf.go_on().map_err(|error| error.to_string())?;
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { continue };
        let mut lines = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let location = frame.location.and_then(|it| it.file.zip(it.line));
            lines.push(Line {
                function: name.map(|name| demangled(&name)),
                location: location.map(|(file, line)| format!("{}:{line}", shortened(file))),
            });
        }
        found.insert(address, lines);
    }
    Ok(found)
}

/// The name as its program has it, without the hash of a Rust function.
pub(super) fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

/// The path of a source file, without the prefix that shows where the standard library was built.
fn shortened(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    rest.map_or(file, |(_, path)| path)
}
