//! A target's eventfd, made when it is first wanted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// See the module.
pub(super) struct Descriptor(OnceLock<OwnedFd>);

impl Descriptor {
    pub(super) const fn new() -> Descriptor {
        Descriptor(OnceLock::new())
    }

    /// The descriptor. For its target's thread.
    pub(super) fn get(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(fd) = self.0.get() {
            return Ok(fd.as_fd());
        }
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which is ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(self.0.get_or_init(|| fd).as_fd())
    }

    /// Makes it readable. Does nothing if its target has none: then nothing waits for it.
    pub(super) fn write(&self) {
        if let Some(fd) = self.0.get() {
            let one = 1_u64;
            // SAFETY: the number is live. It fails when the counter is full, so when the descriptor is readable.
            unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
        }
    }

    /// Makes it not readable. False if it was not.
    pub(super) fn clear(&self) -> bool {
        let Some(fd) = self.0.get() else { return false };
        let mut count = 0_u64;
        // SAFETY: the number is live. Without a count it fails.
        unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of_val(&count)) > 0 }
    }
}
