//! A file of a running process: its symbol table, and the sections of its debug information.
//!
//! The process may belong to another user, and the file may change while it is read. So the file is
//! read, never mapped, and every size in it is compared with that of the file.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::geteuid;

use crate::commands::process::apart::Stop;

/// The size of the pieces in which symbols are read, in bytes.
const PIECE: usize = 1 << 20;
/// The longest symbol table that is read: ten million symbols.
const SYMBOLS_MAX: u64 = 256 << 20;
/// The bytes of debug information that this command holds at a time, of all files of all processes.
const DEBUG_MAX: u64 = 256 << 20;
/// The bytes of the names of functions and of places that are kept of a process.
pub(super) const TEXT_MAX: usize = 8 << 20;
/// The longest name, and the longest of a section: those that are looked for are shorter.
pub(super) const NAME_MAX: usize = 4096;
const SECTION_NAME_MAX: usize = 64;
/// The size of a symbol, and of the headers of the file, a segment and a section.
const SYMBOL: usize = 24;
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const LOAD: u64 = 1;
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
/// The types of functions, and of those that the loader resolves.
const FUNCTIONS: [u8; 2] = [2, 10];
const COMPRESSED: u64 = 1 << 11;

/// Why the debug information of a file is not read.
pub(super) const NOT_BELIEVED: &str = "users other than root can write it";

/// What is left of [`DEBUG_MAX`].
struct Budget(AtomicU64);

static DEBUG: Budget = Budget(AtomicU64::new(DEBUG_MAX));

/// See the module.
pub(super) struct Elf {
    file: File,
    size: u64,
    /// Whether debug information is read: [`is_believed`].
    pub(super) is_believed: bool,
    stop: Stop,
    budget: &'static Budget,
    /// What was taken of the budget.
    taken: Cell<u64>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

struct Segment {
    offset: u64,
    address: u64,
    in_file: u64,
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: usize,
}

fn malformed() -> Error {
    Error::new(ErrorKind::InvalidData, "it is no ELF file of 64 bits, or it is damaged")
}

/// Whether the debug information of a file is parsed. The parser recurses for each level of it, and one
/// byte can cost it many. So root believes only files that no other user can write. Another user looks
/// into own processes only, which have run the code of the file.
fn is_believed(found: &Metadata) -> bool {
    let others = if found.gid() == 0 { 0o002 } else { 0o022 };
    !geteuid().is_root() || found.uid() == 0 && found.mode() & others == 0
}

/// A little-endian number of N bytes. The fields that are read lie within the slice.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(all)
}

impl Elf {
    pub(super) fn new(file: File, stop: &Stop) -> Result<Elf, Error> {
        let found = file.metadata()?;
        let (size, is_believed, stop) = (found.len(), is_believed(&found), stop.clone());
        let (budget, taken) = (&DEBUG, Cell::new(0));
        let (segments, sections) = (Vec::new(), Vec::new());
        let mut elf = Elf { file, size, is_believed, stop, budget, taken, segments, sections };
        let header = elf.read(0, HEADER as u64)?;
        // 64 bits, little-endian.
        if header[..6] != *b"\x7fELF\x02\x01" {
            return Err(malformed());
        }
        let table = |at, count, entry: usize| {
            let (at, count) = (number::<8>(&header, at), number::<2>(&header, count));
            elf.read(at, count * entry as u64)
        };
        let (segments, sections) = (table(32, 56, SEGMENT)?, table(40, 60, SECTION)?);
        let loaded = segments.chunks_exact(SEGMENT).filter(|it| number::<4>(it, 0) == LOAD);
        elf.segments = loaded
            .map(|it| Segment {
                offset: number::<8>(it, 8),
                address: number::<8>(it, 16),
                in_file: number::<8>(it, 32),
            })
            .collect();
        let mut named: Vec<(u64, Section)> = sections
            .chunks_exact(SECTION)
            .map(|it| {
                let section = Section {
                    name: String::new(),
                    kind: number::<4>(it, 4) as u32,
                    flags: number::<8>(it, 8),
                    offset: number::<8>(it, 24),
                    size: number::<8>(it, 32),
                    link: number::<4>(it, 40) as usize,
                };
                (number::<4>(it, 0), section)
            })
            .collect();
        let names = number::<2>(&header, 62) as usize;
        if let Some(names) = named.get(names).map(|(_, names)| (names.offset, names.size)) {
            let names = elf.read(names.0, names.1.min(PIECE as u64))?;
            for (at, section) in &mut named {
                section.name = text_at(&names, *at as usize, SECTION_NAME_MAX);
            }
        }
        elf.sections = named.into_iter().map(|(_, section)| section).collect();
        Ok(elf)
    }

