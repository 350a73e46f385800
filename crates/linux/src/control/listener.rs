//! The listening socket: its creation, its signal, and its end.
//!
//! A socket is bound under the name of its thread, and gets its real name when it listens: a client
//! that is refused at the real name has found the socket of an ended process, which it may remove. Of
//! several copies of the library in the process that begin at once, the system gives one the name.

use std::ffi::CString;
use std::fs;
use std::io::{self, Error};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use super::{SOCKET, State, address, interrupt, notice};
use crate::descriptor::identity::F_SETSIG;
use crate::descriptor::{Expected, OwnDescriptor, is_passing};
use crate::stack;

/// Clients that may wait to be accepted.
const BACKLOG: libc::c_int = 64;
/// The rights to the socket: its user's only.
const MODE: libc::mode_t = 0o600;

/// A listening socket, which the control thread may use longer than its file exists.
pub(super) struct Listening {
    descriptor: OwnDescriptor,
    /// The name that it was bound to.
    name: libc::sockaddr_un,
    /// A signal tells the watcher of each client. Once false, it stays so.
    is_by_signal: AtomicBool,
}

/// A listening socket with its file.
pub(super) struct Listener {
    socket: Arc<Listening>,
    path: PathBuf,
    /// The process that opened it.
    process: u32,
    /// The device and the inode of the path.
    named: (u64, u64),
    /// See [`saved_user`].
    saved_user: libc::uid_t,
    /// The device and the inode of the root folder at that time.
    root: Option<(u64, u64)>,
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(outcome) }
}

/// The reason for which there is no socket.
pub(super) struct Failure {
    /// In one line.
    pub(super) reason: String,
    /// A later attempt may succeed.
    pub(super) is_passing: bool,
    /// The user has switched it off.
    pub(super) is_wanted: bool,
    /// No other folder is tried.
    is_final: bool,
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { reason, is_passing: false, is_wanted: false, is_final: false }
    }
}

/// Opens this process's socket, in place of `before`.
///
/// # Errors
/// See [`Failure`].
pub(super) fn open(before: Option<&Listener>) -> Result<Listener, Failure> {
    if crate::environment::variable("UWORK_CONTROL").is_some_and(|value| value == "0") {
        let reason = "switched off by UWORK_CONTROL=0".to_owned();
        return Err(Failure { is_wanted: true, ..reason.into() });
    }
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function lives as long as the process and does not unwind.
    AT_EXIT.call_once(|| _ = unsafe { libc::atexit(remove_at_exit) });
    let (user, name) = (address::user(), address::name());
    let mut reasons = Vec::new();
    for folder in address::folders(user) {
        match open_in(folder, user, &name, before) {
            Ok(listener) => return Ok(listener),
            Err(failure) if failure.is_passing || failure.is_final => return Err(failure),
            Err(failure) => reasons.push(failure.reason),
        }
    }
    Err(reasons.join("; ").into())
}

/// Opens the socket of this name in a folder, or in one beside it if another user has that.
fn open_in(
    folder: PathBuf,
    user: libc::uid_t,
    name: &str,
    before: Option<&Listener>,
) -> Result<Listener, Failure> {
    let folder = address::prepare(folder, user)?;
    let path = folder.join(format!("{name}.sock"));
    // Another copy of the library has another thread here.
    let new = folder.join(format!(".{}", address::name_of_thread()));
    let is_again = before.is_some_and(|before| before.path == path && before.is_named());
    let opened = listen(&new).and_then(|socket| {
        // By its first name: the file of the other one may be another copy's.
        let named = identity(&new)?;
        if is_again {
            fs::rename(&new, &path)?
        } else {
            name_unless_taken(&new, &path)?
        }
        let (path, socket) = (path.clone(), Arc::new(socket));
        let (process, saved_user, root) = (std::process::id(), saved_user(), root());
        Ok(Listener { socket, named, path, process, saved_user, root })
    });
    opened.map_err(|error| {
        let _ = fs::remove_file(&new);
        remove_if_only_this(&folder);
        let number = error.raw_os_error().unwrap_or(0);
        // A full queue: the other copy may be asked again later.
        let is_passing = is_passing(number) || number == libc::EAGAIN;
        let is_taken = matches!(number, libc::EADDRINUSE | libc::EAGAIN);
        let reason = if is_taken {
            format!("{}: another copy of uwork in this process has it", path.display())
        } else {
            address::describe(&path, &error)
        };
        Failure { is_passing, is_final: is_taken, ..reason.into() }
    })
}

