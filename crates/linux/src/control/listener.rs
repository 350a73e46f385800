//! The listening socket: its creation, its signal, and its end.
//!
//! A socket is bound under a name of its own, and gets its real name when it listens: a client that
//! is refused at the real name has found the socket of an ended process, which it may remove.

use std::fs;
use std::io::{self, Error};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::{SOCKET, State, address};
use crate::descriptor::identity::F_SETSIG;
use crate::descriptor::{Expected, OwnDescriptor};

/// Clients that may wait to be accepted.
const BACKLOG: libc::c_int = 64;
/// The rights to the socket: its user's only.
const MODE: libc::mode_t = 0o600;

/// A listening socket.
pub(super) struct Listener {
    descriptor: OwnDescriptor,
    path: PathBuf,
    /// The process that opened it.
    process: u32,
    /// The device and the inode of the path.
    named: (u64, u64),
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(outcome) }
}

/// Opens this process's socket.
///
/// # Errors
/// The reason, in one line.
pub(super) fn open() -> Result<Listener, String> {
    if std::env::var_os("UWORK_CONTROL").is_some_and(|value| value == "0") {
        return Err("switched off by UWORK_CONTROL=0".to_owned());
    }
    let Some(signal) = super::signal() else {
        return Err("every real-time signal has a handler of the program's".to_owned());
    };
    let folder = address::folder()?;
    let process = std::process::id();
    let (path, new) = (folder.join(format!("{process}.sock")), folder.join(format!(".{process}")));
    let opened = listen(&new, signal).and_then(|descriptor| {
        fs::rename(&new, &path)?;
        Ok(Listener { descriptor, named: identity(&path)?, path: path.clone(), process })
    });
    let listener = opened.map_err(|error| {
        let _ = fs::remove_file(&new);
        format!("{}: {error}", path.display())
    })?;
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function lives as long as the process and does not unwind.
    AT_EXIT.call_once(|| _ = unsafe { libc::atexit(remove_at_exit) });
    Ok(listener)
}

/// A socket that listens at `path`, and sends `signal` to the calling thread for each client.
fn listen(path: &Path, signal: libc::c_int) -> io::Result<OwnDescriptor> {
    let too_long = || Error::new(io::ErrorKind::InvalidInput, "too long for a socket's address");
    let (address, length) = address::address(path).ok_or_else(too_long)?;
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
    // SAFETY: the structures are live and of the given lengths. The rights of the descriptor become
    // those of the file, which thus never exists with other rights.
    unsafe {
        check(libc::fchmod(number()?, MODE))?;
        check(libc::bind(number()?, (&raw const address).cast(), length))?;
        check(libc::listen(number()?, BACKLOG))?;
        check(libc::fcntl(number()?, F_SETOWN_EX, &raw const owner))?;
        check(libc::fcntl(number()?, F_SETSIG, signal))?;
        check(libc::fcntl(number()?, libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC))?;
    }
    Ok(descriptor)
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

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Listener {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor's number, unless the program has closed it.
    pub(super) fn number(&self) -> Option<RawFd> {
        self.descriptor.get()
    }

    /// Whether a client waits to be accepted.
    pub(super) fn has_client(&self) -> bool {
        self.number().is_some_and(is_readable)
    }

    /// Removes the file, if it is still this socket's and this process opened it.
    fn remove(&self) {
        let is_ours = self.process == std::process::id()
            && identity(&self.path).is_ok_and(|now| now == self.named);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a poll for input returns at once.
fn is_readable(number: RawFd) -> bool {
    let mut file = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::poll(&raw mut file, 1, 0) == 1 }
}

/// The listener's number, unless the program has closed it.
pub(super) fn number() -> Option<RawFd> {
    super::lock_socket().listener().and_then(Listener::number)
}

/// Whether a client waits to be accepted.
pub(super) fn has_client() -> bool {
    number().is_some_and(is_readable)
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
