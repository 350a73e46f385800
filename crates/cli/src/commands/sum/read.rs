//! Opening and reading files so that the pool learns of a wait exactly when there is one.
//!
//! Each call is first made in a form that the kernel refuses where it would have to wait for the disk:
//! `openat2` with RESOLVE_CACHED, `preadv2` with RWF_NOWAIT. Only when it refuses is the plain call made, under
//! `uwork::blocking`. A tree that is in memory thus costs no declaration at all, a cold one declares each wait.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FsWord, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// False once the kernel (before 5.12) or a sandbox has refused RESOLVE_CACHED. Publishes nothing, so Relaxed.
static CACHED_LOOKUP: AtomicBool = AtomicBool::new(true);

/// Whether a file that was just opened is likely to be read without a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Warmth {
    Cached,
    Cold,
}

/// Opens `name` in the directory `dir` for reading; `flags` are added to the usual ones.
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
            // EPERM can also be the file's own answer: it is the sandbox's only if the plain call gets through.
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        CACHED_LOOKUP.store(false, Ordering::Relaxed);
        return Ok((file, Warmth::Cached));
    }
    Ok((rustix::fs::openat(dir, name, flags, Mode::empty())?, Warmth::Cached))
}

/// How a file's reads are made: learned from the first one.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// The file system can say that it would wait.
    CanRefuse,
    /// It cannot (NFS, FUSE, /proc): every read is declared.
    Declared,
    /// It cannot, but never has to wait either (tmpfs).
    InMemory,
}

impl Reads {
    /// The way to read a file that does not know RWF_NOWAIT.
    fn without_refusal(file: BorrowedFd<'_>) -> Self {
        /// From linux/magic.h.
        const TMPFS_MAGIC: FsWord = 0x0102_1994;
        match rustix::fs::fstatfs(file) {
            Ok(fs) if fs.f_type == TMPFS_MAGIC => Self::InMemory,
            _ => Self::Declared,
        }
    }
}

/// Reads on from the file's position. 0 is the end.
pub(super) fn read(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    reads: &mut Reads,
) -> Result<usize, Errno> {
    /// `preadv2` at this offset reads on from the file's position, and so works on pipes too.
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

/// Reads the file to its end and hands each chunk to `take`, which answers false to stop early.
///
/// # Errors
/// What the system says; `Interrupted` if `take` stopped it.
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
