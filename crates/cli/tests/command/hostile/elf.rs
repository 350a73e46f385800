//! Files of an adversary, mapped where its answers have addresses. Each costs a reader that believes it
//! memory or time without bound, or has names that add lines.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use crate::random::Random;

/// The bytes that are mapped, all as code.
const MAPPED: u64 = 1 << 20;
/// Where the files have a symbol table, and the names of symbols and sections.
const SYMBOLS_AT: u64 = 8 << 20;
const NAMES_AT: u64 = 7 << 20;
/// Larger than what is read of all debug information.
const DEBUG_SIZE: u64 = 300 << 20;

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

/// Maps a file with these sections and names. Returns its address.
fn mapped(name: &str, sections: &[[u8; 64]], names: &[u8]) -> u64 {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
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
    let (length, access) = (MAPPED as usize, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: a new mapping, which stays.
    let at = unsafe {
        let at = std::ptr::null_mut();
        libc::mmap(at, length, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // Clients read it by /proc, or not at all.
    std::fs::remove_file(path).unwrap();
    at.addr() as u64
}

/// An address in one of the files.
pub(super) fn address(random: &mut Random) -> u64 {
    static FILES: OnceLock<[u64; 3]> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let (symbols, end) = (2, 2 * DEBUG_SIZE - SYMBOLS_AT);
        let names = section(0, 3, NAMES_AT, 1 << 20, 0);
        let line = b"f\n  ok    forged\x1b[21t\nprocess 1\n\0.debug_line\0.debug_info\0";
        let debug = [33, 45].map(|name| section(name, 1, 0, DEBUG_SIZE, 0));
        [
            mapped("names", &vec![names; 65_000], &vec![b'n'; 1 << 20]),
            mapped("symbols", &[names, section(0, symbols, SYMBOLS_AT, end, 0)], line),
            mapped(
                "debug",
                &[names, section(0, symbols, SYMBOLS_AT, 24, 0), debug[0], debug[1]],
                line,
            ),
        ]
    });
    files[random.below(3) as usize] + random.below(MAPPED)
}
