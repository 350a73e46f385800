//! Opens and reads files, and declares a block to the pool only when the call has to wait.
//!
//! Each call is first made in a form that fails instead of waiting for the disk: `openat2` with
//! RESOLVE_CACHED, `preadv2` with RWF_NOWAIT. If it fails for that reason, the plain call is made
//! under `uwork::blocking`. So a tree in the page cache causes no declarations, and a cold tree
//! declares every wait.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FsWord, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// False once the kernel (before 5.12) or a sandbox has refused RESOLVE_CACHED. Relaxed, because it
/// publishes no other memory.
static CACHED_LOOKUP: AtomicBool = AtomicBool::new(true);

/// Whether a newly opened file can probably be read without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Warmth {
    Cached,
    Cold,
}

/// Opens `name` in the directory `dir` for reading, with `flags` added to the usual ones.
pub(super) fn open(
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<(OwnedFd, Warmth), Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    if CACHED_LOOKUP.load(Ordering::Relaxed) {
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::CACHED) {
            Ok(file) => return Ok((file, Warmth::Cached)),
            Err(Errno::AGAIN) => {
                let file = uwork::blocking(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
                return Ok((file, Warmth::Cold));
            }
            // The file itself can also cause EPERM. It came from the sandbox only if the plain call
            // succeeds.
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        CACHED_LOOKUP.store(false, Ordering::Relaxed);
        return Ok((file, Warmth::Cached));
    }
    Ok((rustix::fs::openat(dir, name, flags, Mode::empty())?, Warmth::Cached))
}

/// How the reads of a file are made, learned from its first read.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// The file system supports RWF_NOWAIT.
    CanRefuse,
    /// The file system does not support RWF_NOWAIT (NFS, FUSE, /proc): every read is declared as a
    /// block.
    Declared,
    /// The file system does not support RWF_NOWAIT, but never waits either (tmpfs).
    InMemory,
}

impl Reads {
    /// The mode for a file whose file system rejects RWF_NOWAIT.
    fn without_refusal(file: BorrowedFd<'_>) -> Self {
        /// From linux/magic.h.
        const TMPFS_MAGIC: FsWord = 0x0102_1994;
        match rustix::fs::fstatfs(file) {
            Ok(fs) if fs.f_type == TMPFS_MAGIC => Self::InMemory,
            _ => Self::Declared,
        }
    }
}

/// Reads from the file's current position. 0 means the end of the file.
pub(super) fn read(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    reads: &mut Reads,
) -> Result<usize, Errno> {
    /// With this offset `preadv2` reads from the current position, and therefore works on pipes
    /// too.
    const HERE: u64 = u64::MAX;
    loop {
        let outcome = match reads {
            Reads::CanRefuse => rustix::io::preadv2(
                file,
                &mut [IoSliceMut::new(buffer)],
                HERE,
                ReadWriteFlags::NOWAIT,
            ),
            Reads::Declared => uwork::blocking(|| rustix::io::read(file, &mut *buffer)),
            Reads::InMemory => rustix::io::read(file, &mut *buffer),
        };
        match (outcome, *reads) {
            (Err(Errno::INTR), _) => {}
            (Err(Errno::AGAIN), Reads::CanRefuse) => {
                match uwork::blocking(|| rustix::io::read(file, &mut *buffer)) {
                    Err(Errno::INTR) => {}
                    outcome => return outcome,
                }
            }
            (Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL), Reads::CanRefuse) => {
                *reads = Reads::without_refusal(file);
            }
            (outcome, _) => return outcome,
        }
    }
}

/// Reads the file to its end and passes each chunk to `take`, which returns false to stop early.
///
/// # Errors
/// The system's error, or `Interrupted` if `take` stopped the read.
pub(super) fn read_to_end(
    file: impl AsFd,
    buffer: &mut [u8],
    reads: &mut Reads,
    mut take: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    loop {
        let n = read(file.as_fd(), buffer, reads)?;
        if n == 0 {
            return Ok(());
        }
        if !take(&buffer[..n]) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}