/// Gives a listening socket its name, unless a socket of this process has it: each copy of the library
/// would take the name from the other one for ever.
///
/// # Errors
/// `EADDRINUSE` if it is taken; `EAGAIN` if it may be; the system's.
fn name_unless_taken(new: &Path, path: &Path) -> io::Result<()> {
    match rename_to_free(new, path) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        // The file system, or an old kernel, does not know the flag.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {}
        outcome => return outcome,
    }
    if is_own(path)? {
        return Err(Error::from_raw_os_error(libc::EADDRINUSE));
    }
    // Of an ended process with this number.
    fs::rename(new, path)
}

/// Renames a file, if the other name is free.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    const NO_REPLACE: libc::c_uint = 1;
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (from, to) = (from?, to?);
    // SAFETY: the paths end with a zero byte.
    let outcome = unsafe {
        let here = libc::AT_FDCWD;
        libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), NO_REPLACE)
    };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Removes a folder that was made for this process's socket alone.
fn remove_if_only_this(folder: &Path) {
    if address::is_another(folder) {
        let _ = fs::remove_dir(folder);
    }
}

/// The user that the process can become again. It changes when the process gives up its rights for
/// good, and not when it acts as another user for a moment.
fn saved_user() -> libc::uid_t {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: the numbers are live.
    unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    saved
}

