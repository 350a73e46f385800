//! Where the control sockets of other processes are, and the removal of those of ended processes.
//!
//! The users of those processes are strangers: see [`folder`](crate::folder).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use uwork::control::place::{FOLDER, PLACES};

use crate::below::below;
use crate::client::connect;
use crate::exchange::is_out_of_files;
use crate::folder::{Folder, Socket, owner_of};
use crate::peer::{credentials, is_proc_ours, own_number, user_of};
use crate::socket_name::{is_here, is_unnamed, own_namespace, process_of};

/// The folders of systemd's sessions, in which a user's folder has the user's number.
const SESSIONS: &str = "/run/user";
/// The most folders of a user's, and the most files in all of them. What is beyond is left out. Where
/// another user has taken the name of a folder, each process makes one of its own.
const FOLDERS_MAX: usize = 1024;
const FILES_MAX: usize = 4096;
/// How long users, folders and files are looked for. In any case as many names of a place and as many
/// files of a user are read: a stranger may have filled a place, a large machine has many processes, and
/// a busy one should leave out no folder.
const LOOK_MAX: Duration = Duration::from_millis(300);
const NAMES_MIN: usize = 4096;
const FILES_MIN: usize = 256;

/// Opens the file of a path that is a socket's in one of the folders of uwork. `None` for any other
/// path, which the user has chosen.
pub(crate) fn listed_socket(path: &Path) -> Option<io::Result<Socket>> {
    let (folder, name) = listed(path)?;
    Some(Folder::open(folder).and_then(|folder| folder.socket(name)))
}

/// The folder of uwork and the name, if it is the path of a socket there.
pub(crate) fn listed(path: &Path) -> Option<(&Path, &Path)> {
    let (folder, name) = path.parent().zip(path.file_name().map(Path::new))?;
    (is_folder(folder) && process_of(name).is_some()).then_some((folder, name))
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
    let expected = |name: &str| {
        let user = name.strip_prefix(FOLDER)?.strip_prefix('-')?;
        let Some((user, other)) = user.split_once('.') else {
            return Some(format!("{FOLDER}-{}", user.parse::<u32>().ok()?));
        };
        // Where another user has the name.
        let other = u32::from_str_radix(other, 16).ok()?;
        Some(format!("{FOLDER}-{}.{other:08x}", user.parse::<u32>().ok()?))
    };
    // Text of another form could be read as something else than a path.
    name.to_str().is_some_and(|name| expected(name).is_some_and(|expected| name == expected))
}

/// A socket of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The number of the process here. 0, if it has none.
    pub(crate) process: u32,
    pub(crate) path: PathBuf,
    /// The user of the folder and of the socket.
    pub(crate) owner: u32,
}

/// A row for each process of each owner, by number. `key` has both, and whether the row says nothing of the
/// process: another row of it is preferred then. A process may listen in any number of folders of its
/// user.
pub(crate) fn one_of_each<T>(mut rows: Vec<T>, key: impl Fn(&T) -> (u32, u32, bool)) -> Vec<T> {
    rows.sort_by_key(&key);
    rows.dedup_by(|row, before| {
        let ((process, owner, _), (before, owner_before, _)) = (key(row), key(before));
        // Those without a number here are different ones.
        process != 0 && (process, owner) == (before, owner_before)
    });
    rows
}

/// What was found of the sockets of processes.
pub(crate) struct Found {
    /// By the process's number, in turns between the users: no user has all others wait.
    pub(crate) sockets: Vec<Entry>,
    /// Why there may be more.
    pub(crate) left_out: Option<String>,
}

/// What has been left out, for [`Found`].
#[derive(Default)]
struct LeftOut(RefCell<Option<String>>);

impl LeftOut {
    fn say(&self, why: &str) {
        self.0.borrow_mut().get_or_insert_with(|| format!("sockets were left out: {why}"));
    }

    /// The value, unless it could not be had because this process has no free descriptor.
    fn unless_full<T>(&self, outcome: io::Result<T>) -> Option<T> {
        if outcome.as_ref().is_err_and(is_out_of_files) {
            self.say("this command may open no more files (ulimit -n)");
        }
        outcome.ok()
    }

