//! An own area for each thread, if glibc has registered none: it is older than 2.35, or was
//! configured not to (`GLIBC_TUNABLES=glibc.pthread.rseq=0`).
//!
//! A thread registers at its first use and unregisters before its thread-local memory is freed. In
//! between the kernel writes to the area whenever the thread returns from the kernel. A thread
//! whose registration is refused, as other code has registered an area, has no sections.

use std::cell::{Cell, UnsafeCell};

use super::arch::SIGNATURE;
use super::field;
use crate::cpu;

/// `struct rseq`, in the size that every kernel accepts.
#[repr(C, align(32))]
struct Area(UnsafeCell<[u8; SIZE as usize]>);

const SIZE: u32 = 32;
/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: i32 = 1;

struct Registration {
    area: Area,
    state: Cell<State>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    NotTried,
    Registered,
    Refused,
}

thread_local! {
    /// The area, if it is registered: without a destructor, so that one load finds it.
    static AREA: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    static OWN: Registration = const {
        Registration { area: Area(UnsafeCell::new([0; SIZE as usize])), state: Cell::new(State::NotTried) }
    };
}

impl Registration {
    fn area(&self) -> *mut u8 {
        if self.state.get() == State::NotTried {
            let state = if self.call(0) { State::Registered } else { State::Refused };
            self.state.set(state);
            if state == State::Registered {
                let area: *mut u8 = self.area.0.get().cast();
                AREA.set(area);
                cpu::settle(Some(area.wrapping_add(field::CPU_ID).cast()));
            }
        }
        match self.state.get() {
            State::Registered => self.area.0.get().cast(),
            _ => std::ptr::null_mut(),
        }
    }

    fn call(&self, flags: i32) -> bool {
        // SAFETY: the area lives until `drop` has unregistered it, and is only accessed through raw
        // pointers.
        unsafe { libc::syscall(libc::SYS_rseq, self.area.0.get(), SIZE, flags, SIGNATURE) == 0 }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.state.replace(State::Refused) == State::Registered {
            AREA.set(std::ptr::null_mut());
            cpu::settle(None);
            self.call(UNREGISTER);
        }
    }
}

/// The calling thread's area; null if it has not registered one.
#[inline(always)]
pub(super) fn registered() -> *mut u8 {
    AREA.get()
}

/// The calling thread's area, registered. Null if that is refused, or the thread is ending.
#[inline]
pub(super) fn area() -> *mut u8 {
    let area = registered();
    if area.is_null() { register() } else { area }
}

#[cold]
fn register() -> *mut u8 {
    OWN.try_with(Registration::area).unwrap_or(std::ptr::null_mut())
}
