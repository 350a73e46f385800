//! The attribute tree.

use std::ffi::{c_char, c_int};

use uwork::sysfs::{self, EntryKind, Error};

use crate::attrs::write_text;
use crate::error::{fail, give, guard};
use crate::memory::{can_create, can_describe};
use crate::queue::text;

fn errno_of(error: &Error) -> c_int {
    match error {
        Error::NoSuchPath { .. } | Error::NoSuchQueue { .. } | Error::WithoutSysfs { .. } => {
            libc::ENOENT
        }
        Error::WrongKind { is_directory: true, .. } => libc::EISDIR,
        Error::WrongKind { .. } => libc::ENOTDIR,
        Error::ReadOnly { .. } => libc::EACCES,
        Error::Refused { error, .. } => error.kind().errno(),
        _ => libc::EINVAL,
    }
}

fn failed(error: &Error) -> c_int {
    fail(errno_of(error), error.to_string())
}

/// Reads an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_sysfs_get(
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: by uwork.h.
    guard(|| match unsafe { text(path, "the path") }.map(sysfs::get) {
        // SAFETY: by uwork.h.
        Ok(Ok(value)) => unsafe { write_text(&value, buffer, size) },
        Ok(Err(error)) => failed(&error),
        Err(code) => code,
    })
}

/// Writes an attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_sysfs_set(path: *const c_char, value: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: by uwork.h.
        let both = unsafe { text(path, "the path") }
            // SAFETY: by uwork.h.
            .and_then(|path| Ok((path, unsafe { text(value, "the value") }?)));
        // An attribute may need other pools.
        match both.and_then(|both| can_create().map(|()| both)) {
            Ok((path, value)) => {
                sysfs::set(path, value).map_or_else(|error| failed(&error), |()| 0)
            }
            Err(code) => code,
        }
    })
}

/// Lists a directory: a line for each entry. The line of a directory ends with `/`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_sysfs_list(path: *const c_char, list: *mut *mut c_char) -> c_int {
    guard(|| {
        // SAFETY: by uwork.h.
        let path = unsafe { text(path, "the path") };
        match path.and_then(|path| can_describe().map(|()| sysfs::list(path))) {
            Ok(Ok(entries)) => {
                let mut lines = String::new();
                for entry in entries {
                    lines.push_str(&entry.name);
                    lines.push_str(if entry.kind == EntryKind::Directory { "/\n" } else { "\n" });
                }
                // SAFETY: null, or a valid place for the list (uwork.h).
                if let Some(list) = unsafe { list.as_mut() } {
                    *list = give(lines);
                }
                0
            }
            Ok(Err(error)) => failed(&error),
            Err(code) => code,
        }
    })
}