    /// The entries of a folder, as far as they are read in time.
    fn entries(&self, folder: &str, until: Instant) -> impl Iterator<Item = fs::DirEntry> {
        let entries = self.unless_full(fs::read_dir(folder)).into_iter().flatten().flatten();
        let is_in_time = move |&(count, _): &(usize, fs::DirEntry)| {
            let is_in_time = count < NAMES_MIN || Instant::now() < until;
            if !is_in_time {
                self.say(&format!("{folder} has too many names"));
            }
            is_in_time
        };
        entries.enumerate().take_while(is_in_time).map(|(_, entry)| entry)
    }
}

/// The users whose folders are looked for by their names: this one; for root those of all processes, or
/// of one. A stranger may have filled the places with other names.
fn users(process: Option<u32>, until: Instant, left_out: &LeftOut) -> BTreeSet<u32> {
    let own = geteuid();
    let mut users = BTreeSet::from([own.as_raw()]);
    match process {
        _ if !own.is_root() || !is_proc_ours() => {}
        Some(process) => users.extend(user_of(process)),
        None => {
            let entries = left_out.entries("/proc", until);
            let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            users.extend(processes.filter_map(user_of));
        }
    }
    users
}

/// The folders of this user, for root of all users, the most likely first: those of [`users`].
fn folders(users: &BTreeSet<u32>, until: Instant, left_out: &LeftOut) -> Vec<PathBuf> {
    let expected = PLACES.iter().flat_map(|place| {
        users.iter().map(move |user| Path::new(place).join(format!("{FOLDER}-{user}")))
    });
    let sessions = left_out.entries(SESSIONS, until).map(|user| user.path().join(FOLDER));
    let shared = PLACES.iter().flat_map(|place| left_out.entries(place, until));
    let shared = shared.filter(|entry| is_users(&entry.file_name())).map(|entry| entry.path());
    bounded(own_folder().into_iter().chain(expected).chain(sessions).chain(shared), left_out)
}

/// The folders that exist, each once: [`FOLDERS_MAX`] of an owner at most.
fn bounded(folders: impl Iterator<Item = PathBuf>, left_out: &LeftOut) -> Vec<PathBuf> {
    let (mut paths, mut known, mut counts) = (Vec::new(), HashSet::new(), HashMap::new());
    for path in folders {
        // A look is cheap: a stranger may have made any number of folders.
        let Some(owner) = left_out.unless_full(owner_of(&path)) else { continue };
        let count = counts.entry(owner).or_insert(0);
        if known.contains(&path) {
            continue;
        }
        if *count == FOLDERS_MAX {
            left_out.say(&format!("user {owner} has more than {FOLDERS_MAX} folders"));
            continue;
        }
        *count += 1;
        known.insert(path.clone());
        paths.push(path);
    }
    paths
}

/// The sockets of all processes that this user may see.
pub(crate) fn sockets() -> Found {
    look(None, false)
}

/// The same. Removes the files of processes that were killed before their sockets had got their names.
pub(crate) fn sockets_without_unnamed() -> Found {
    look(None, true)
}

/// The sockets of one process: first those in the folders of its user, then those in root's, where a
/// daemon's stays that gives up its rights. A stranger's socket under its number may take all the time
/// of a connect.
pub(crate) fn sockets_of(process: u32) -> Found {
    look(Some(process), false)
}

fn look(process: Option<u32>, removes_unnamed: bool) -> Found {
    let (mut found, left_out) = (Vec::new(), LeftOut::default());
    let own = own_namespace();
    let is_wanted = |number| process.is_none_or(|process| process == number);
    for (folder, names) in files(process, &left_out) {
        for name in names {
            if is_unnamed(&name) {
                if removes_unnamed {
                    folder.remove_unnamed(&name, own);
                }
                continue;
            }
            // The number of another namespace says nothing here.
            let may_be = process_of(&name)
                .is_some_and(|(number, of)| is_wanted(number) || !is_here(of, own));
            if may_be && let Some(socket) = left_out.unless_full(folder.socket(&name)) {
                let number = number_here(&name, &socket, own).filter(|&it| is_wanted(it));
                let (path, owner) = (folder.path.join(&name), folder.owner);
                found.extend(number.map(|process| (owner, Entry { process, path, owner })));
            }
        }
    }
    let user = process.and_then(user_of);
    let sockets = in_turns(found, |owner| match process {
        None => Rank::default(),
        Some(_) => rank(owner, user),
    });
    Found { sockets, left_out: left_out.0.into_inner() }
}

/// How much a socket of this owner's is believed to be that of a process of the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    #[default]
    User,
    Root,
    Stranger,
}

