//! Pages that another thread fills when they are touched, through userfaultfd: a model of memory
//! with a slow backing store.
//!
//! Only faults in user mode, which need no privilege since Linux 5.11.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

use linux_raw_sys::general::{
    UFFD_API, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_MISSING, uffdio_api, uffdio_copy,
    uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER};

use super::Obstacle;

/// Whether this process may use userfaultfd.
pub(in crate::bench::blocking) fn check() -> io::Result<()> {
    Pages::new(1).map(drop)
}

pub(super) struct Pages {
    faults: File,
    start: *mut u8,
    count: usize,
    page_bytes: usize,
    /// The content of a filled page.
    content: Box<[u8]>,
}

// SAFETY: this value owns the mapping; threads only read it, and the kernel fills it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let flags = libc::c_long::from(libc::O_CLOEXEC) | libc::c_long::from(UFFD_USER_MODE_ONLY);
        // SAFETY: the call takes flags only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let faults = unsafe { File::from_raw_fd(fd as libc::c_int) };
        let mut api = uffdio_api { api: u64::from(UFFD_API), features: 0, ioctls: 0 };
        // SAFETY: UFFDIO_API takes a uffdio_api.
        unsafe { control(&faults, UFFDIO_API, &mut api) }?;

        // SAFETY: the call has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), count * page_bytes, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let content = vec![1; page_bytes].into_boxed_slice();
        let pages = Self { faults, start: start.cast(), count, page_bytes, content };
        let range = uffdio_range { start: start as u64, len: (count * page_bytes) as u64 };
        let mode = u64::from(UFFDIO_REGISTER_MODE_MISSING);
        let mut register = uffdio_register { range, mode, ioctls: 0 };
        // SAFETY: UFFDIO_REGISTER takes a uffdio_register; this value owns the range.
        unsafe { control(&pages.faults, UFFDIO_REGISTER, &mut register) }?;
        Ok(pages)
    }

    fn page(&self, place: usize) -> *mut u8 {
        assert!(place < self.count);
        // SAFETY: inside the mapping, as asserted above.
        unsafe { self.start.add(place * self.page_bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to a page exists any more.
        unsafe { libc::munmap(self.start.cast(), self.count * self.page_bytes) };
    }
}

/// # Safety
///
/// `argument` has the type that the request requires.
unsafe fn control<T>(faults: &File, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open; the argument is valid by this function's contract.
    let result =
        unsafe { libc::ioctl(faults.as_raw_fd(), request as libc::Ioctl, ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Obstacle for Pages {
    /// Removes the page.
    fn set_up(&self, place: usize) {
        // SAFETY: this value owns the page, and no thread uses it while it is set up; it will be
        // filled again.
        let result =
            unsafe { libc::madvise(self.page(place).cast(), self.page_bytes, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "an own page can be released");
    }

    fn block(&self, place: usize) {
        // SAFETY: this value owns the page. The kernel makes the read wait until the page is
        // filled.
        let content = unsafe { self.page(place).read_volatile() };
        assert_eq!(content, 1, "the page was filled");
    }

    fn release(&self, place: usize) {
        let mut copy = uffdio_copy {
            dst: self.page(place) as u64,
            src: self.content.as_ptr() as u64,
            len: mem::size_of_val(&*self.content) as u64,
            mode: 0,
            copy: 0,
        };
        loop {
            // SAFETY: UFFDIO_COPY takes a uffdio_copy. The page is missing, so no reference into it
            // exists, and the content is as long as a page.
            match unsafe { control(&self.faults, UFFDIO_COPY, &mut copy) } {
                Ok(()) => return,
                // The memory map is changing, for example because a thread is starting.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => copy.copy = 0,
                Err(error) => panic!("a missing page can be filled: {error}"),
            }
        }
    }
}