/// Whether a socket of this process listens at `path`.
///
/// # Errors
/// That is not known: `EAGAIN` if a socket listens whose queue is full, or the system has no descriptor.
fn is_own(path: &Path) -> io::Result<bool> {
    let Some((name, length)) = address::address(path) else { return Ok(false) };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let open = || unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    let client = OwnDescriptor::open(Expected::Socket, open)?;
    let number = client.get().ok_or_else(|| Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the structure is live and of the given length.
    let outcome = unsafe { libc::connect(number, (&raw const name).cast(), length) };
    if let Err(error) = check(outcome) {
        let is_listening = error.raw_os_error() == Some(libc::EAGAIN);
        return if is_listening { Err(error) } else { Ok(false) };
    }
    // SAFETY: no arguments; cannot fail.
    Ok(super::server::peer_of(number).is_some_and(|peer| peer.pid == unsafe { libc::getpid() }))
}

/// A socket that listens at `path`, and sends the calling thread, the watcher, a signal for each client
/// unless the program uses that signal.
fn listen(path: &Path) -> io::Result<Listening> {
    let too_long = || Error::new(io::ErrorKind::InvalidInput, "too long for a socket's address");
    let (name, length) = address::address(path).ok_or_else(too_long)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let open = || unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    let descriptor = OwnDescriptor::open(Expected::Socket, open)?;
    let number = || descriptor.get().ok_or_else(|| Error::from_raw_os_error(libc::EBADF));
    let owner = OwnerEx { kind: F_OWNER_TID, id: crate::thread::tid() };
    let is_by_signal = notice::is_by_signal();
    let signals = if is_by_signal { libc::O_ASYNC } else { 0 };
    // SAFETY: the structures are live and of the given lengths. The rights of the descriptor become
    // those of the file, which thus never exists with other rights.
    unsafe {
        check(libc::fchmod(number()?, MODE))?;
        check(libc::bind(number()?, (&raw const name).cast(), length))?;
        check(libc::listen(number()?, BACKLOG))?;
        check(libc::fcntl(number()?, F_SETOWN_EX, &raw const owner))?;
        check(libc::fcntl(number()?, F_SETSIG, stack::OF_CLIENTS))?;
        check(libc::fcntl(number()?, libc::F_SETFL, libc::O_NONBLOCK | signals))?;
    }
    Ok(Listening { descriptor, name, is_by_signal: AtomicBool::new(is_by_signal) })
}

/// Of fcntl(2), and not in libc: the thread that a file's signals go to.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// See [`F_SETOWN_EX`].
#[repr(C)]
struct OwnerEx {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// The root folder, which chroot(2) and pivot_root(2) change.
fn root() -> Option<(u64, u64)> {
    identity(Path::new("/")).ok()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Listener {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket.
    pub(super) fn socket(&self) -> &Arc<Listening> {
        &self.socket
    }

    /// Whether the file was removed, or belongs to a user that the process was before. Clients find it
    /// where it was made: a process that sees other files since keeps it.
    pub(super) fn is_misplaced(&self) -> bool {
        (self.saved_user != saved_user() || !self.is_named()) && self.root == root()
    }

    /// Keeps a socket that is misplaced, if root can find it.
    pub(super) fn keep(&mut self) -> bool {
        self.saved_user = saved_user();
        !self.socket.is_lost() && self.is_named()
    }

    /// Whether the file is still this socket's.
    fn is_named(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.named)
    }

    /// Removes the file, if it is still this socket's and this process opened it.
    fn remove(&self) {
        if self.process == std::process::id() && self.is_named() {
            let _ = fs::remove_file(&self.path);
            self.path.parent().into_iter().for_each(remove_if_only_this);
        }
    }
}

impl Listening {
    /// Whether the program has closed it.
    pub(super) fn is_lost(&self) -> bool {
        self.descriptor.get().is_none()
    }

    /// Its number, which may belong to another file by now: for a poll(2).
    pub(super) fn number(&self) -> RawFd {
        self.descriptor.number()
    }

    /// Whether a client waits to be accepted, or the control thread must wait for clients.
    pub(super) fn wants_thread(&self) -> bool {
        let has_client = |number| !self.is_by_signal() || is_readable(number);
        self.descriptor.get().is_some_and(has_client)
    }

    /// Whether a signal tells the watcher of clients. Otherwise the control thread waits for them.
    pub(super) fn is_by_signal(&self) -> bool {
        self.is_by_signal.load(Ordering::SeqCst)
    }

    /// No signal tells of clients from now on.
    pub(super) fn stop_signals(&self) {
        if self.is_by_signal.swap(false, Ordering::SeqCst)
            && let Some(number) = self.descriptor.get()
        {
            // SAFETY: no pointers.
            unsafe { libc::fcntl(number, libc::F_SETFL, libc::O_NONBLOCK) };
        }
    }

    /// Accepts a client. A call that makes another thread wait for a client of its own, as the program
    /// has given the number to a listener in the moment before, is ended by a fork, and by the watcher
    /// when it finds the socket lost.
    ///
    /// # Errors
    /// `EAGAIN` if no client waits; `EBADF` if the program has closed the socket, or the client at once;
    /// `EINTR`; the system's.
    pub(super) fn accept(&self, calls: &interrupt::Calls) -> io::Result<OwnDescriptor> {
        let error = Error::from_raw_os_error;
        // The number of a client is in no list until it is adopted.
        let _forks = interrupt::keep_forks_out();
        let number = self.descriptor.get().ok_or_else(|| error(libc::EBADF))?;
        if !is_readable(number) {
            return Err(error(libc::EAGAIN));
        }
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is wanted.
        let accepted =
            unsafe { calls.call(libc::SYS_accept4, [number as usize, 0, 0, flags as usize, 0, 0]) };
        let client = OwnDescriptor::adopt(Expected::Socket, accepted.map_err(error)? as RawFd)?;
        // Of another listener, which has got the number just now: not a word to its client.
        let is_ours = client.get().is_some_and(|client| self.has_accepted(client));
        if is_ours { Ok(client) } else { Err(error(libc::ECONNABORTED)) }
    }

    /// Whether a connection came by this socket, whose name it has.
    fn has_accepted(&self, client: RawFd) -> bool {
        // SAFETY: zeros are a valid value.
        let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&name) as libc::socklen_t;
        // SAFETY: the structures are live and of the given length.
        let outcome = unsafe { libc::getsockname(client, (&raw mut name).cast(), &raw mut length) };
        let is_same =
            name.sun_family == self.name.sun_family && name.sun_path == self.name.sun_path;
        outcome == 0 && is_same
    }
}

/// Whether a poll for input returns at once.
fn is_readable(number: RawFd) -> bool {
    let mut file = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::poll(&raw mut file, 1, 0) == 1 }
}

/// The socket, unless the program has closed it.
pub(super) fn current() -> Option<Arc<Listening>> {
    let socket = super::lock_socket();
    let socket = socket.listener()?.socket();
    (!socket.is_lost()).then(|| socket.clone())
}

