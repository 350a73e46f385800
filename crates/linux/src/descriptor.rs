//! The library's descriptors, in a table that belongs to the program.
//!
//! A program may close every descriptor from 3 on, in the process or in a forked child, and its next
//! file may then get the number of one of the library's. So each open descriptor of the library is an
//! [`OwnDescriptor`], which
//! - has a high number, which the program's next files do not get;
//! - knows the identity of its file, and is neither used nor closed if the number belongs to another
//!   file by now: its owner gets `None`, and makes a new one or goes on without;
//! - is in one list, from which a forked child closes all.
//!
//! A file that is needed for one read is opened, read and closed [`briefly`]. Both are under one
//! lock, for which a fork waits: a child never inherits a descriptor that it does not know of.
//!
//! **The remaining windows.** No system call closes a descriptor on a condition, or tells the identity
//! of the file that it opens. Another thread of the program may close the number and open a file that
//! gets it
//! - between the check of the identity and the close or the read: some tenths of a microsecond, and
//!   longer if the thread is preempted there;
//! - between the opening and the first look at the identity: there the file must be of the
//!   [`Expected`] kind, so that only a new file of the same kind is taken for the library's.
//!
//! **Identity** is the file's device and inode. All eventfds and perf events have one inode in
//! common; so files without a type of their own are marked by an owner of their signals
//! (`F_SETOWN_EX`), which are never switched on: the main thread, as a thread. The mark is checked
//! alone, which takes half the time of the other check. A number that the library itself has got again
//! since is told apart by the list: an older descriptor is not in it any more.

use std::ffi::CStr;
use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use crate::{forks, pages};

/// The lowest number of a descriptor that stays open, where the limit of open files permits it:
/// above the numbers that select(2) accepts, which are left to the program. Not higher, since the
/// kernel's table of descriptors, which a fork copies, extends to the highest number.
const FLOOR: u64 = 1024;

/// The open descriptors. Written to while one is made or closed, and read-locked while a file is
/// open [`briefly`].
///
/// A holder of the lock takes no other and calls no allocator (see `fork`).
static OPEN: RwLock<List> = RwLock::new(List::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: RawFd,
    identity: Identity,
    /// Different for each descriptor that was made.
    serial: u64,
}

/// The entries, in memory of the system's.
struct List {
    entries: NonNull<Entry>,
    length: usize,
    room: usize,
    /// The number of descriptors that were made.
    made: u64,
}

// SAFETY: the list owns its memory.
unsafe impl Send for List {}
// SAFETY: shared references read only.
unsafe impl Sync for List {}

/// The size of the first list. It doubles when it is full.
const LIST_BYTES: usize = 4096;

impl List {
    const fn new() -> List {
        List { entries: NonNull::dangling(), length: 0, room: 0, made: 0 }
    }

    fn next_serial(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: initialized up to the length; dangling, but aligned, for a length of zero.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), self.length) }
    }

    /// Makes room for one more entry.
    fn make_room(&mut self) -> Result<(), Error> {
        if self.length < self.room {
            return Ok(());
        }
        let before = self.room * size_of::<Entry>();
        let bytes = LIST_BYTES.max(2 * before);
        let larger = pages::try_map(bytes).ok_or_else(Error::last_os_error)?.cast::<Entry>();
        // SAFETY: both are live, apart, and have room for the entries.
        unsafe { larger.copy_from_nonoverlapping(self.entries, self.length) };
        if before > 0 {
            // SAFETY: mapped by an earlier call with this size, and used no more.
            unsafe { pages::unmap(self.entries.cast(), before) };
        }
        (self.entries, self.room) = (larger, bytes / size_of::<Entry>());
        Ok(())
    }

    /// Adds an entry, for which room was made. An earlier one with this number is that of a file that
    /// the program has closed.
    fn push(&mut self, entry: Entry) {
        if let Some(lost) = self.entries().iter().position(|other| other.number == entry.number) {
            self.remove_at(lost);
        }
        assert!(self.length < self.room);
        // SAFETY: within the room.
        unsafe { self.entries.add(self.length).write(entry) };
        self.length += 1;
    }

    /// Removes an entry. False if the list does not have it.
    fn remove(&mut self, entry: Entry) -> bool {
        let at = self.entries().iter().position(|&other| other == entry);
        at.is_some_and(|at| {
            self.remove_at(at);
            true
        })
    }

    fn remove_at(&mut self, at: usize) {
        let last = self.entries()[self.length - 1];
        assert!(at < self.length);
        // SAFETY: within the length.
        unsafe { self.entries.add(at).write(last) };
        self.length -= 1;
    }
}

const _: () = assert!(LIST_BYTES >= size_of::<Entry>());

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
    /// Of a file without a type: the thread that gets its signals, or 0.
    owner: libc::pid_t,
}

/// Of fcntl(2): the thread that a file's signals go to.
#[repr(C)]
pub(crate) struct OwnerEx {
    pub(crate) kind: libc::c_int,
    pub(crate) id: libc::pid_t,
}

