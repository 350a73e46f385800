//! Locks that lie in the kernel-compatible headers' per-CPU data: called by kernel/pwlocks.c, and not exported.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use uwork::foreign::{Locks, Place};

use crate::error::{fail, failed, guarded};

/// `struct uw_locks` of kernel/pwlocks.c: where the first CPU's lock is, from one to the next, and how many.
#[repr(C)]
pub struct UwLocks {
    first: *mut c_void,
    stride: usize,
    len: c_uint,
}

impl UwLocks {
    /// # Safety
    /// There are `len` zeroed or used locks, and they stay.
    #[inline(always)]
    unsafe fn get(self) -> Locks {
        let first = NonNull::new(self.first).expect("per-CPU data has an address").cast();
        // SAFETY: by this function's contract.
        unsafe { Locks::new(Place { first, stride: self.stride, len: self.len }) }
    }
}

/// Takes the lock of the CPU that the caller is on, which is the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_lock_here(locks: UwLocks) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    match locks.lock_here() {
        Ok(lock) => locks.cpu_of(lock) as c_int,
        Err(_) => -libc::EDEADLK,
    }
}

/// The same, if it is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_try_here(locks: UwLocks) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    locks.try_here().map_or(-libc::EBUSY, |lock| locks.cpu_of(lock) as c_int)
}

/// Takes the lock of a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_lock(locks: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    match guarded(|| locks.lock_of(cpu)) {
        Ok(taken) => taken.map_or_else(|error| failed(&error), |()| 0),
        Err(code) => code,
    }
}

/// The same, if it is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_try(locks: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    match guarded(|| locks.try_lock_of(cpu)) {
        Ok(Ok(true)) => 0,
        Ok(Ok(false)) => -libc::EBUSY,
        Ok(Err(error)) => failed(&error),
        Err(code) => code,
    }
}

/// Gives up the lock of a CPU, if the caller holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_unlock(locks: UwLocks, cpu: c_uint) -> c_int {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    if cpu >= locks.cpus() || !locks.is_held_on(cpu) {
        return fail(libc::EPERM, format!("the caller does not hold the lock of CPU {cpu}"));
    }
    // SAFETY: just seen.
    unsafe { locks.release(cpu) };
    0
}

/// Whether the caller holds the lock of some CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_locks_is_held(locks: UwLocks) -> bool {
    // SAFETY: by pwlocks.c.
    let locks = unsafe { locks.get() };
    (0..locks.cpus()).any(|cpu| locks.is_held_on(cpu))
}
