//! A target's eventfd, made at first use.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::descriptor::{Expected, OwnDescriptor};

/// See the module.
pub(super) struct Descriptor {
    /// Null before the first use. Replaced by the target's thread alone, if the program has closed
    /// it; the old one is freed when no adder can have it any more.
    file: AtomicPtr<OwnDescriptor>,
    /// Writes begun. Incremented before the write, so that none is missed: a write that arrives
    /// after a `clear` is cleared by the next.
    written: AtomicU64,
    /// Writes cleared: the sum of the counts read. Accessed by the target's thread alone.
    cleared: AtomicU64,
}

impl Descriptor {
    pub(super) const fn new() -> Descriptor {
        let file = AtomicPtr::new(ptr::null_mut());
        Descriptor { file, written: AtomicU64::new(0), cleared: AtomicU64::new(0) }
    }

    /// The eventfd, if it was made. For its target's thread, and for adders until they have sent
    /// their notifications.
    fn file(&self) -> Option<&OwnDescriptor> {
        // SAFETY: null, or freed as described at the field. Acquire: it is complete.
        unsafe { self.file.load(Ordering::Acquire).as_ref() }
    }

    /// The descriptor; its number may belong to another file if the program has closed it. For its
    /// target's thread.
    pub(super) fn get(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open as long as the program leaves it open. A program that closes it cannot expect
        // more of a borrowed descriptor.
        self.file().map(|file| unsafe { BorrowedFd::borrow_raw(file.number()) })
    }

    /// Makes the descriptor, unless it is open. `settle` waits until no adder has the old one. For
    /// its target's thread.
    pub(super) fn open(&self, settle: impl FnOnce()) -> io::Result<()> {
        if self.file().is_some_and(|file| file.get().is_some()) {
            return Ok(());
        }
        // SAFETY: no pointers.
        let open = || unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let new = Box::into_raw(Box::new(OwnDescriptor::open(Expected::Event, open)?));
        let old = self.file.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            settle();
            // Every write begun went to the old one.
            self.cleared.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
            // SAFETY: made by an earlier call, and no thread has it.
            drop(unsafe { Box::from_raw(old) });
        }
        Ok(())
    }

    /// Makes it readable. False if the program has closed it. Does nothing if the target has no
    /// eventfd: then no wait depends on it.
    #[must_use]
    pub(super) fn write(&self) -> bool {
        let Some(file) = self.file() else { return true };
        let Some(number) = file.get() else { return false };
        self.written.fetch_add(1, Ordering::Relaxed);
        let one = 1_u64;
        // SAFETY: the value is live. It fails only if the counter is full, and then the descriptor
        // is readable.
        // By `syscall`, which is no cancellation point.
        unsafe { libc::syscall(libc::SYS_write, number, &raw const one, size_of_val(&one)) };
        true
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
        let Some(number) = self.file().and_then(OwnDescriptor::get) else { return 0 };
        let mut count = 0_u64;
        // SAFETY: the value is live. With a count of zero the call fails, and `count` stays zero.
        // As in `write`.
        unsafe { libc::syscall(libc::SYS_read, number, &raw mut count, size_of_val(&count)) };
        count
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let file = *self.file.get_mut();
        if !file.is_null() {
            // SAFETY: made by `open`, and no thread has the target any more.
            drop(unsafe { Box::from_raw(file) });
        }
    }
}