/// At a normal end of the process.
extern "C" fn remove_at_exit() {
    // Does not wait: another thread may hold the lock for ever.
    if let Ok(socket) = SOCKET.try_lock()
        && let State::Open(listener) = &*socket
    {
        listener.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Barrier;

    use super::interrupt::{Calls, hold, keep_forks_out};
    use super::*;
    use crate::bounded::received;

    /// A socket that blocks, under a name other than that which a [`Listening`] expects.
    fn foreign() -> (Listening, PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let number = listener.into_raw_fd();
        let descriptor = OwnDescriptor::open(Expected::Socket, || number).expect("room");
        let (name, _) = address::address(Path::new("/other")).expect("short");
        (Listening { descriptor, name, is_by_signal: AtomicBool::new(true) }, path, folder)
    }

    /// A folder for sockets, and the process's user.
    fn folder() -> (tempfile::TempDir, PathBuf, libc::uid_t) {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("uwork");
        (parent, folder, address::user())
    }

    fn is_taken(failure: &Failure) -> bool {
        failure.is_final && failure.reason.ends_with("another copy of uwork in this process has it")
    }

    // Catches: copies that take each other's sockets for their own; a socket that all of them lose.
    #[test]
    fn of_copies_that_begin_at_once_one_has_the_socket() {
        const COPIES: usize = 4;
        let (_parent, folder, user) = folder();
        for round in 0..50 {
            let (name, start) = (format!("copies{round}"), Barrier::new(COPIES));
            let opens = || {
                start.wait();
                open_in(folder.clone(), user, &name, None)
            };
            let opened: Vec<_> = std::thread::scope(|scope| {
                let copies: Vec<_> = (0..COPIES).map(|_| scope.spawn(opens)).collect();
                copies.into_iter().map(|copy| copy.join().expect("no panic")).collect()
            });
            let (have, lack): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
            assert_eq!((have.len(), lack.len()), (1, COPIES - 1), "round {round}");
            assert!(lack.iter().all(|lack| lack.as_ref().is_err_and(is_taken)));
            let listener = have.into_iter().flatten().next().expect("one");
            assert!(listener.is_named());
            listener.remove();
            assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "round {round}");
        }
    }

    // Catches: a copy that takes the name of one that is busy.
    #[test]
    fn a_socket_with_a_full_queue_keeps_its_name() {
        let (_parent, folder, user) = folder();
        let open = || open_in(folder.clone(), user, "full", None);
        let first = open().ok().expect("it is free");
        // SAFETY: no pointers.
        check(unsafe { libc::listen(first.socket.number(), 0) }).expect("it listens");
        let _client = UnixStream::connect(&first.path).expect("room for one");
        let refused = open().err().expect("it is taken");
        assert!(is_taken(&refused) && refused.is_passing);
        assert!(first.is_named());
        // SAFETY: as above.
        check(unsafe { libc::listen(first.socket.number(), BACKLOG) }).expect("it listens");
        let refused = open().err().expect("it is taken");
        assert!(is_taken(&refused) && !refused.is_passing);
        assert!(first.is_named());
    }

    // One test: the calls belong to one thread of the process.
    #[test]
    fn a_foreign_listener_makes_no_thread_wait_and_its_clients_hear_nothing() {
        let (listening, path, _folder) = foreign();
        let calls = Calls::begin();
        calls.rearm();
        let error = |outcome: io::Result<OwnDescriptor>| {
            outcome.err().and_then(|error| error.raw_os_error())
        };
        assert_eq!(error(listening.accept(&calls)), Some(libc::EAGAIN));
        let mut client = UnixStream::connect(&path).expect("a listener");
        assert_eq!(error(listening.accept(&calls)), Some(libc::ECONNABORTED));
        assert_eq!(io::Read::read(&mut client, &mut [0]).expect("the end"), 0);
        drop(calls);

        // In the instant after the look at the number.
        let (tell, told) = std::sync::mpsc::channel();
        let number = listening.number();
        let waits = std::thread::spawn(move || {
            let calls = Calls::begin();
            calls.rearm();
            let _forks = keep_forks_out();
            tell.send(()).expect("it waits");
            // SAFETY: no address is wanted.
            unsafe { calls.call(libc::SYS_accept4, [number as usize, 0, 0, 0, 0, 0]) }
        });
        received(&told);
        drop(hold());
        assert_eq!(waits.join().expect("no panic"), Err(libc::EINTR));
    }
}
