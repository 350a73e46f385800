//! Pages that are missing until the test fills them, through userfaultfd(2): they behave like a
//! slow disk or remote memory. Needs no privilege since Linux 5.11.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux_raw_sys::general::{
    UFFD_API, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_MISSING, uffdio_api, uffdio_range,
    uffdio_register, uffdio_zeropage,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE};

use super::Obstacle;

pub(super) struct Pages {
    faults: OwnedFd,
    /// The address of the first page.
    start: usize,
    places: usize,
    page: usize,
}

impl Pages {
    pub(super) fn missing(places: usize) -> Result<Pages, Error> {
        let flags = libc::c_long::from(libc::O_CLOEXEC) | libc::c_long::from(UFFD_USER_MODE_ONLY);
        // SAFETY: flags only.
        let file = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a file that was just opened, and that no other owner has.
        let faults = unsafe { OwnedFd::from_raw_fd(file as libc::c_int) };
        let mut api = uffdio_api { api: u64::from(UFFD_API), features: 0, ioctls: 0 };
        // SAFETY: UFFDIO_API takes a uffdio_api.
        unsafe { control(&faults, UFFDIO_API, &mut api) }?;
        // SAFETY: no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (protection, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping; the kernel chooses where.
        let start = unsafe { libc::mmap(null, places * page, protection, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", Error::last_os_error());
        let pages = Pages { faults, start: start as usize, places, page };
        let range = uffdio_range { start: start as u64, len: (places * page) as u64 };
        let mode = u64::from(UFFDIO_REGISTER_MODE_MISSING);
        let mut register = uffdio_register { range, mode, ioctls: 0 };
        // SAFETY: UFFDIO_REGISTER takes a uffdio_register; the range is ours.
        unsafe { control(&pages.faults, UFFDIO_REGISTER, &mut register) }?;
        Ok(pages)
    }

    fn page(&self, place: usize) -> usize {
        assert!(place < self.places);
        self.start + place * self.page
    }
}

/// # Safety
/// `argument` has the type that the request takes.
unsafe fn control<T>(faults: &OwnedFd, request: u32, argument: &mut T) -> Result<(), Error> {
    let argument = std::ptr::from_mut(argument);
    // SAFETY: an open file, and the caller's promise.
    let outcome = unsafe { libc::ioctl(faults.as_raw_fd(), request as libc::Ioctl, argument) };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

impl Obstacle for Pages {
    fn block(&self, place: usize) {
        // SAFETY: a page of ours, readable once it is filled, which the kernel waits for.
        let content = unsafe { (self.page(place) as *const u8).read_volatile() };
        assert_eq!(content, 0);
    }

    fn release(&self, place: usize) {
        let range = uffdio_range { start: self.page(place) as u64, len: self.page as u64 };
        let mut zeropage = uffdio_zeropage { range, mode: 0, zeropage: 0 };
        loop {
            // SAFETY: UFFDIO_ZEROPAGE takes a uffdio_zeropage; the page is missing, so no reference
            // to it exists.
            match unsafe { control(&self.faults, UFFDIO_ZEROPAGE, &mut zeropage) } {
                Ok(()) => return,
                // The mappings are being changed, for example by a thread that starts.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => zeropage.zeropage = 0,
                Err(error) => panic!("a missing page can be filled: {error}"),
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which no thread uses any more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.places * self.page) };
    }
}
