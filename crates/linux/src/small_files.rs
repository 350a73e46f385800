//! Reads small files, and the names in folders. Each is open only meanwhile (`briefly`): the
//! standard library would close a number that belongs to another file by now, or abort.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::Error;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::descriptor::{Expected, briefly, is_passing};

/// The size of the first buffer. It grows for a file that does not fit, which is then read again: no
/// memory is allocated while the file is open.
const FIRST: usize = 4096;

thread_local! {
    /// The last error for which the thread could not read a file that exists, since
    /// [`take_lack`]: the process, or the system, had no descriptor for it. 0 if there was none.
    static LACK: Cell<i32> = const { Cell::new(0) };
}

/// The error for which the calling thread could not read a file that may exist, since the last call. A
/// caller that gets `None` knows that what it could not read is missing.
pub(crate) fn take_lack() -> Option<Error> {
    let error = LACK.replace(0);
    (error != 0).then(|| Error::from_raw_os_error(error))
}

fn note_lack(error: i32) {
    if is_passing(error) {
        LACK.set(error);
    }
}

/// The first `most` bytes of a file; `None` if it cannot be read.
pub(crate) fn contents(path: &Path, most: usize) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    with_room(most, |buffer| {
        let read = read(&path, buffer)?;
        Some((read, read < buffer.len()))
    })
}

/// Reads a file until the buffer is full, or the file ends. Returns the length; `None` if it cannot be
/// read. Allocates nothing.
pub fn read(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    let open = || open(path, libc::O_RDONLY);
    let expected = Expected::on(path);
    let read = expected.and_then(|expected| briefly(expected, open, |file| read_all(file, buffer)));
    read.inspect_err(|&error| note_lack(error)).ok()?
}

/// The names in a folder, in the order of the system; none if it cannot be read.
pub(crate) fn names(folder: &Path, most: usize) -> Vec<Vec<u8>> {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return Vec::new() };
    let entries = with_room(most, |buffer| {
        let open = || open(&path, libc::O_DIRECTORY);
        let expected = Expected::on(&path);
        let listed = expected
            .and_then(|expected| briefly(expected, open, |folder| list_all(folder, buffer)));
        listed.inspect_err(|&error| note_lack(error)).ok()?
    });
    let mut names = Vec::new();
    for_each_name(&entries.unwrap_or_default(), |name| names.push(name.to_vec()));
    names
}

/// Calls `read` with larger and larger buffers until everything fits: `read` returns the length, and
/// whether it did.
fn with_room(
    most: usize,
    mut read: impl FnMut(&mut [u8]) -> Option<(usize, bool)>,
) -> Option<Vec<u8>> {
    let mut room = FIRST.min(most);
    loop {
        let mut buffer = vec![0; room];
        let (length, is_all) = read(&mut buffer)?;
        if is_all || room == most {
            buffer.truncate(length);
            return Some(buffer);
        }
        room = (4 * room).min(most);
    }
}

fn open(path: &CStr, flags: libc::c_int) -> RawFd {
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }
}

/// Reads until the buffer is full, or the file ends. `None` after an error.
fn read_all(file: RawFd, buffer: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    while length < buffer.len() {
        let rest = &mut buffer[length..];
        let at = length as libc::off_t;
        // SAFETY: the rest is live and of the given length.
        let read = unsafe { libc::pread(file, rest.as_mut_ptr().cast(), rest.len(), at) };
        match usize::try_from(read).ok()? {
            0 => break,
            read => length += read,
        }
    }
    Some(length)
}

/// Fills the buffer with entries of a folder: the length, and whether these are all. `None` after an
/// error.
fn list_all(folder: RawFd, buffer: &mut [u8]) -> Option<(usize, bool)> {
    let mut length = 0;
    loop {
        match entries(folder, &mut buffer[length..]) {
            Ok(0) => return Some((length, true)),
            Ok(read) => length += read,
            // The next entry does not fit.
            Err(libc::EINVAL) => return Some((length, false)),
            Err(_) => return None,
        }
    }
}

/// Some more entries of a folder, as getdents64(2) gives them: their length, 0 at the end.
///
/// # Errors
/// The number of the system's error.
pub(crate) fn entries(folder: RawFd, buffer: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: the buffer is live and of the given length.
    let read =
        unsafe { libc::syscall(libc::SYS_getdents64, folder, buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(read).map_err(|_| crate::fatal::errno())
}

/// Offsets in `struct linux_dirent64`, getdents64(2).
const ENTRY_LENGTH: usize = 16;
const ENTRY_NAME: usize = 19;

/// Calls `f` with the name of each of these entries.
pub(crate) fn for_each_name(entries: &[u8], mut f: impl FnMut(&[u8])) {
    let mut rest = entries;
    while rest.len() > ENTRY_NAME {
        let length = u16::from_ne_bytes([rest[ENTRY_LENGTH], rest[ENTRY_LENGTH + 1]]);
        let length = usize::from(length).clamp(ENTRY_NAME, rest.len());
        let name = &rest[ENTRY_NAME..length];
        f(name.split(|&byte| byte == 0).next().unwrap_or_default());
        rest = &rest[length..];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_file_of_any_length_is_read_up_to_the_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        assert_eq!(contents(&path, 10), None);
        for length in [0, 1, FIRST - 1, FIRST, FIRST + 1, 10 * FIRST] {
            let written: Vec<u8> = (0..length).map(|at| at as u8).collect();
            std::fs::write(&path, &written).expect("a file");
            for most in [1, FIRST, 4 * FIRST, 20 * FIRST] {
                let wanted = &written[..length.min(most)];
                assert_eq!(contents(&path, most).as_deref(), Some(wanted), "{length} {most}");
            }
        }
        assert_eq!(contents(folder.path(), 10), None, "a folder has no contents");
    }

    #[test]
    fn a_folder_of_any_size_is_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        for count in [0, 1, 500, 3_000] {
            let wanted: BTreeSet<_> = (0..count).map(|n| format!("entry{n}")).collect();
            for name in &wanted {
                std::fs::write(folder.path().join(name), "").expect("a file");
            }
            let names = names(folder.path(), 1 << 20).into_iter();
            let names: BTreeSet<_> =
                names.map(|name| String::from_utf8(name).expect("text")).collect();
            let parents = [".", ".."].map(str::to_owned);
            assert_eq!(names, wanted.into_iter().chain(parents).collect());
        }
        assert!(names(&folder.path().join("missing"), 1 << 20).is_empty());
    }
}