/// Constants of fcntl(2) that libc does not have.
pub(crate) const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;
pub(crate) const F_OWNER_TID: libc::c_int = 0;

/// What a new descriptor must refer to.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// A file on this device.
    Device(libc::dev_t),
    Socket,
    /// An event of perf_event_open(2).
    PerfEvent,
    /// A file without a type: an eventfd, an io_uring.
    NoType,
}

impl Expected {
    /// The identity of a file, if it is what was expected: by one look at it, so that no other file is
    /// taken for it.
    fn identity_of(self, number: RawFd) -> Option<Identity> {
        let (identity, kind) = look(number)?;
        let mut id = 0_u64;
        let is_met = match self {
            Expected::Device(device) => identity.device == device,
            Expected::Socket => kind == libc::S_IFSOCK,
            Expected::NoType => kind == NO_TYPE,
            // SAFETY: the number is live. Other files refuse the call.
            Expected::PerfEvent => unsafe {
                kind == NO_TYPE && perf_event_open_sys::ioctls::ID(number, &raw mut id) == 0
            },
        };
        is_met.then_some(identity)
    }
}

/// The device of a path, for [`Expected::Device`].
///
/// # Errors
/// The number of the system's error.
pub(crate) fn device_of(path: &CStr) -> Result<libc::dev_t, i32> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path and the structure are live.
    match unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) } {
        // SAFETY: the call has filled it.
        0 => Ok(unsafe { stat.assume_init() }.st_dev),
        _ => Err(crate::fatal::errno()),
    }
}

/// The type of an eventfd, a perf event, an io_uring.
const NO_TYPE: libc::mode_t = 0;

/// The identity and the type of an open file. One system call, two for a file without a type. `None`
/// for a closed number.
fn look(number: RawFd) -> Option<(Identity, libc::mode_t)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::fstat(number, stat.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let stat = unsafe { stat.assume_init() };
    let kind = stat.st_mode & libc::S_IFMT;
    let owner = if kind == NO_TYPE { owner_of(number) } else { 0 };
    Some((Identity { device: stat.st_dev, inode: stat.st_ino, owner }, kind))
}

/// The thread that gets a file's signals; 0 for none.
fn owner_of(number: RawFd) -> libc::pid_t {
    let mut owner = OwnerEx { kind: F_OWNER_TID, id: 0 };
    // SAFETY: the structure is live. If the call fails, it stays as it is.
    unsafe { libc::fcntl(number, F_GETOWN_EX, &raw mut owner) };
    if owner.kind == F_OWNER_TID { owner.id } else { 0 }
}

/// Whether a number still belongs to this file. One system call.
fn is_of(number: RawFd, identity: Identity) -> bool {
    match identity.owner {
        0 => identity_of(number) == Some(identity),
        owner => owner_of(number) == owner,
    }
}

fn identity_of(number: RawFd) -> Option<Identity> {
    look(number).map(|(identity, _)| identity)
}

/// Marks a new file, if it has no type. Returns its identity from then on.
fn mark(number: RawFd, identity: Identity) -> Option<Identity> {
    let (now, kind) = look(number)?;
    if now != identity || kind != NO_TYPE {
        return (now == identity).then_some(now);
    }
    // SAFETY: no arguments; cannot fail.
    let owner = OwnerEx { kind: F_OWNER_TID, id: unsafe { libc::getpid() } };
    // SAFETY: the structure is live. If a filter refuses the call, the mark is missing.
    let outcome = unsafe { libc::fcntl(number, F_SETOWN_EX, &raw const owner) };
    Some(if outcome == 0 { Identity { owner: owner.id, ..identity } } else { identity })
}

/// The soft limit of open files.
fn limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (outcome == 0).then_some(limit.rlim_cur)
}

/// The lowest number for a descriptor that stays open.
fn floor() -> RawFd {
    limit().map_or(0, |limit| FLOOR.min(limit / 2) as RawFd)
}

fn close(number: RawFd) {
    // SAFETY: the caller has checked that the file is the library's, and uses the number no more.
    unsafe { libc::close(number) };
}

/// The result of a system call that makes a descriptor.
fn made(number: RawFd) -> Result<RawFd, Error> {
    if number < 0 { Err(Error::last_os_error()) } else { Ok(number) }
}

/// Gives a new file a number above the floor. Where no such number is free, it keeps its own.
fn raise(number: RawFd, identity: Identity) -> RawFd {
    let floor = floor();
    if number >= floor {
        return number;
    }
    // SAFETY: no pointers.
    let raised = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, floor) };
    if raised < 0 {
        return number;
    }
    if identity_of(number) == Some(identity) {
        close(number);
    }
    // Of another file, if the program was faster: then the number is lost, as it would be later.
    raised
}

/// A descriptor of the library's that stays open. Closed when it is dropped, and in a forked child.
#[derive(Debug)]
pub(crate) struct OwnDescriptor {
    entry: Entry,
    /// The forks before it was made: a child closes the parent's descriptors at once.
    forks: u32,
}