    /// An error if nothing waits for the results.
    pub(super) fn go_on(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::other("it was not read in time")),
            false => Ok(()),
        }
    }

    fn read(&self, at: u64, size: u64) -> Result<Vec<u8>, Error> {
        self.go_on()?;
        if at.checked_add(size).is_none_or(|end| end > self.size) {
            return Err(malformed());
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// The address, in the file's own numbers, of the byte at this offset of the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let within =
            |it: &&Segment| offset.checked_sub(it.offset).is_some_and(|at| at < it.in_file);
        let segment = self.segments.iter().find(within)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Whether it has symbols of all functions, not only of those for other files.
    pub(super) fn has_symbols(&self) -> bool {
        self.sections.iter().any(|section| section.kind == SYMBOLS)
    }

    /// The mangled names of the functions that contain these addresses: one pass over the table. No
    /// table is kept or sorted, so that a large file costs no memory.
    pub(super) fn symbols(&self, addresses: &[u64]) -> Result<BTreeMap<u64, String>, Error> {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        let mut found: BTreeMap<u64, (bool, u64)> = BTreeMap::new();
        let of = |kind| self.sections.iter().find(|section| section.kind == kind);
        let Some(table) = of(SYMBOLS).or_else(|| of(DYNAMIC_SYMBOLS)) else {
            return Ok(BTreeMap::new());
        };
        let end = table.size.min(SYMBOLS_MAX);
        let mut at = 0;
        while at < end {
            let size = (end - at).min((PIECE / SYMBOL * SYMBOL) as u64);
            let piece = self.read(table.offset.checked_add(at).ok_or_else(malformed)?, size)?;
            for symbol in piece.chunks_exact(SYMBOL) {
                // Each may contain all addresses.
                self.go_on()?;
                let (start, length) = (number::<8>(symbol, 8), number::<8>(symbol, 16));
                let first = wanted.partition_point(|&address| address < start);
                let within = wanted[first..].iter().take_while(|&&it| it - start < length);
                for &address in within {
                    let is_local = symbol[4] >> 4 == 0;
                    if FUNCTIONS.contains(&(symbol[4] & 15)) && number::<2>(symbol, 6) != 0 {
                        // An exported name is the one that its users know.
                        let known = found.entry(address).or_insert((true, number::<4>(symbol, 0)));
                        if known.0 && !is_local {
                            *known = (false, number::<4>(symbol, 0));
                        }
                    }
                }
            }
            at += size;
        }
        let names = self.sections.get(table.link).ok_or_else(malformed)?;
        let name = |at: u64| -> Result<String, Error> {
            let left = names.size.checked_sub(at).ok_or_else(malformed)?;
            let bytes = self.read(names.offset.saturating_add(at), left.min(NAME_MAX as u64))?;
            Ok(text_at(&bytes, 0, NAME_MAX))
        };
        let (mut named, mut left) = (BTreeMap::new(), TEXT_MAX);
        for (address, (_, at)) in found {
            let name = name(at)?;
            let Some(rest) = left.checked_sub(name.len()) else { break };
            left = rest;
            named.insert(address, name);
        }
        Ok(named)
    }

    /// Debug information of this name. Empty if there is none; an error if the file is not believed, if
    /// the section is compressed, or if no budget is left. The budget is given back with this value.
    pub(super) fn debug(&self, name: &str) -> Result<Vec<u8>, Error> {
        let Some(section) = self.sections.iter().find(|section| section.name == name) else {
            return Ok(Vec::new());
        };
        let reason = if !self.is_believed {
            NOT_BELIEVED
        } else if section.flags & COMPRESSED != 0 {
            "its debug information is compressed"
        } else if section.size > DEBUG_MAX {
            "its debug information is too large"
        } else if !self.take(section.size) {
            "too much debug information is read at the same time"
        } else {
            return self.read(section.offset, section.size);
        };
        Err(Error::other(reason))
    }

    fn take(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        let is_taken =
            self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        self.taken.update(|taken| taken + if is_taken { bytes } else { 0 });
        is_taken
    }

    /// Whether lines can be found.
    pub(super) fn has_lines(&self) -> bool {
        self.sections.iter().any(|section| section.name == ".debug_line")
    }

    /// Where a distribution keeps the symbols that it has left out of the file.
    pub(super) fn separate(&self) -> Option<PathBuf> {
        let note = self.sections.iter().find(|section| section.name == ".note.gnu.build-id")?;
        let note = self.read(note.offset, note.size.min(256)).ok()?;
        let id: String = note.get(16..)?.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = id.split_at_checked(2)?;
        Some(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into())
    }
}

impl Drop for Elf {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken.get(), Ordering::Relaxed);
    }
}

