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
//! common; so files without a type of their own are marked by a signal (`F_SETSIG`) that no program
//! chooses for a file, and that is never switched on. Each of the three kinds has its own signal: the
//! program may duplicate the eventfd of a notifier to the number of a lost ring. Every process sees the
//! same marks, in another namespace too. A use checks the mark alone, which takes half the time of the
//! whole identity; a close checks both. A number that the library itself has got again since is told
//! apart by the list: an older descriptor is not in it any more.

pub(crate) mod identity;
mod stream_socket;
#[cfg(test)]
mod tests;

use std::io::Error;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

pub(crate) use identity::Expected;
use identity::{Identity, close, identity_of, is_of, mark};
pub use stream_socket::StreamSocket;

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
        self.remove_lost();
        // With less free, the next calls would look at all entries again.
        if self.length < self.room / 2 {
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

    /// Removes the entries of files that the program has closed. An owner may keep such a descriptor
    /// for good.
    fn remove_lost(&mut self) {
        for at in (0..self.length).rev() {
            let Entry { number, identity, .. } = self.entries()[at];
            if identity_of(number) != Some(identity) {
                self.remove_at(at);
            }
        }
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

/// The result of a system call that makes a descriptor.
fn made(number: RawFd) -> Result<RawFd, Error> {
    if number < 0 { Err(Error::last_os_error()) } else { Ok(number) }
}

/// Gives a new file a number above the floor. Where no such number is free, it keeps its own. `None`
/// if the program was faster, and has closed it.
fn raise(number: RawFd, identity: Identity) -> Option<RawFd> {
    let floor = floor();
    if number >= floor {
        return Some(number);
    }
    // SAFETY: no pointers.
    let raised = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, floor) };
    if raised < 0 {
        return Some(number);
    }
    let of_raised = identity_of(raised);
    if of_raised == Some(identity) {
        close(number, identity);
        return Some(raised);
    }
    // The number belonged to another file by then, which would stay open by its second number.
    if let Some(foreign) = of_raised.filter(|&foreign| identity_of(number) == Some(foreign)) {
        close(raised, foreign);
    }
    None
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

    /// As [`OwnDescriptor::open`], for a file that is open already. The caller keeps forks out from
    /// before its opening on.
    ///
    /// # Errors
    /// As there. The number is closed, or belongs to another file.
    #[cfg(feature = "control")]
    pub(crate) fn adopt(expected: Expected, number: RawFd) -> Result<OwnDescriptor, Error> {
        let identity = expected.identity_of(number);
        let identity = identity.ok_or_else(|| Error::from_raw_os_error(libc::EBADF))?;
        Self::open(expected, || number).inspect_err(|_| _ = close(number, identity))
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
        expected.learn().map_err(Error::from_raw_os_error)?;
        let mut list = list();
        list.make_room()?;
        let (number, value) = open()?;
        let known =
            expected.identity_of(number).and_then(|identity| mark(number, expected, identity));
        let kept = known.and_then(|identity| {
            let number = if is_raised { raise(number, identity)? } else { number };
            Some((number, identity))
        });
        let Some((number, identity)) = kept else {
            // The value may close the number, which belongs to the program: its memory is lost.
            std::mem::forget(value);
            return Err(Error::from_raw_os_error(libc::EBADF));
        };
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
        if list.remove(self.entry) {
            close(self.entry.number, self.entry.identity);
        }
    }
}

/// A socket that the system has made for an operation of the program's, which has not taken it yet.
#[cfg(feature = "ring")]
#[derive(Debug)]
pub(crate) struct Untaken {
    number: RawFd,
    /// `None` if the number belongs to a file of another kind.
    identity: Option<Identity>,
}

#[cfg(feature = "ring")]
impl Untaken {
    pub(crate) fn new(number: RawFd) -> Untaken {
        Untaken { number, identity: Expected::Socket.identity_of(number) }
    }

    /// Gives it up, for an owner that closes it. `None` if the program has closed it.
    pub(crate) fn take(self) -> Option<RawFd> {
        let Untaken { number, identity } = self;
        identity.filter(|&identity| is_of(number, identity)).map(|_| number)
    }

    /// Closes it, unless the program may have done so. `is_it`: whether the socket of that number is that
    /// socket, and not one that had got the number before this value was made.
    pub(crate) fn close(self, is_it: impl FnOnce(RawFd) -> bool) {
        if let Some(identity) = self.identity.filter(|_| is_it(self.number)) {
            close(self.number, identity);
        }
    }
}

fn list() -> RwLockWriteGuard<'static, List> {
    OPEN.write().unwrap_or_else(PoisonError::into_inner)
}

/// How often a file is opened for one read, if the program closes it at once.
const ATTEMPTS: u32 = 4;

/// Opens a file, calls `read` with its number, and closes it. `open` as for [`OwnDescriptor::open`];
/// `read` takes no lock and calls no allocator, and does no harm to another file with that number. It
/// is called again if the number belongs to another file afterwards.
///
/// # Errors
/// The number of the system's error, if the file cannot be opened; `EBADF` if the program has closed
/// it at once, again and again.
pub(crate) fn briefly<R>(
    expected: Expected,
    mut open: impl FnMut() -> RawFd,
    mut read: impl FnMut(RawFd) -> R,
) -> Result<R, i32> {
    expected.learn()?;
    let _open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..ATTEMPTS {
        let number = made(open()).map_err(|error| error.raw_os_error().unwrap_or(0))?;
        if let Some(identity) = expected.identity_of(number) {
            let result = read(number);
            if close(number, identity) {
                return Ok(result);
            }
        }
    }
    Err(libc::EBADF)
}

/// Whether an error says that the process, or the system, has no descriptor or no memory for one
/// more file, or that the program has closed it at once: a later attempt may succeed.
pub(crate) fn is_passing(error: i32) -> bool {
    matches!(error, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EBADF)
}

/// Gives the calling thread an empty table of descriptors. Before Linux 5.9, and where a sandbox
/// refuses the call: a copy, in which the first numbers are free, as a full table has no other ones.
pub(crate) fn own_table() {
    const UNSHARE: libc::c_uint = 1 << 1;
    const FREE: RawFd = 64;
    // SAFETY: numbers only. The table of other threads stays as it is: numbers are closed only once
    // this thread has one of its own.
    unsafe {
        let is_empty = libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, UNSHARE) == 0;
        if !is_empty && libc::unshare(libc::CLONE_FILES) == 0 {
            (0..FREE).for_each(|number| _ = libc::close(number));
        }
    }
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
            close(number, identity);
        }
        self.0.length = 0;
    }
}
