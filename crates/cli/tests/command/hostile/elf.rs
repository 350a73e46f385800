//! Files of an adversary, mapped where its answers have addresses. Each costs a reader that believes it
//! memory or time without bound, or has names that add lines.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::geteuid;

use crate::answering::{answering, ok};
use crate::observed::until;
use crate::process::{NO_ANSWER, uwork};
use crate::random::Random;

/// The bytes that are mapped, all as code.
const MAPPED: u64 = 1 << 20;
/// Where the files have a symbol table, and the names of symbols and sections.
const SYMBOLS_AT: u64 = 8 << 20;
const NAMES_AT: u64 = 7 << 20;
/// Larger than what is read of all debug information.
const DEBUG_SIZE: u64 = 300 << 20;
/// Where a file has debug information of many levels, and its bytes.
const LEVELS_AT: u64 = 16 << 20;
const LEVELS_SIZE: usize = 4 << 20;
/// The names of sections, and of a function. The latter adds lines where it is printed as it is.
const NAMES: &[u8] =
    b"f\n  ok    forged\x1b[21t\nprocess 1\n\0.debug_line\0.debug_info\0.debug_abbrev\0";
const PRINTED: &str = "f\\u000a  ok    forged\\u001b[21t\\u000aprocess 1\\u000a";

/// The header of a section: name, type, place, size, and the section of its names.
fn section(name: u32, kind: u32, at: u64, size: u64, link: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..4].copy_from_slice(&name.to_le_bytes());
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[24..32].copy_from_slice(&at.to_le_bytes());
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    bytes[40..44].copy_from_slice(&link.to_le_bytes());
    bytes
}

/// The path of a file. Clients that may not read `/proc/PID/map_files` need the file's name.
fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Maps a file with these sections and names. Returns its address.
fn mapped(name: &str, sections: &[[u8; 64]], names: &[u8]) -> u64 {
    let path = path_of(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.unwrap();
    file.set_len(2 * DEBUG_SIZE).unwrap();
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[32..40].copy_from_slice(&64_u64.to_le_bytes());
    header[40..48].copy_from_slice(&120_u64.to_le_bytes());
    header[56..58].copy_from_slice(&1_u16.to_le_bytes());
    header[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
    // A segment of all that is mapped, at the same addresses as in the file.
    let mut segment = [0; 56];
    segment[0] = 1;
    segment[32..40].copy_from_slice(&MAPPED.to_le_bytes());
    let head = [&header[..], &segment, sections.concat().as_slice()].concat();
    file.write_all_at(&head, 0).unwrap();
    file.write_all_at(names, NAMES_AT).unwrap();
    // A function that has all addresses.
    let mut symbol = [0; 24];
    (symbol[4], symbol[6]) = (0x12, 1);
    symbol[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    file.write_all_at(&symbol.repeat(1_000), SYMBOLS_AT).unwrap();
    if name == "levels" {
        write_levels(&file);
    }
    let (length, access) = (MAPPED as usize, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: a new mapping, which stays.
    let at = unsafe {
        let at = std::ptr::null_mut();
        libc::mmap(at, length, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at.addr() as u64
}

/// Debug information of a function that has all addresses, with levels of one byte each. A parser that
/// believes the file recurses at each.
fn write_levels(file: &File) {
    let place = [0x11, 0x01, 0x12, 0x07];
    let abbreviations =
        [&[1_u8, 0x11, 1][..], &place, &[0, 0, 2, 0x2e, 1], &place, &[0, 0, 3, 0x1d, 1, 0, 0, 0]];
    let at = [0_u64.to_le_bytes(), MAPPED.to_le_bytes()].concat();
    let length = LEVELS_SIZE as u32 - 4;
    let unit = [&length.to_le_bytes()[..], &[4, 0], &[0; 4], &[8, 1], &at, &[2], &at].concat();
    // A user other than root believes the file.
    let levels = if geteuid().is_root() { LEVELS_SIZE - unit.len() } else { 100 };
    let unit = [unit, vec![3; levels]].concat();
    file.write_all_at(&abbreviations.concat(), LEVELS_AT).unwrap();
    file.write_all_at(&unit, LEVELS_AT + 4096).unwrap();
    if geteuid().is_root() {
        fchown(file, Some(65_534), None).unwrap();
    }
}

/// Removes the files at the end of a test.
pub(super) struct Files;

impl Drop for Files {
    fn drop(&mut self) {
        for name in ["names", "symbols", "debug", "levels"] {
            let _ = std::fs::remove_file(path_of(name));
        }
    }
}

/// The addresses of the files.
fn files() -> &'static [u64; 4] {
    static FILES: OnceLock<[u64; 4]> = OnceLock::new();
    FILES.get_or_init(|| {
        let (symbols, end) = (2, 2 * DEBUG_SIZE - SYMBOLS_AT);
        let names = section(0, 3, NAMES_AT, 1 << 20, 0);
        let debug = [33, 45].map(|name| section(name, 1, 0, DEBUG_SIZE, 0));
        let levels = [
            section(33, 1, 0, 0, 0),
            section(45, 1, LEVELS_AT + 4096, LEVELS_SIZE as u64, 0),
            section(57, 1, LEVELS_AT, 4096, 0),
        ];
        let one = section(0, symbols, SYMBOLS_AT, 24, 0);
        [
            mapped("names", &vec![names; 65_000], &vec![b'n'; 1 << 20]),
            mapped("symbols", &[names, section(0, symbols, SYMBOLS_AT, end, 0)], NAMES),
            mapped("debug", &[names, one, debug[0], debug[1]], NAMES),
            mapped("levels", &[names, one, levels[0], levels[1], levels[2]], NAMES),
        ]
    })
}

/// An address in one of the files.
pub(super) fn address(random: &mut Random) -> u64 {
    files()[random.below(4) as usize] + random.below(MAPPED)
}

/// The files are read, and not believed.
pub(super) fn are_read() {
    for (number, reason) in [(2, "its debug information is too large"), (3, "no lines: ")] {
        let address = files()[number] + 16;
        let (_folder, socket) = answering(move |request| match request {
            "raw stacks" => {
                ok(&format!("  w, in function {address:#x} of\n      0 {address:#x}\n"))
            }
            _ => ok(""),
        });
        let dump = || {
            let output = uwork(&["dump", "--stacks", &socket]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_late = said.contains("in time") || said.contains(NO_ANSWER);
            if is_late { Err(said) } else { Ok((output.stdout, said)) }
        };
        let (dump, said) = until(dump, |_| true);
        let dump = String::from_utf8_lossy(&dump);
        assert_eq!(dump.matches(PRINTED).count(), 2, "{dump} {said}");
        let is_believed = number == 3 && !geteuid().is_root();
        assert!(is_believed || said.contains(reason), "{said}");
    }
}