/// The text up to the next zero, and at most `most` bytes of it.
pub(super) fn text_at(bytes: &[u8], at: usize, most: usize) -> String {
    let bytes = bytes.get(at..).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(most)];
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, fchown};

    use super::*;

    proptest::proptest! {
        /// The file may be any, and change while it is read.
        #[test]
        fn any_file_is_read(bytes in proptest::collection::vec(0_u8.., 0..400), is_elf in 0..2) {
            let mut file = tempfile::tempfile().unwrap();
            let magic = &b"\x7fELF\x02\x01"[..][..6 * is_elf as usize];
            std::io::Write::write_all(&mut file, &[magic, &bytes].concat()).unwrap();
            if let Ok(elf) = Elf::new(file, &Stop::default()) {
                let _ = (elf.symbols(&[0, 1, u64::MAX]), elf.debug(".debug_info"), elf.separate());
                let _ = (elf.address_of(0), elf.has_symbols(), elf.has_lines());
            }
        }
    }

    #[inline(never)]
    fn a_function_of_this_program() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_is_found_by_an_address_in_it() {
        a_function_of_this_program();
        let stop = Stop::default();
        let elf = Elf::new(File::open("/proc/self/exe").unwrap(), &stop).unwrap();
        let all: Vec<u64> = (0..1_000_000).map(|n| n * 16).collect();
        let is = |name: &String| name.contains("a_function_of_this_program");
        // The names of all have more text than is kept at a time.
        let mut parts = all.chunks(50_000);
        assert!(parts.any(|part| elf.symbols(part).unwrap().values().any(is)));
        stop.store(true, Ordering::Relaxed);
        assert!(elf.symbols(&[0]).is_err(), "nothing waits for them");
    }

    /// A file of these sections, each with a name of 1 MiB.
    fn file_of(sections: &[(u32, u64)]) -> File {
        let names = 1 << 20;
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[40..48].copy_from_slice(&(HEADER as u64).to_le_bytes());
        header[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        let mut bytes = header.to_vec();
        for &(name, size) in sections {
            let mut section = [0; SECTION];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[32..40].copy_from_slice(&size.to_le_bytes());
            bytes.extend(section);
        }
        // The first section is the whole file, whose end are the names.
        bytes.resize(bytes.len().max(names), b'x');
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file
    }

    #[test]
    fn the_names_of_sections_are_short() {
        let file = file_of(&[(100_000, 1 << 20); 1_000]);
        let elf = Elf::new(file, &Stop::default()).unwrap();
        assert!(elf.sections.iter().all(|section| section.name.len() == SECTION_NAME_MAX));
    }

    #[test]
    fn debug_information_has_a_budget_for_all_files() {
        let budget: &'static Budget = Box::leak(Box::new(Budget(AtomicU64::new(3 << 19))));
        let elf = || {
            let mut elf = Elf::new(file_of(&[(500, 1 << 20)]), &Stop::default()).unwrap();
            elf.budget = budget;
            elf
        };
        let read = |elf: &Elf| elf.debug(&"x".repeat(SECTION_NAME_MAX)).map(|bytes| bytes.len());
        let first = elf();
        assert_eq!(read(&first).unwrap(), 1 << 20);
        assert!(read(&first).is_err(), "none is left");
        let why = read(&elf()).unwrap_err().to_string();
        assert_eq!(why, "too much debug information is read at the same time");
        drop(first);
        assert!(read(&elf()).is_ok(), "it was given back");
    }

    #[test]
    fn root_believes_files_that_no_other_user_can_write() {
        let file = tempfile::tempfile().unwrap();
        let is_believed = || is_believed(&file.metadata().unwrap());
        let is_root = geteuid().is_root();
        assert!(is_believed());
        file.set_permissions(Permissions::from_mode(0o666)).unwrap();
        assert_eq!(is_believed(), !is_root);
        if is_root {
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
            fchown(&file, Some(65_534), None).unwrap();
            assert!(!is_believed());
        }
    }
}
