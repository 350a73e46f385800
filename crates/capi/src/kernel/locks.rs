//! The locks in the kernel-compatible headers' per-CPU data. `kernel/src/pwlocks.c` calls these
//! functions; they are not exported.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use uwork::foreign::{Locks, Place};

use super::held;
use crate::error::{caught, fail, failed};
use crate::percpu::lock_here;

/// `struct uw_locks` of `kernel/src/pwlocks.c`, a row of locks: the first CPU's lock, the distance
/// from one lock to the next, and their number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UwLocks {
    first: *mut c_void,
    stride: usize,
    count: c_uint,
}

impl UwLocks {
    fn place(self) -> Place {
        let first = NonNull::new(self.first).expect("per-CPU data has an address").cast();
        Place { first, stride: self.stride, len: self.count }
    }

    /// # Safety
    /// There are `count` locks, zeroed or in use, and they stay.
    #[inline(always)]
    unsafe fn get(self) -> Locks {
        // SAFETY: by this function's contract.
        unsafe { Locks::new(self.place()) }
    }

    /// Lets `take` take one of the locks, and records it for forks. `take` returns an error if it
    /// took none.
    ///
    /// # Safety
    /// As [`UwLocks::get`].
    #[inline(always)]
    unsafe fn take<R>(self, take: impl FnOnce(&Locks) -> Result<R, c_int>) -> Result<R, c_int> {
        // SAFETY: by this function's contract.
        let locks = unsafe { self.get() };
        held::note(&locks, self.place());
        let taken = take(&locks);
        if taken.is_err() {
            held::strike(&locks, self.place());
        }
        taken
    }
}

fn code(taken: Result<c_int, c_int>) -> c_int {
    taken.unwrap_or_else(|code| code)
}

/// Takes the lock of the caller's CPU. Returns the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_lock_here(locks: UwLocks) -> c_int {
    // SAFETY: by pwlocks.c.
    code(unsafe {
        locks.take(|locks| match lock_here(locks) {
            Ok(lock) => Ok(locks.cpu_of(lock) as c_int),
            Err(_) => Err(-libc::EDEADLK),
        })
    })
}

/// The same, unless the lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_try_here(locks: UwLocks) -> c_int {
    // SAFETY: by pwlocks.c.
    code(unsafe {
        locks.take(|locks| {
            locks.try_here().map(|lock| locks.cpu_of(lock) as c_int).ok_or(-libc::EBUSY)
        })
    })
}

/// Takes the lock of a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_lock(locks: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    code(unsafe {
        locks.take(|locks| {
            let taken = caught(|| locks.lock_of(cpu))?;
            taken.map_or_else(|error| Err(failed(&error)), |()| Ok(0))
        })
    })
}

/// The same, unless the lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_try(locks: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    code(unsafe {
        locks.take(|locks| match caught(|| locks.try_lock_of(cpu))? {
            Ok(true) => Ok(0),
            Ok(false) => Err(-libc::EBUSY),
            Err(error) => Err(failed(&error)),
        })
    })
}

/// Releases the lock of a CPU, if the caller holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_unlock(row: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { row.get() };
    if cpu >= locks.cpus() || !locks.is_held_on(cpu) {
        return fail(libc::EPERM, format!("the caller does not hold the lock of CPU {cpu}"));
    }
    // SAFETY: the check above has found that the caller holds it.
    unsafe { locks.release(cpu) };
    held::strike(&locks, row.place());
    0
}

/// Whether the caller holds the lock of any CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_is_held(locks: UwLocks) -> bool {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    locks.is_any_held()
}
