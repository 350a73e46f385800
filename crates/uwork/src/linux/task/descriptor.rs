//! A target's eventfd, made when it is first wanted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(super) struct Descriptor {
    file: OnceLock<OwnedFd>,
    /// Writes that were begun. Raised before the write, so that none is overlooked: one that comes after a look is
    /// taken back at the next.
    written: AtomicU64,
    /// Writes that were taken back: the sum of what was read. The target's alone.
    cleared: AtomicU64,
}

impl Descriptor {
    pub(super) const fn new() -> Descriptor {
        Descriptor { file: OnceLock::new(), written: AtomicU64::new(0), cleared: AtomicU64::new(0) }
    }

    /// The descriptor. For its target's thread.
    pub(super) fn get(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(fd) = self.file.get() {
            return Ok(fd.as_fd());
        }
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(self.file.get_or_init(|| fd).as_fd())
    }

    /// Makes it readable. Does nothing if its target has none: then nothing waits for it.
    pub(super) fn write(&self) {
        if let Some(fd) = self.file.get() {
            self.written.fetch_add(1, Ordering::Relaxed);
            let one = 1_u64;
            // SAFETY: the number is live. It fails when the counter is full, so when the descriptor is readable.
            unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
        }
    }

    /// Makes it not readable, if anything was written. For its target's thread.
    #[inline]
    pub(super) fn clear(&self) {
        let cleared = self.cleared.load(Ordering::Relaxed);
        // Relaxed: the counter in the kernel says what has come.
        if self.written.load(Ordering::Relaxed) != cleared {
            self.cleared.store(cleared + self.read(), Ordering::Relaxed);
        }
    }

    /// How many writes have come since the last read.
    fn read(&self) -> u64 {
        let Some(fd) = self.file.get() else { return 0 };
        let mut count = 0_u64;
        // SAFETY: the number is live. Without a count it fails, and leaves the zero.
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of_val(&count)) };
        count
    }
}