impl OwnDescriptor {
    /// Opens a file. `open` returns a new descriptor with `FD_CLOEXEC`, or -1 with the error in
    /// `errno`; it takes no lock and calls no allocator.
    ///
    /// # Errors
    /// The system's; `EBADF` if the program has closed the descriptor at once.
    pub(crate) fn open(
        expected: Expected,
        open: impl FnOnce() -> RawFd,
    ) -> Result<OwnDescriptor, Error> {
        let (descriptor, ()) = Self::open_as(expected, || Ok((made(open())?, ())), true)?;
        Ok(descriptor)
    }

    /// As [`OwnDescriptor::open`], for a file whose number is in the value that `open` returns, and
    /// therefore stays. The value does not close it: see [`OwnDescriptor::release`].
    #[cfg(feature = "ring")]
    pub(crate) fn open_within<T>(
        expected: Expected,
        open: impl FnOnce() -> Result<(RawFd, T), Error>,
    ) -> Result<(OwnDescriptor, T), Error> {
        Self::open_as(expected, open, false)
    }

    fn open_as<T>(
        expected: Expected,
        open: impl FnOnce() -> Result<(RawFd, T), Error>,
        is_raised: bool,
    ) -> Result<(OwnDescriptor, T), Error> {
        crate::fork::ensure_fork_handlers();
        let mut list = list();
        list.make_room()?;
        let (number, value) = open()?;
        let lost = || Error::from_raw_os_error(libc::EBADF);
        let identity = expected.identity_of(number).ok_or_else(lost)?;
        let identity = mark(number, identity).ok_or_else(lost)?;
        let number = if is_raised { raise(number, identity) } else { number };
        let entry = Entry { number, identity, serial: list.next_serial() };
        list.push(entry);
        Ok((OwnDescriptor { entry, forks: forks() }, value))
    }

    /// Its number, if that still belongs to this file. One system call.
    pub(crate) fn get(&self) -> Option<RawFd> {
        let Entry { number, identity, .. } = self.entry;
        (self.forks == forks() && is_of(number, identity)).then_some(number)
    }

    /// Its number, which may belong to another file by now: for a poll(2), and to print.
    pub(crate) fn number(&self) -> RawFd {
        self.entry.number
    }

    /// Whether the number is in the last quarter of those that the process may use: files that the
    /// library can do without leave these to the program.
    pub(crate) fn is_of_the_last(&self) -> bool {
        let is_last = |most: u64| self.number() as u64 >= most - most / 4;
        limit().is_some_and(is_last)
    }

    /// Gives the descriptor up, for an owner that closes it. `None` if the number belongs to another
    /// file by now: then it must not be closed.
    #[cfg(feature = "ring")]
    pub(crate) fn release(self) -> Option<RawFd> {
        let number = self.get();
        let is_listed = self.forks == forks() && list().remove(self.entry);
        std::mem::forget(self);
        number.filter(|_| is_listed)
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        if self.forks != forks() {
            return;
        }
        // A fork between the two steps would leave the file open in the child.
        let mut list = list();
        if list.remove(self.entry)
            && let Some(number) = self.get()
        {
            close(number);
        }
    }
}

fn list() -> RwLockWriteGuard<'static, List> {
    OPEN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a file, calls `read` with its number, and closes it. `open` as for [`OwnDescriptor::open`];
/// `read` takes no lock and calls no allocator, and does no harm to another file with that number.
///
/// # Errors
/// The number of the system's error, if the file cannot be opened; `EBADF` if the program has closed
/// it at once.
pub(crate) fn briefly<R>(
    expected: Expected,
    open: impl FnOnce() -> RawFd,
    read: impl FnOnce(RawFd) -> R,
) -> Result<R, i32> {
    let _open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    let number = made(open()).map_err(|error| error.raw_os_error().unwrap_or(0))?;
    let identity = expected.identity_of(number).ok_or(libc::EBADF)?;
    let result = read(number);
    if identity_of(number) == Some(identity) {
        close(number);
    }
    Ok(result)
}

/// Whether an error says that the process, or the system, has no descriptor or no memory for one
/// more file, or that the program has closed it at once: a later attempt may succeed.
pub(crate) fn is_passing(error: i32) -> bool {
    matches!(error, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EBADF)
}

/// The lock, for the time of a fork.
pub(crate) struct Held(RwLockWriteGuard<'static, List>);

/// Before a fork, after all other locks: no thread has a file open that is not in the list. Takes
/// some microseconds, and milliseconds while the first perf event is opened.
pub(crate) fn hold() -> Held {
    Held(list())
}

impl Held {
    /// In the child, which uses none of them: closes the parent's files. Not those of numbers that
    /// the parent has lost.
    pub(crate) fn child(mut self) {
        for &Entry { number, identity, .. } in self.0.entries() {
            if is_of(number, identity) {
                close(number);
            }
        }
        self.0.length = 0;
    }
}
