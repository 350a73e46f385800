//! A completion for another thread's io_uring, without an own ring.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The completion's `user_data`: a value that no operation of a user can have.
pub(crate) const NOTICE: u64 = u64::MAX;

const REGISTER_SEND_MSG_RING: libc::c_uint = 31;
const OP_MSG_RING: u8 = 40;

/// The first half of `struct io_uring_sqe`; the second is zero.
#[repr(C)]
struct Message {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: RawFd,
    user_data: u64,
    addr: u64,
    len: u32,
    rest: [u32; 9],
}

const _: () = assert!(size_of::<Message>() == 64);

/// Sends it. False if the kernel cannot (before Linux 6.13), or the ring does not exist any more.
pub(super) fn send(ring: RawFd) -> bool {
    static ABSENT: AtomicBool = AtomicBool::new(false);
    if ABSENT.load(Ordering::Relaxed) {
        return false;
    }
    let message = Message {
        opcode: OP_MSG_RING,
        flags: 0,
        ioprio: 0,
        fd: ring,
        user_data: NOTICE,
        addr: 0,
        len: 0,
        rest: [0; 9],
    };
    // SAFETY: the message is live and of the layout that the kernel reads; -1 means that the caller
    // has no ring.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            -1,
            REGISTER_SEND_MSG_RING,
            &raw const message,
            1,
        )
    };
    if outcome < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        ABSENT.store(true, Ordering::Relaxed);
    }
    outcome >= 0
}
