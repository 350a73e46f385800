//! `pthread_cancel` of a thread that is inside the library.
//!
//! A cancellation unwinds the thread at a cancellation point, such as `read` or `nanosleep`: there a
//! lock may be held, and no frame of Rust expects it. So the library has no cancellation point. It
//! holds cancellation off
//!
//! - in its own threads, for ever;
//! - in the functions of the C interface that wait, create or inspect, or that run functions of the
//!   program on the caller's stack;
//! - in the rare parts of the others: a start of a thread, an object of first use, a report, a sleep
//!   for a lock, a visit to other CPUs in place of membarrier.
//!
//! The frequent calls of the C interface do not pay for it. A wait by futex(2), made by `syscall`, is
//! no cancellation point. A cancellation that is held off stays pending: the thread acts upon it at
//! its next cancellation point after the call.

use std::ffi::c_int;
use std::marker::PhantomData;

/// The same in glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// While it lives, the thread is not cancelled. Stays on its thread.
#[must_use = "cancellation is held off while this lives"]
pub struct HeldOff {
    before: c_int,
    thread: PhantomData<*mut ()>,
}

/// Holds cancellation of the calling thread off. It costs two locked instructions.
pub fn hold_off() -> HeldOff {
    let mut before = DISABLE;
    // SAFETY: the result is live. A failure changes nothing.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    HeldOff { before, thread: PhantomData }
}

impl Drop for HeldOff {
    fn drop(&mut self) {
        // SAFETY: a state that the thread has had.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// Holds cancellation off in a thread of the library, as long as it lives.
pub(crate) fn never() {
    std::mem::forget(hold_off());
}