fn rank(owner: u32, user: Option<u32>) -> Rank {
    match owner {
        _ if Some(owner) == user => Rank::User,
        0 => Rank::Root,
        _ => Rank::Stranger,
    }
}

/// The owners of the first rank before the others. Of a rank, the first of each owner, then the second
/// of each, and so on.
fn in_turns<T: Ord>(mut of_owners: Vec<(u32, T)>, rank: impl Fn(u32) -> Rank) -> Vec<T> {
    of_owners.sort();
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let turn = |(owner, it)| {
        let count = counts.entry(owner).or_default();
        *count += 1;
        (rank(owner), *count, it)
    };
    let mut turns: Vec<(Rank, usize, T)> = of_owners.into_iter().map(turn).collect();
    turns.sort();
    turns.into_iter().map(|(.., it)| it).collect()
}

/// The folders with the names of their sockets. One folder is open at a time.
fn files(process: Option<u32>, left_out: &LeftOut) -> impl Iterator<Item = (Folder, Vec<PathBuf>)> {
    raise_limit();
    let soon = || Instant::now() + LOOK_MAX / 3;
    let users = users(process, soon(), left_out);
    let paths = folders(&users, soon(), left_out).into_iter();
    let folders = paths.filter_map(|path| left_out.unless_full(Folder::open(&path)));
    with_names(folders, soon(), left_out)
}

/// Permits this process as many descriptors as it may have: each process that is asked takes two.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, it stays as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The folders with the names of their sockets. Of a user's files, whatever they are, [`FILES_MAX`] are
/// read in all folders; after `until`, [`FILES_MIN`].
fn with_names(
    folders: impl Iterator<Item = Folder>,
    until: Instant,
    left_out: &LeftOut,
) -> impl Iterator<Item = (Folder, Vec<PathBuf>)> {
    let mut read = HashMap::new();
    folders.map(move |folder| {
        let read = read.entry(folder.owner).or_insert(0);
        let most = if Instant::now() < until { FILES_MAX } else { FILES_MIN };
        let left = most.saturating_sub(*read);
        // A look at a single name costs as much as one at hundreds.
        let names = (left > 0).then(|| folder.names(left));
        if names.as_ref().is_none_or(|names| names.has_more) {
            left_out.say(&format!("user {} has more than {most} files", folder.owner));
        }
        *read += names.as_ref().map_or(0, |names| names.read);
        (folder, names.map_or(Vec::new(), |names| names.sockets))
    })
}

/// The number that a process has here. Processes of other PID namespaces have another one there, which
/// is in the name. 0, if it has none here.
fn number_here(name: &Path, socket: &Socket, own: Option<u64>) -> Option<u32> {
    let (process, namespace) = process_of(name)?;
    if is_here(namespace, own) {
        return Some(process);
    }
    let peer = connect(socket.path()).ok().and_then(|stream| credentials(&stream).ok());
    let number = peer.and_then(|peer| u32::try_from(peer.pid).ok());
    Some(number.unwrap_or(0))
}

/// Removes the socket of a process that has ended, if this user may. False if a process listens on
/// it.
pub(crate) fn remove_if_stale(path: &Path) -> bool {
    let Some((folder, name)) = listed(path) else { return false };
    Folder::open(folder).is_ok_and(|folder| folder.remove_if_stale(name))
}

