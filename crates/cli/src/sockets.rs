//! Where the control sockets of other processes are, and the removal of those of ended processes.
//!
//! The users of those processes are strangers. A folder is opened component by component, and no link
//! of another user's is followed. What is in it is reached by its descriptor alone: a file is opened
//! without following a link, is a socket of the folder's owner, and is connected to or removed as the
//! file that was opened.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat, unlinkat,
};
use rustix::process::geteuid;
use uwork::control::place::{FOLDER, NOTE, PLACES};

use crate::client::connect;
use crate::peer::{credentials, is_alive, own_number};

/// The folders of systemd's sessions, in which a user's folder has the user's number.
const SESSIONS: &str = "/run/user";
/// The most folders of a user's, and the most files in all of them. What is beyond is left out.
const FOLDERS_MAX: usize = 64;
const FILES_MAX: usize = 4096;
/// The most links in a path.
const LINKS_MAX: usize = 16;

/// A folder of sockets, which belongs to one user.
struct Folder {
    file: OwnedFd,
    parent: OwnedFd,
    path: PathBuf,
    owner: u32,
}

fn refused(reason: String) -> io::Error {
    io::Error::other(reason)
}

fn is_kind(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Opens a folder for [`openat`], by way of no link that belongs to another user.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut left: Vec<Vec<u8>> = Vec::new();
    let push = |left: &mut Vec<Vec<u8>>, path: &Path| {
        let names = path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name.as_bytes().to_vec()),
            Component::ParentDir => Some(b"..".to_vec()),
            _ => None,
        });
        left.extend(names);
    };
    push(&mut left, path);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let next = openat(&at, OsStr::from_bytes(&name), flags, Mode::empty())?;
        let found = fstat(&next)?;
        if is_kind(&found, FileType::Directory) {
            at = next;
            continue;
        }
        links += 1;
        let is_followed = found.st_uid == 0 || found.st_uid == geteuid().as_raw();
        if !is_kind(&found, FileType::Symlink) || !is_followed || links > LINKS_MAX {
            return Err(refused(format!("{} is no folder", OsStr::from_bytes(&name).display())));
        }
        let target = readlinkat(&next, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            at = openat(CWD, "/", flags | OFlags::DIRECTORY, Mode::empty())?;
        }
        push(&mut left, target);
    }
    Ok(at)
}

