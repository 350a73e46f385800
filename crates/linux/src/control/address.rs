//! The folders in which a process may have its socket, and a socket's path.
//!
//! Every folder belongs to one user. It is named by the user's environment, or is in a folder of the
//! system's in which no user can rename or remove what belongs to another
//! ([`PLACES`]). Another user may make a folder under the expected name first: then the process takes a
//! name that cannot be known before.

use std::ffi::{CString, OsString};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of the folder below the one that the environment names, and the start of its name in
/// [`PLACES`]: there a dash and the user's number follow.
pub const FOLDER: &str = "uwork";
/// The places for folders of sockets, the best first.
///
/// - `/run`: only root can make a folder there, for itself or for a user.
/// - `/dev/shm`: where `/run` belongs to root, and all file systems of disks are read-only. Services
///   with a `/tmp` of their own share it with the rest of the system, and nothing in it is removed by
///   its age.
/// - `/tmp`: where that is missing.
pub const PLACES: [&str; 3] = ["/run", "/dev/shm", "/tmp"];

/// The user whose folder is used: the one to whom new files belong.
pub(super) fn user() -> libc::uid_t {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::geteuid() }
}

/// The folders for a user's sockets, the best first.
pub(super) fn folders(user: libc::uid_t) -> impl Iterator<Item = PathBuf> {
    let own = own(from_environment());
    let shared = PLACES.map(|place| Path::new(place).join(format!("{FOLDER}-{user}")));
    own.into_iter().chain(shared)
}

/// `XDG_RUNTIME_DIR`, unless the program has more rights than its user.
fn from_environment() -> Option<OsString> {
    if super::is_privileged() { None } else { crate::environment::variable("XDG_RUNTIME_DIR") }
}

fn own(from_environment: Option<OsString>) -> Option<PathBuf> {
    let given = from_environment.map(PathBuf::from).filter(|path| path.is_absolute());
    given.map(|path| path.join(FOLDER))
}

/// Makes a folder unless it exists, and checks that other users can neither write to it nor replace
/// it. Returns its path: another one if another user has that name, in a place of all users.
///
/// # Errors
/// The reason.
pub(super) fn prepare(folder: PathBuf, user: libc::uid_t) -> Result<PathBuf, String> {
    check_parent(&folder, user)?;
    let Err(reason) = make(&folder, user) else { return Ok(folder) };
    let is_shared = PLACES.iter().any(|place| folder.parent() == Some(Path::new(place)));
    if !is_shared || fs::symlink_metadata(&folder).is_err() {
        return Err(reason);
    }
    let other = with_suffix(&folder, &format!(".{:08x}", random()));
    make(&other, user).map(|()| other).map_err(|_| reason)
}

/// Whether the name was chosen because another user has the expected one. Such a folder is one
/// process's.
pub(super) fn is_another(folder: &Path) -> bool {
    folder.extension().is_some()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// A number that other users cannot know before.
fn random() -> u32 {
    RandomState::new().hash_one(()) as u32
}

/// Other users can neither rename nor remove what the user makes in the parent.
fn check_parent(folder: &Path, user: libc::uid_t) -> Result<(), String> {
    let parent = folder.parent().unwrap_or(Path::new("/"));
    let found = fs::metadata(parent).map_err(|error| describe(parent, &error))?;
    let is_sticky = found.mode() & libc::S_ISVTX != 0;
    let is_open = found.mode() & OF_OTHERS != 0 && !is_sticky;
    if is_open || found.uid() != user && found.uid() != 0 {
        return Err(format!("{}: other users may replace what is in it", parent.display()));
    }
    Ok(())
}

/// The rights of others to write.
const OF_OTHERS: libc::mode_t = 0o022;

fn make(folder: &Path, user: libc::uid_t) -> Result<(), String> {
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    let reason = |error: &io::Error| describe(folder, made.as_ref().err().unwrap_or(error));
    // It may exist already, also in a file system where none can be made.
    let found = fs::symlink_metadata(folder).map_err(|error| reason(&error))?;
    let fault = if !found.is_dir() {
        "not a folder".to_owned()
    } else if found.uid() != user {
        format!("belongs to user {}", found.uid())
    } else if found.mode() & OF_OTHERS != 0 {
        "other users may write to it".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("{}: {fault}", folder.display()))
}

/// A path and an error of the system's, without its number.
pub(super) fn describe(path: &Path, error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("{}: {text}", path.display())
}

/// The name of this process's socket. It differs from those of all processes that live: processes in
/// different PID namespaces may have the same number, and share a folder.
pub(super) fn name() -> String {
    name_of(std::process::id())
}

/// The name of the calling thread: the process's in its main thread, else one that no other living
/// process or thread has.
pub(super) fn name_of_thread() -> String {
    name_of(crate::thread::tid().unsigned_abs())
}

/// The name of a process or thread of this PID namespace.
fn name_of(number: u32) -> String {
    let namespace = fs::metadata("/proc/self/ns/pid").map(|found| found.ino());
    // Without that file system: any other number.
    let namespace = namespace.unwrap_or_else(|_| random().into());
    format!("{number}-{namespace:x}")
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
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_folder_comes_from_the_environment_if_its_path_is_absolute() {
        let at = |text: &str| own(Some(OsString::from(text)));
        assert_eq!(at("/run/user/7"), Some(PathBuf::from("/run/user/7/uwork")));
        for useless in ["", "here", "./here"] {
            assert_eq!(at(useless), None, "{useless:?}");
        }
        assert_eq!(own(None), None);
    }

    fn rights(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
    }

    #[test]
    fn a_folder_that_others_can_write_or_replace_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, user) = (place.path().join("uwork"), user());
        let refused = |part: &str| {
            let reason = prepare(folder.clone(), user).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        symlink("/", &folder).expect("room");
        refused("not a folder");
        fs::remove_file(&folder).expect("our own");
        assert_eq!(prepare(folder.clone(), user), Ok(folder.clone()));
        assert_eq!(fs::metadata(&folder).expect("it exists").mode() & 0o777, 0o700);
        assert_eq!(prepare(folder.clone(), user), Ok(folder.clone()), "it exists");
        for mode in [0o720, 0o702] {
            rights(&folder, mode);
            refused("other users may write to it");
        }
        rights(&folder, 0o755);
        assert_eq!(prepare(folder.clone(), user), Ok(folder.clone()));
        rights(place.path(), 0o777);
        refused("other users may replace");
        rights(place.path(), 0o1777);
        assert_eq!(prepare(folder.clone(), user), Ok(folder.clone()), "the sticky bit");
        assert!(prepare(folder.clone(), user + 1).is_err());
        assert!(prepare(place.path().join("missing/uwork"), user).is_err());
    }

    #[test]
    fn a_name_has_the_process_and_its_namespace() {
        let name = name();
        let (process, namespace) = name.split_once('-').expect("both");
        assert_eq!(process, std::process::id().to_string());
        assert!(u64::from_str_radix(namespace, 16).is_ok(), "{name}");
    }

    #[test]
    fn a_path_that_is_too_long_has_no_address() {
        let longest = 107;
        assert!(address(Path::new(&"x".repeat(longest))).is_some());
        assert!(address(Path::new(&"x".repeat(longest + 1))).is_none());
        assert!(address(Path::new("with\0zero")).is_none());
    }
}