/// The process in the name of a socket in a folder of uwork, here or in a container, is the one with this
/// number here: an error that says otherwise.
pub(crate) fn check_name(path: &Path, process: u32) -> Result<(), String> {
    let folder = path.parent().filter(|folder| is_folder(folder) || below(path).is_some());
    let named = path.file_name().filter(|_| folder.is_some()).map(Path::new).and_then(process_of);
    let Some((named, namespace)) = named else { return Ok(()) };
    let number =
        if is_here(namespace, own_namespace()) { Some(process) } else { own_number(process) };
    match number {
        Some(number) if number == named => Ok(()),
        _ => Err(format!("process {process} listens here, not {named}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folders_of_uwork_are_listed() {
        for path in
            ["/run/uwork-0", "/dev/shm/uwork-7", "/tmp/uwork-7.0000001f", "/run/user/7/uwork"]
        {
            assert!(is_folder(Path::new(path)), "{path}");
        }
        for path in
            ["/run/uwork", "/tmp/uwork-", "/tmp/uwork-x", "/var/uwork-7", "/run/user/uwork", "/"]
        {
            assert!(!is_folder(Path::new(path)), "{path}");
        }
        for name in ["1234.\n   1 systemd", "7.1f", "7.0000001F", "7.00000001f", "07", "7 ", "7."] {
            assert!(!is_folder(Path::new(&format!("/tmp/uwork-{name}"))), "{name:?}");
        }
    }

    /// The sockets that are found in folders with these numbers of files of each kind, and whether files
    /// were left out by then.
    fn found(folders: &[(usize, &str)], until: Instant) -> Vec<(usize, bool)> {
        let places: Vec<_> = folders.iter().map(|_| tempfile::tempdir().unwrap()).collect();
        for (place, &(files, kind)) in places.iter().zip(folders) {
            for number in 1..=files {
                fs::write(place.path().join(format!("{number}.{kind}")), "").unwrap();
            }
        }
        let folders = places.iter().map(|place| Folder::open(place.path()).unwrap());
        let left_out = LeftOut::default();
        let is_left_out =
            || left_out.0.borrow().as_ref().is_some_and(|why| why.contains("has more than"));
        let found = with_names(folders, until, &left_out);
        found.map(|(_, names)| (names.len(), is_left_out())).collect()
    }

    // Catches: a search for minutes, as a user has a million files that are no sockets.
    #[test]
    fn the_files_of_a_user_are_bounded_in_all_folders_together() {
        let soon = Instant::now() + Duration::from_secs(600);
        let of_two = found(&[(FILES_MAX - 3, "sock"), (8, "sock")], soon);
        assert_eq!(of_two, [(FILES_MAX - 3, false), (3, true)]);
        let others = found(&[(FILES_MAX - 3, "other"), (3, "sock"), (1, "sock")], soon);
        assert_eq!(others, [(0, false), (3, false), (0, true)]);
    }

    #[test]
    fn after_the_time_for_files_some_of_each_user_are_read() {
        let found = found(&[(FILES_MIN - 3, "other"), (8, "sock"), (1, "sock")], Instant::now());
        assert_eq!(found, [(0, false), (3, true), (0, true)]);
    }

    #[test]
    fn the_users_are_this_one_and_those_of_processes() {
        let own = geteuid().as_raw();
        let left_out = LeftOut::default();
        let users = [None, Some(std::process::id()), Some(99_999_998)]
            .map(|process| users(process, Instant::now(), &left_out));
        assert!(users.iter().all(|users| users.contains(&own)));
        assert_eq!((users[1].len(), users[2].len()), (1, 1));
    }

    #[test]
    fn users_take_turns() {
        let of_owners = vec![(7, "c"), (7, "b"), (7, "a"), (0, "z"), (8, "d")];
        let of_all = in_turns(of_owners.clone(), |_| Rank::default());
        assert_eq!(of_all, ["a", "d", "z", "b", "c"]);
        let of_one = in_turns(of_owners, |owner| rank(owner, Some(8)));
        assert_eq!(of_one, ["d", "z", "a", "b", "c"], "those of its user, of root, of strangers");
    }

    #[test]
    fn a_process_has_a_row_for_each_owner() {
        let rows = vec![
            (7, 1, true),
            (8, 1, true),
            (0, 1, true),
            (7, 1, false),
            (7, 2, true),
            (0, 1, true),
        ];
        let kept = one_of_each(rows, |row| *row);
        let zeros = [(0, 1, true); 2];
        assert_eq!(kept, [&zeros[..], &[(7, 1, false), (7, 2, true), (8, 1, true)]].concat());
    }

    // Catches: processes that are hidden, as a stranger has their user's name and each has a folder.
    #[test]
    fn a_folder_for_each_process_hides_none() {
        let place = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..200).map(|n| place.path().join(n.to_string())).collect();
        paths.iter().for_each(|path| fs::create_dir(path).unwrap());
        let left_out = LeftOut::default();
        let twice = paths.iter().chain(&paths).cloned();
        assert_eq!(bounded(twice, &left_out), paths);
        assert!(left_out.0.into_inner().is_none());
    }

    #[test]
    fn a_folder_with_too_many_names_is_read_as_far_as_it_is_in_time() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..=NAMES_MIN {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let read = |until: Instant| {
            let left_out = LeftOut::default();
            let count = left_out.entries(place.path().to_str().unwrap(), until).count();
            (count, left_out.0.into_inner().is_some())
        };
        let now = Instant::now();
        assert_eq!(read(now), (NAMES_MIN, true));
        assert_eq!(read(now + Duration::from_secs(600)), (NAMES_MIN + 1, false));
    }
}
