//! How a reactor names its ring to the kernel.
//!
//! By an index in a table of the thread's own (`IORING_REGISTER_RING_FDS`): a program that closes
//! every descriptor does not reach that one, so the reactor goes on; and the kernel finds the ring
//! faster. Only messages of other threads need the descriptor, and find it closed: they take other
//! ways. Where the index is refused, each call takes the descriptor, and fails when it was closed.

use std::io::Error;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{Builder, IoUring};

use crate::descriptor::{Expected, OwnDescriptor};

const ENTER_REGISTERED_RING: usize = 1 << 4;
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;
const REGISTER_SYNC_CANCEL: libc::c_uint = 24;
/// Names the ring by its index, since Linux 6.3.
const USE_REGISTERED_RING: libc::c_uint = 1 << 31;
const CANCEL_ANY: u32 = 1 << 2;

/// `struct io_uring_rsrc_update` of <linux/io_uring.h>.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// `struct io_uring_sync_cancel_reg` of <linux/io_uring.h>.
#[repr(C)]
struct SyncCancel {
    addr: u64,
    fd: i32,
    flags: u32,
    seconds: i64,
    nanoseconds: i64,
    opcode: u8,
    rest: [u8; 31],
}

const _: () = assert!(size_of::<SyncCancel>() == 64);

/// See the module.
#[derive(Debug)]
pub(super) struct Entrance {
    /// The ring's descriptor, which the `IoUring` closes.
    descriptor: OwnDescriptor,
    /// The ring's index in the thread's table.
    index: Option<u32>,
}

impl Entrance {
    /// Makes a ring.
    pub(super) fn open(builder: &Builder, entries: u32) -> Result<(Entrance, IoUring), Error> {
        let build = || builder.build(entries).map(|ring| (ring.as_raw_fd(), ring));
        let (descriptor, ring) = OwnDescriptor::open_within(Expected::Ring, build)?;
        let mut entrance = Entrance { descriptor, index: None };
        let data = entrance.descriptor.number() as u64;
        let mut update = Update { offset: u32::MAX, reserved: 0, data };
        // SAFETY: the structure is of this call's layout, and live.
        if unsafe { entrance.register(REGISTER_RING_FDS, &mut update) } == Ok(1) {
            entrance.index = Some(update.offset);
        }
        Ok((entrance, ring))
    }

    /// For messages to the ring.
    pub(super) fn descriptor(&self) -> &OwnDescriptor {
        &self.descriptor
    }

    /// The first argument of `io_uring_enter`, and the flag that goes with it.
    ///
    /// # Errors
    /// The program has closed the descriptor, and there is no index.
    pub(super) fn at(&self) -> Result<(usize, usize), Error> {
        if let Some(index) = self.index {
            return Ok((index as usize, ENTER_REGISTERED_RING));
        }
        let number = self.descriptor.get();
        number
            .map(|number| (number as usize, 0))
            .ok_or_else(|| Error::from_raw_os_error(libc::EBADF))
    }

    /// Calls `io_uring_register` for this ring with one structure. An error is the system's number.
    ///
    /// # Safety
    /// The structure is that of the operation.
    unsafe fn register<T>(&self, operation: libc::c_uint, what: &mut T) -> Result<i64, i32> {
        let (ring, operation) = match (self.descriptor.get(), self.index) {
            (Some(number), _) => (number, operation),
            (None, Some(index)) => (index as i32, operation | USE_REGISTERED_RING),
            (None, None) => return Err(libc::EBADF),
        };
        let what: *mut T = what;
        // SAFETY: by this function's contract.
        let result =
            unsafe { libc::syscall(libc::SYS_io_uring_register, ring, operation, what, 1) };
        match result {
            0.. => Ok(result),
            _ => Err(Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }

    /// Cancels all operations in progress, and waits until they have ended. False if one has not,
    /// after this time.
    pub(super) fn cancel_all(&self, timeout: Duration) -> bool {
        let mut cancel = SyncCancel {
            addr: 0,
            fd: -1,
            flags: CANCEL_ANY,
            seconds: timeout.as_secs() as i64,
            nanoseconds: i64::from(timeout.subsec_nanos()),
            opcode: 0,
            rest: [0; 31],
        };
        // SAFETY: the structure is of this call's layout, and live.
        let outcome = unsafe { self.register(REGISTER_SYNC_CANCEL, &mut cancel) };
        // No entry: there was nothing to cancel.
        matches!(outcome, Ok(_) | Err(libc::ENOENT))
    }

    /// Frees the index, and gives the descriptor up. True if the `IoUring` may close it: it may not
    /// if the program has closed it, whose next file may have the number.
    pub(super) fn close(self) -> bool {
        if let Some(index) = self.index {
            let mut update = Update { offset: index, reserved: 0, data: 0 };
            // SAFETY: the structure is of this call's layout, and live.
            let _ = unsafe { self.register(UNREGISTER_RING_FDS, &mut update) };
        }
        self.descriptor.release().is_some()
    }
}
