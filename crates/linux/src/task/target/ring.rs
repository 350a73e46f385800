//! A target that waits in a ring of its own.

use std::io;
use std::ptr;
use std::sync::atomic::Ordering;

use super::{Delivery, Target, Wait};
use crate::descriptor::OwnDescriptor;
use crate::relax;
use crate::task::{call, ring_message};

impl Target {
    /// Waits in its ring by a system call, `io_uring_enter`, unless it was notified to run its
    /// list: then `EINTR`.
    ///
    /// # Safety
    /// On the target's own thread, which has set the ring. The contract of the system call holds.
    pub unsafe fn enter_ring(&self, arguments: [usize; 6]) -> Result<usize, i32> {
        if self.delivery() == Delivery::Signal {
            // SAFETY: by this function's contract.
            return unsafe { self.call(libc::SYS_io_uring_enter, arguments) };
        }
        if arguments[1] > 0 {
            // Queued operations should be submitted without the delay of a yield.
            self.turn.waited(false);
        }
        // A message, or a write to the eventfd, is a completion, which stays in the ring. A signal,
        // which is sent instead if the program has closed both descriptors, would be lost before a
        // call that is not the stub's.
        let enter = || match call::HAS_STUB {
            // SAFETY: by this function's contract; the word is live.
            true => unsafe { self.checked(libc::SYS_io_uring_enter, arguments) },
            // SAFETY: by this function's contract.
            false => unsafe { Target::enter(arguments) },
        };
        // SAFETY: by this function's contract.
        let result = unsafe { self.wait(Wait::Ring, enter) };
        result.unwrap_or(Err(libc::EINTR))
    }

    /// `io_uring_enter` without a check before it: for calls that do not sleep, or for which an
    /// early notification stays in the ring.
    ///
    /// # Safety
    /// As the system call's.
    pub unsafe fn enter([a, b, c, d, e, f]: [usize; 6]) -> Result<usize, i32> {
        // SAFETY: by this function's contract.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_enter, a, b, c, d, e, f) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Whether it has a ring.
    pub fn has_ring(&self) -> bool {
        self.has_ring.load(Ordering::Relaxed)
    }

    /// Sets the ring in which the target waits. The target's eventfd must be polled there. The
    /// descriptor is live until `unset_ring` has returned.
    #[cfg_attr(not(feature = "ring"), expect(dead_code, reason = "only a reactor has a ring"))]
    pub(crate) fn set_ring(&self, ring: &OwnDescriptor) {
        self.has_ring.store(true, Ordering::Relaxed);
        // Sends a first message to it as a test: if that is not possible, other threads use the
        // eventfd.
        if ring.get().is_some_and(ring_message::send) {
            self.ring.store(ptr::from_ref(ring).cast_mut(), Ordering::Release);
        }
    }

    /// Afterwards no other thread uses the ring.
    pub fn unset_ring(&self) {
        self.ring.store(ptr::null_mut(), Ordering::Relaxed);
        self.list.settle(relax);
        self.has_ring.store(false, Ordering::Relaxed);
    }
}
