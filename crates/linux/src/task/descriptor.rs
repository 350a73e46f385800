//! A target's eventfd, made at first use.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(super) struct Descriptor {
    file: OnceLock<OwnedFd>,
    /// Writes begun. Incremented before the write, so that none is missed: a write that arrives
    /// after a `clear` is cleared by the next.
    written: AtomicU64,
    /// Writes cleared: the sum of the counts read. Accessed by the target's thread alone.
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
        // SAFETY: a new descriptor, which this call owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(self.file.get_or_init(|| fd).as_fd())
    }

    /// Makes it readable. Does nothing if the target has no eventfd: then no wait depends on it.
    pub(super) fn write(&self) {
        if let Some(fd) = self.file.get() {
            self.written.fetch_add(1, Ordering::Relaxed);
            let one = 1_u64;
            // SAFETY: the number is live. It fails only if the counter is full, and then the
            // descriptor is readable.
            unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
        }
    }

    /// Makes it unreadable, if anything was written. For its target's thread.
    #[inline]
    pub(super) fn clear(&self) {
        let cleared = self.cleared.load(Ordering::Relaxed);
        // Relaxed: the kernel's counter is what counts.
        if self.written.load(Ordering::Relaxed) != cleared {
            self.cleared.store(cleared + self.read(), Ordering::Relaxed);
        }
    }

    /// The number of writes since the last read.
    fn read(&self) -> u64 {
        let Some(fd) = self.file.get() else { return 0 };
        let mut count = 0_u64;
        // SAFETY: the number is live. With a count of zero the call fails, and `count` stays zero.
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of_val(&count)) };
        count
    }
}
