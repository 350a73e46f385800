//! Folders of sockets, and what is in them. Their users are strangers.
//!
//! A folder is opened component by component. No link of another user's is followed, and no file system
//! that another user serves is entered. What is in a folder is reached by its descriptor alone: a file
//! is opened without following a link, is a socket of the folder's owner, and is connected to or removed
//! as the file that was opened.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2,
    readlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::client::connect;
use crate::mounts;
use crate::peer::is_alive;
use crate::socket_name::{is_here, process_of};

/// The most links in a path.
const LINKS_MAX: usize = 16;

/// How a path is opened: no link is followed, and nothing of the file is read.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder of sockets, which belongs to one user.
pub(crate) struct Folder {
    file: OwnedFd,
    parent: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) owner: u32,
    /// Another process sees it, perhaps in a container, whose file systems are not listed here.
    is_below: bool,
}

/// What a look at a folder has found.
pub(crate) struct Names {
    pub(crate) sockets: Vec<PathBuf>,
    /// The number of names that were read, of sockets and of other files.
    pub(crate) read: usize,
    pub(crate) has_more: bool,
}

pub(crate) fn refused(reason: String) -> io::Error {
    io::Error::other(reason)
}

fn is_kind(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Opens a name in a folder as a path, and follows no link. Another file system below it is not entered if
/// a stranger serves it: one in user space (FUSE) may never answer.
fn step(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let same = ResolveFlags::NO_XDEV;
    match openat2(&folder, name, PATH, Mode::empty(), same) {
        // NOSYS and PERM: the kernel is older than 5.6, or a sandbox refuses the call.
        Err(Errno::XDEV | Errno::NOSYS | Errno::PERM) => {}
        outcome => return Ok(outcome?),
    }
    // The path alone asks no server.
    let file = openat(&folder, name, PATH, Mode::empty())?;
    match mounts::is_of_stranger(&file)? {
        true => Err(refused(format!("{} is a stranger's file system", name.display()))),
        false => Ok(file),
    }
}

/// Opens a folder for [`openat`], by way of no link that belongs to another user.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let mut at = openat(CWD, "/", PATH | OFlags::DIRECTORY, Mode::empty())?;
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
        let next = step(&at, OsStr::from_bytes(&name))?;
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
            at = openat(CWD, "/", PATH | OFlags::DIRECTORY, Mode::empty())?;
        }
        push(&mut left, target);
    }
    Ok(at)
}

/// Opens a folder below another one, by way of no link. `..` does not lead out of that one.
fn walk_below(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let step = |folder: &OwnedFd, name: &OsStr| {
        // Of a link it is an error.
        openat(folder, name, PATH | OFlags::DIRECTORY, Mode::empty())
    };
    // Each folder is in the one before.
    let mut way = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => way.push(step(way.last().unwrap_or(root), name)?),
            Component::ParentDir => _ = way.pop(),
            _ => {}
        }
    }
    way.pop().map_or_else(|| Ok(step(root, OsStr::new("."))?), Ok)
}

/// The folder that has the last component of a path, and that component as a path: no link is followed.
fn open_last(path: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(ErrorKind::NotFound)?;
    let parent = open_path(parent)?;
    let file = step(&parent, name)?;
    Ok((parent, file))
}

/// The owner of a file, of whichever kind.
pub(crate) fn owner_of(path: &Path) -> io::Result<u32> {
    let (_, file) = open_last(path)?;
    Ok(fstat(&file)?.st_uid)
}

impl Folder {
    /// Opens a folder, which must belong to this user; for root to any user. No other user may write
    /// to it. The last component of the path is no link.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let (parent, file) = open_last(path)?;
        Folder::of(parent, &file, path)
    }

    /// The same for a path in the folders that another process sees, which begin at `root`. No link is
    /// followed. Each file system there is entered, and may never answer.
    pub(crate) fn open_below(root: &Path, path: &Path) -> io::Result<Folder> {
        let follows = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let root_file = openat(CWD, root, follows, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let flags = PATH | OFlags::DIRECTORY;
        let file = match openat2(&root_file, path, flags, Mode::empty(), resolve) {
            // As in `step`.
            Err(Errno::NOSYS | Errno::PERM) => walk_below(&root_file, path)?,
            outcome => outcome?,
        };
        // It is never removed, so that its parent does not matter.
        let folder = Folder::of(root_file, &file, &root.join(path))?;
        Ok(Folder { is_below: true, ..folder })
    }

    fn of(parent: OwnedFd, file: &OwnedFd, path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = openat(file, ".", flags, Mode::empty())?;
        let (found, user) = (fstat(&file)?, geteuid());
        if !user.is_root() && found.st_uid != user.as_raw() {
            return Err(refused(format!("{} belongs to user {}", path.display(), found.st_uid)));
        }
        if found.st_mode & 0o022 != 0 {
            return Err(refused(format!("other users may write to {}", path.display())));
        }
        let (path, owner) = (path.to_owned(), found.st_uid);
        Ok(Folder { file, parent, path, owner, is_below: false })
    }

    /// The names of sockets among the first `most` files, whose names may be anything.
    pub(crate) fn names(&self, most: usize) -> Names {
        let entries = Dir::read_from(&self.file).into_iter().flatten().flatten();
        let names =
            entries.map(|entry| PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes())));
        let mut names = names.filter(|name| ![".", ".."].map(Path::new).contains(&&**name));
        let mut read = 0;
        let first = names.by_ref().take(most).inspect(|_| read += 1);
        let sockets = first.filter(|name| process_of(name).is_some()).collect();
        Names { sockets, read, has_more: names.next().is_some() }
    }

    /// Opens a socket for [`connect`] and for its removal.
    pub(crate) fn socket(&self, name: &Path) -> io::Result<Socket> {
        let file = match self.is_below {
            true => openat(&self.file, name, PATH, Mode::empty())?,
            false => step(&self.file, name.as_os_str())?,
        };
        let found = fstat(&file)?;
        // With another name it would take the time of several processes.
        let is_one = found.st_nlink == 1;
        if !is_kind(&found, FileType::Socket) || found.st_uid != self.owner || !is_one {
            let path = self.path.join(name);
            return Err(refused(format!("{} is no socket of its user's", path.display())));
        }
        Ok(Socket { path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), file })
    }

    /// Removes a socket at which no process listens, if this user may. False if a process does, or if
    /// it cannot be told.
    pub(crate) fn remove_if_stale(&self, name: &Path) -> bool {
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

    /// Removes the file of a process that was killed before its socket had got its name.
    pub(crate) fn remove_unnamed(&self, name: &Path, own: Option<u64>) {
        let has_ended = process_of(name)
            .is_some_and(|(process, namespace)| is_here(namespace, own) && !is_alive(process));
        if has_ended {
            self.remove_if_stale(name);
        }
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
    let now = step(folder, name.as_os_str()).and_then(|now| Ok(fstat(now)?));
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
    /// The path for connect(2).
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

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
    fn a_socket_has_one_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let _listener = UnixListener::bind(place.path().join("1.sock")).unwrap();
        assert!(folder.socket(Path::new("1.sock")).is_ok());
        fs::hard_link(place.path().join("1.sock"), place.path().join("2.sock")).unwrap();
        assert!(["1.sock", "2.sock"].iter().all(|name| folder.socket(Path::new(name)).is_err()));
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
        assert!(!crate::client::remove_if_stale(&at("1.sock")), "not in a folder of uwork");
    }
}
