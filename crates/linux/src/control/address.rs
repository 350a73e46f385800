//! The folder of the sockets, and a socket's path.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder below the one for run-time files.
const FOLDER: &str = "uwork";
/// Used where the environment names no folder.
const SYSTEM: &str = "/run";

/// The folder for this process's socket. Makes it if it is missing.
pub(super) fn folder() -> Result<PathBuf, String> {
    let path = parent(from_environment()).join(FOLDER);
    let describe = |error: io::Error| format!("{}: {error}", path.display());
    // Other users may list the system's folder: the sockets in it have rights of their own.
    let mode =
        if path.starts_with(SYSTEM) && path.components().count() == 3 { 0o755 } else { 0o700 };
    match std::fs::DirBuilder::new().mode(mode).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(describe(error)),
        _ => {}
    }
    let found = std::fs::symlink_metadata(&path).map_err(describe)?;
    if !found.is_dir() {
        return Err(format!("{}: not a folder", path.display()));
    }
    // SAFETY: no arguments; cannot fail.
    let user = unsafe { libc::geteuid() };
    if found.uid() != user && found.uid() != 0 {
        return Err(format!("{}: belongs to user {}", path.display(), found.uid()));
    }
    Ok(path)
}

/// `XDG_RUNTIME_DIR`, unless the program has more rights than its user.
fn from_environment() -> Option<OsString> {
    if super::is_privileged() { None } else { std::env::var_os("XDG_RUNTIME_DIR") }
}

fn parent(from_environment: Option<OsString>) -> PathBuf {
    let given = from_environment.map(PathBuf::from).filter(|path| path.is_absolute());
    given.unwrap_or_else(|| PathBuf::from(SYSTEM))
}

/// A path as an address. None if it is too long, or has a zero byte.
pub(super) fn address(path: &Path) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let bytes = path.as_bytes_with_nul();
    // SAFETY: zeros are a valid value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let places = address.sun_path.get_mut(..bytes.len())?;
    places.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte as libc::c_char);
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len();
    Some((address, length as libc::socklen_t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_comes_from_the_environment_if_its_path_is_absolute() {
        let at = |text: &str| parent(Some(OsString::from(text)));
        assert_eq!(at("/run/user/7"), Path::new("/run/user/7"));
        for useless in ["", "here", "./here"] {
            assert_eq!(at(useless), Path::new(SYSTEM), "{useless:?}");
        }
        assert_eq!(parent(None), Path::new(SYSTEM));
    }

    #[test]
    fn a_path_that_is_too_long_has_no_address() {
        let longest = 107;
        assert!(address(Path::new(&"x".repeat(longest))).is_some());
        assert!(address(Path::new(&"x".repeat(longest + 1))).is_none());
        assert!(address(Path::new("with\0zero")).is_none());
    }
}