impl Folder {
    /// Opens a folder, which must belong to this user; for root to any user. No other user may write
    /// to it. The last component of the path is no link.
    fn open(path: &Path) -> io::Result<Folder> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(ErrorKind::NotFound)?;
        let parent = open_path(parent)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent, name, flags, Mode::empty())?;
        let (found, user) = (fstat(&file)?, geteuid());
        if !user.is_root() && found.st_uid != user.as_raw() {
            return Err(refused(format!("{} belongs to user {}", path.display(), found.st_uid)));
        }
        if found.st_mode & 0o022 != 0 {
            return Err(refused(format!("other users may write to {}", path.display())));
        }
        Ok(Folder { file, parent, path: path.to_owned(), owner: found.st_uid })
    }

    /// The names of files, which may be anything; of so many at most.
    fn names(&self, most: usize) -> Vec<PathBuf> {
        let entries = Dir::read_from(&self.file).into_iter().flatten().flatten().take(most);
        let names =
            entries.map(|entry| PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes())));
        names.filter(|name| process_of(name).is_some()).collect()
    }

    /// Opens a socket for [`connect`] and for its removal.
    fn socket(&self, name: &Path) -> io::Result<Socket> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.file, name, flags, Mode::empty())?;
        let found = fstat(&file)?;
        if !is_kind(&found, FileType::Socket) || found.st_uid != self.owner {
            let path = self.path.join(name);
            return Err(refused(format!("{} is no socket of its user's", path.display())));
        }
        Ok(Socket { path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), file })
    }

    /// Removes a socket at which no process listens, if this user may. False if a process does, or if
    /// it cannot be told.
    fn remove_if_stale(&self, name: &Path) -> bool {
        let Ok(socket) = self.socket(name) else { return false };
        let is_stale =
            connect(&socket.path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        let is_removed = is_stale
            && is_named(&self.file, name, &socket.file)
            && unlinkat(&self.file, name, AtFlags::empty()).is_ok();
        if is_removed {
            self.remove_if_of_one_process();
        }
        is_stale
    }

    /// Removes the folder, if it was made for one process and is empty: where another user had taken
    /// its name.
    fn remove_if_of_one_process(&self) {
        let name = self.path.file_name().filter(|_| self.path.extension().is_some());
        if let Some(name) = name.map(Path::new)
            && is_named(&self.parent, name, &self.file)
        {
            // Refused, if it is not empty.
            let _ = unlinkat(&self.parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Whether the name in a folder leads to the file that was opened.
fn is_named(folder: &OwnedFd, name: &Path, file: &OwnedFd) -> bool {
    let now = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let same = |now: Stat, opened: Stat| (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino);
    now.is_ok_and(|now| fstat(file).is_ok_and(|opened| same(now, opened)))
}

/// A socket in a folder.
pub(crate) struct Socket {
    /// Leads to the file that was opened, whatever has its name now.
    path: PathBuf,
    file: OwnedFd,
}

impl Socket {
    /// Opens the file of a path that is a socket's in one of the folders of uwork. `None` for any other
    /// path, which the user has chosen.
    pub(crate) fn listed(path: &Path) -> Option<io::Result<Socket>> {
        let (folder, name) = path.parent().zip(path.file_name())?;
        let is_listed = is_folder(folder) && process_of(Path::new(name)).is_some();
        is_listed.then(|| Folder::open(folder)?.socket(Path::new(name)))
    }

    /// The path for connect(2).
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The folder that the environment names.
fn own_folder() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    own.filter(|path| path.is_absolute()).map(|path| path.join(FOLDER))
}

/// Whether processes may have made their sockets in a folder of this path.
fn is_folder(path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let is_shared = PLACES.iter().any(|place| parent == Path::new(place));
    let is_session = parent.parent() == Some(Path::new(SESSIONS)) && name == FOLDER;
    is_shared && is_users(name) || is_session || own_folder().is_some_and(|own| own == path)
}

/// Whether it is the name of a user's folder in a place of all users.
fn is_users(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.strip_prefix('-'));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The folders of this user, for root of all users, the most likely first.
fn folders() -> Vec<Folder> {
    let below = |place: &str| fs::read_dir(place).into_iter().flatten().flatten();
    let sessions = below(SESSIONS).map(|user| user.path().join(FOLDER));
    let shared = PLACES.iter().flat_map(|place| below(place));
    let shared = shared.filter(|entry| is_users(&entry.file_name())).map(|entry| entry.path());
    let mut known: Vec<Folder> = Vec::new();
    let mut counts = HashMap::new();
    for path in own_folder().into_iter().chain(sessions).chain(shared) {
        // A look is cheap: a stranger may have made any number of folders.
        let Ok(owner) = fs::symlink_metadata(&path).map(|found| found.uid()) else { continue };
        let count = counts.entry(owner).or_insert(0);
        if *count == FOLDERS_MAX || known.iter().any(|folder| folder.path == path) {
            continue;
        }
        *count += 1;
        known.extend(Folder::open(&path));
    }
    known
}

/// The sockets of all processes that this user may see, by the process's number here.
pub(crate) fn sockets() -> Vec<(u32, PathBuf)> {
    sockets_of(None)
}

/// The same of one process.
pub(crate) fn sockets_of(process: Option<u32>) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    let own = own_namespace();
    let is_wanted = |number| process.is_none_or(|process| process == number);
    for (folder, names) in files() {
        for name in names.into_iter().filter(|name| !is_unnamed(name)) {
            // The number of another namespace says nothing here.
            let may_be = process_of(&name)
                .is_some_and(|(number, of)| is_wanted(number) || !is_here(of, own));
            if may_be && let Ok(socket) = folder.socket(&name) {
                let number = number_here(&name, &socket, own).filter(|&it| is_wanted(it));
                found.extend(number.map(|it| (it, folder.path.join(&name))));
            }
        }
    }
    found.sort();
    found
}

fn files() -> Vec<(Folder, Vec<PathBuf>)> {
    with_names(folders())
}

/// The folders with the names of their sockets: [`FILES_MAX`] of a user at most, in all folders.
fn with_names(folders: Vec<Folder>) -> Vec<(Folder, Vec<PathBuf>)> {
    let mut left = HashMap::new();
    let names = |folder: Folder| {
        let left = left.entry(folder.owner).or_insert(FILES_MAX);
        let names = folder.names(*left);
        *left -= names.len();
        (folder, names)
    };
    folders.into_iter().map(names).collect()
}

/// Whether the PID namespace in a socket's name is this process's. `own`: [`own_namespace`].
fn is_here(namespace: Option<u64>, own: Option<u64>) -> bool {
    namespace.is_none() || namespace == own
}

/// The number that a process has here. Processes of other PID namespaces have another one there, which
/// is in the name. 0, if it has none here.
fn number_here(name: &Path, socket: &Socket, own: Option<u64>) -> Option<u32> {
    let (process, namespace) = process_of(name)?;
    if is_here(namespace, own) {
        return Some(process);
    }
    let peer = connect(&socket.path).ok().and_then(|stream| credentials(&stream).ok());
    let number = peer.and_then(|peer| u32::try_from(peer.pid).ok());
    Some(number.unwrap_or(0))
}

/// Removes the socket of a process that has ended, if this user may. False if a process listens on
/// it.
pub(crate) fn remove_if_stale(path: &Path) -> bool {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else { return false };
    let name = Path::new(name);
    let is_listed = is_folder(folder) && process_of(name).is_some();
    is_listed && Folder::open(folder).is_ok_and(|folder| folder.remove_if_stale(name))
}

/// Removes the files of processes that were killed before their sockets had got their names.
pub(crate) fn remove_unnamed() {
    let own = own_namespace();
    for (folder, names) in files() {
        for name in names.into_iter().filter(|name| is_unnamed(name)) {
            let has_ended = process_of(&name)
                .is_some_and(|(process, namespace)| is_here(namespace, own) && !is_alive(process));
            if has_ended {
                folder.remove_if_stale(&name);
            }
        }
    }
}

/// A socket without its name yet begins with a dot.
fn is_unnamed(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(b".")
}

/// The process in the name of a socket, and its PID namespace, which sockets of older versions lack.
fn process_of(name: &Path) -> Option<(u32, Option<u64>)> {
    let name = name.to_str()?;
    let name = name.strip_prefix('.').or_else(|| name.strip_suffix(".sock"))?;
    let (process, namespace) = match name.split_once('-') {
        Some((process, namespace)) => (process, Some(u64::from_str_radix(namespace, 16).ok()?)),
        None => (name, None),
    };
    Some((process.parse().ok()?, namespace))
}

/// This process's PID namespace.
fn own_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// The process in the name of a listed socket is the one with this number here: an error that says
/// otherwise.
pub(crate) fn check_name(path: &Path, process: u32) -> Result<(), String> {
    let folder = path.parent().filter(|folder| is_folder(folder));
    let named = path.file_name().filter(|_| folder.is_some()).map(Path::new).and_then(process_of);
    let Some((named, namespace)) = named else { return Ok(()) };
    let number =
        if is_here(namespace, own_namespace()) { Some(process) } else { own_number(process) };
    match number {
        Some(number) if number == named => Ok(()),
        _ => Err(format!("process {process} listens here, not {named}")),
    }
}

/// Why a process has no socket.
pub(crate) fn no_socket(process: u32) -> String {
    let proc = PathBuf::from(format!("/proc/{process}"));
    if !is_alive(process) {
        return format!("there is no process {process}");
    }
    let without = |reason: &str| format!("process {process} has no control socket here: {reason}");
    let files = match fs::read_dir(proc.join("fd")) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let owner = fs::metadata(&proc).map_or(0, |found| found.uid());
            if owner == geteuid().as_raw() {
                return without("it has changed its user; root can see the reason");
            }
            return format!(
                "process {process} belongs to user {owner}; that user and root may look"
            );
        }
        Err(_) => return format!("there is no process {process}"),
    };
    // The process itself says why.
    let noted = files.flatten().find_map(|file| {
        let link = fs::read_link(file.path()).ok()?;
        let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(NOTE)?;
        Some(name.trim_end_matches(" (deleted)").to_owned())
    });
    if let Some(reason) = noted {
        return without(&reason);
    }
    let environment = fs::read(proc.join("environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    if variables.any(|variable| variable == b"UWORK_CONTROL=0") {
        return without("it was started with UWORK_CONTROL=0");
    }
    if !uses_uwork(&proc) {
        return without("it does not use uwork, or has made no queue");
    }
    let differs = |link: &str| {
        let of = |process: &Path| fs::read_link(process.join(link)).ok();
        of(&proc) != of(Path::new("/proc/self"))
    };
    if differs("ns/mnt") || differs("root") {
        let below = ["run", "dev/shm", "tmp"].map(|place| proc.join("root").join(place));
        let [run, shm, tmp] = below.each_ref().map(|place| place.display());
        return without(&format!(
            "it sees other folders than this command, as in a container; look for a socket below \
             {run}, {shm} and {tmp}, and give its path instead of the number"
        ));
    }
    let own = variable_of(&environment, b"XDG_RUNTIME_DIR=");
    let own = own.map_or("none".to_owned(), |own| format!("{own:?}"));
    without(&format!(
        "none is in the folders that this command knows; its XDG_RUNTIME_DIR is {own}"
    ))
}

/// The value of a variable; `name` ends with `=`.
fn variable_of(environment: &[u8], name: &[u8]) -> Option<String> {
    let value = environment.split(|&byte| byte == 0).find_map(|it| it.strip_prefix(name))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Whether a thread of the library's exists.
fn uses_uwork(proc: &Path) -> bool {
    let threads = fs::read_dir(proc.join("task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| fs::read(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with(b"uw/"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn names_have_a_process_and_a_namespace() {
        let of = |name: &str| process_of(Path::new(name));
        assert_eq!(of("4711-effffffc.sock"), Some((4711, Some(0xefff_fffc))));
        assert_eq!(of("4711.sock"), Some((4711, None)));
        assert_eq!(of(".4711-1f"), Some((4711, Some(0x1f))));
        for other in ["x.sock", "1-2-3.sock", "-1.sock", "1-.sock", "4711", ".", "1-x.sock"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_folders_of_uwork_are_listed() {
        for path in ["/run/uwork-0", "/dev/shm/uwork-7", "/tmp/uwork-7.1f", "/run/user/7/uwork"] {
            assert!(is_folder(Path::new(path)), "{path}");
        }
        for path in
            ["/run/uwork", "/tmp/uwork-", "/tmp/uwork-x", "/var/uwork-7", "/run/user/uwork", "/"]
        {
            assert!(!is_folder(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_folder_is_not_reached_by_a_link_as_its_last_component() {
        let place = tempfile::tempdir().unwrap();
        let (folder, link) = (place.path().join("uwork"), place.path().join("link"));
        fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        assert!(Folder::open(&folder).is_ok());
        assert!(Folder::open(&link).is_err());
        // One's own link to the parent is followed.
        symlink(place.path(), place.path().join("own")).unwrap();
        assert!(Folder::open(&place.path().join("own/uwork")).is_ok());
        symlink("loop", place.path().join("loop")).unwrap();
        assert!(Folder::open(&place.path().join("loop/uwork")).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(Folder::open(&folder).is_err(), "others may write to it");
    }

    #[test]
    fn the_files_of_a_user_are_bounded_in_all_folders_together() {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (place, files) in places.iter().zip([FILES_MAX - 3, 8]) {
            for number in 1..=files {
                fs::write(place.path().join(format!("{number}.sock")), "").unwrap();
            }
        }
        let folders = places.iter().map(|place| Folder::open(place.path()).unwrap()).collect();
        let counts = with_names(folders).iter().map(|(_, names)| names.len()).collect::<Vec<_>>();
        // The entries `.` and `..` may be among those that are read.
        assert_eq!(counts[0], FILES_MAX - 3);
        assert!((1..=3).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn only_a_socket_at_which_no_process_listens_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let at = |name: &str| place.path().join(name);
        let listener = UnixListener::bind(at("1.sock")).unwrap();
        drop(UnixListener::bind(at("2.sock")).unwrap());
        fs::write(at("3.sock"), "a file").unwrap();
        symlink(at("2.sock"), at("4.sock")).unwrap();
        for name in ["1.sock", "3.sock", "4.sock", "5.sock"] {
            assert!(!folder.remove_if_stale(Path::new(name)), "{name}");
        }
        assert!(folder.remove_if_stale(Path::new("2.sock")));
        assert!(!at("2.sock").exists() && at("1.sock").exists() && at("3.sock").exists());
        drop(listener);
        assert!(!remove_if_stale(&at("1.sock")), "not in a folder of uwork");
    }
}
