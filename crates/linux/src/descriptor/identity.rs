//! What tells a file from others: whether a number still belongs to a file of the library's.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
    /// The library's mark, for a file without a type; 0: none.
    mark: libc::c_int,
}

/// Constants of fcntl(2) that libc does not have: the signal for a file that is ready.
pub(crate) const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

/// The marks of files without a type: signals that no driver sends. Each kind has its own. The program
/// has eventfds of the library, and may give a duplicate of one to any number.
const MARKS: [libc::c_int; 3] = [EVENT, RING, PERF];
pub(super) const EVENT: libc::c_int = libc::SIGSTKFLT;
pub(super) const RING: libc::c_int = libc::SIGXFSZ;
const PERF: libc::c_int = libc::SIGXCPU;

/// What a new descriptor must refer to. What tells that is known before the file is opened: otherwise the
/// number of a file that vanishes meanwhile, or whose path a sandbox hides, could not be closed.
#[derive(Clone, Copy)]
pub(crate) enum Expected<'a> {
    /// A file in `/proc`.
    Process,
    /// A file on the device of this path: the one of this number, or another after a change of the file
    /// systems. See [`Expected::on`].
    On(&'a CStr, libc::dev_t),
    Socket,
    /// A file in memory, of memfd_create(2).
    #[cfg(feature = "control")]
    Memory,
    /// An event of perf_event_open(2).
    PerfEvent,
    /// An eventfd.
    Event,
    /// An io_uring.
    #[cfg(feature = "ring")]
    Ring,
}

impl<'a> Expected<'a> {
    /// A file on the device of this path.
    ///
    /// # Errors
    /// The number of the system's error, if the device is not known.
    pub(crate) fn on(path: &'a CStr) -> Result<Expected<'a>, i32> {
        device_of(path).map(|device| Expected::On(path, device))
    }

    /// Learns what tells the files, before one is opened.
    ///
    /// # Errors
    /// As for [`Expected::on`].
    pub(super) fn learn(self) -> Result<(), i32> {
        if matches!(self, Expected::Process) && PROC.load(Ordering::Relaxed) == 0 {
            look_at_proc()?;
        }
        Ok(())
    }

    /// The identity of a file, if it is what was expected: by one look at it, so that no other file is
    /// taken for it.
    pub(super) fn identity_of(self, number: RawFd) -> Option<Identity> {
        let (identity, kind) = look(number)?;
        let is_met = match self {
            Expected::Process => is_of_proc(identity.device),
            Expected::On(path, device) => {
                device == identity.device || device_of(path) == Ok(identity.device)
            }
            Expected::Socket => kind == libc::S_IFSOCK,
            #[cfg(feature = "control")]
            Expected::Memory => kind == libc::S_IFREG,
            Expected::Event => kind == NO_TYPE,
            #[cfg(feature = "ring")]
            Expected::Ring => kind == NO_TYPE,
            Expected::PerfEvent => kind == NO_TYPE && is_perf_event(number),
        };
        is_met.then_some(identity)
    }

    /// The mark of this kind.
    fn mark(self) -> Option<libc::c_int> {
        match self {
            Expected::Event => Some(EVENT),
            #[cfg(feature = "ring")]
            Expected::Ring => Some(RING),
            Expected::PerfEvent => Some(PERF),
            #[cfg(feature = "control")]
            Expected::Memory => None,
            Expected::Process | Expected::On(..) | Expected::Socket => None,
        }
    }
}

/// The device of `/proc`; 0 before the first look.
pub(super) static PROC: AtomicU64 = AtomicU64::new(0);

/// Whether `/proc` is on this device. Its device is looked at again after a change of the file systems
/// that the process sees.
fn is_of_proc(device: libc::dev_t) -> bool {
    if PROC.load(Ordering::Relaxed) == device {
        return true;
    }
    look_at_proc() == Ok(device)
}

fn look_at_proc() -> Result<libc::dev_t, i32> {
    device_of(c"/proc/self/stat").inspect(|&device| PROC.store(device, Ordering::Relaxed))
}

/// The device of a file that may be closed.
///
/// # Errors
/// The number of the system's error.
fn device_of(path: &CStr) -> Result<libc::dev_t, i32> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path and the structure are live; the call fills it if it succeeds.
    unsafe {
        match libc::stat(path.as_ptr(), stat.as_mut_ptr()) {
            0 => Ok(stat.assume_init().st_dev),
            _ => Err(crate::fatal::errno()),
        }
    }
}

/// For an open file without a type.
fn is_perf_event(number: RawFd) -> bool {
    let mut id = 0_u64;
    // SAFETY: the number is live. Other files refuse the call.
    let outcome = unsafe { perf_event_open_sys::ioctls::ID(number, &raw mut id) };
    // A filter of system calls may refuse it for all files, with another error.
    outcome == 0 || !matches!(crate::fatal::errno(), libc::ENOTTY | libc::EINVAL | libc::EBADF)
}

/// The type of an eventfd, a perf event, an io_uring.
const NO_TYPE: libc::mode_t = 0;

/// The identity and the type of an open file. One system call, two for a file without a type. `None`
/// for a closed number.
pub(super) fn look(number: RawFd) -> Option<(Identity, libc::mode_t)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is live.
    let outcome = unsafe { libc::fstat(number, stat.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let stat = unsafe { stat.assume_init() };
    let kind = stat.st_mode & libc::S_IFMT;
    let mark = if kind == NO_TYPE { mark_of(number) } else { 0 };
    Some((Identity { device: stat.st_dev, inode: stat.st_ino, mark }, kind))
}

/// 0 for a closed number, and for a file without one of the marks.
fn mark_of(number: RawFd) -> libc::c_int {
    // SAFETY: no pointers.
    let signal = unsafe { libc::fcntl(number, F_GETSIG) };
    if MARKS.contains(&signal) { signal } else { 0 }
}

/// Whether a number still belongs to this file, for a use. One system call.
pub(super) fn is_of(number: RawFd, identity: Identity) -> bool {
    match identity.mark {
        0 => identity_of(number) == Some(identity),
        mark => mark_of(number) == mark,
    }
}

pub(super) fn identity_of(number: RawFd) -> Option<Identity> {
    look(number).map(|(identity, _)| identity)
}

/// Marks a new file, if its kind has a mark. Returns its identity from then on.
pub(super) fn mark(number: RawFd, expected: Expected, identity: Identity) -> Option<Identity> {
    let (now, _) = look(number)?;
    if now != identity {
        return None;
    }
    let Some(mark) = expected.mark() else { return Some(now) };
    // SAFETY: no pointers. If a filter refuses the call, the mark is missing.
    let outcome = unsafe { libc::fcntl(number, F_SETSIG, mark) };
    Some(Identity { mark: if outcome == 0 { mark } else { 0 }, ..identity })
}

/// Closes a number, if it still belongs to this file.
pub(super) fn close(number: RawFd, identity: Identity) -> bool {
    let is_own = identity_of(number) == Some(identity);
    if is_own {
        // SAFETY: the file is the library's, and the caller uses the number no more.
        unsafe { libc::close(number) };
    }
    is_own
}
