//! A block of memory for each CPU, each with its own lock.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use uwork::foreign::{CpuLock, Locks, Place, Recursion, Registration, give_up, must_return};

use super::{lock_here, made, nothing, there};
use crate::attrs::cpu_of;
use crate::cpu::given;
use crate::error::{caught, fail, failed, guard, guarded, misuse};

/// The blocks. Each lies behind its lock.
pub struct UwPercpu {
    /// Tells forks about the locks. `None` only while the value is dropped.
    registration: Option<Registration>,
    locks: Locks,
    memory: NonNull<u8>,
    layout: Layout,
    /// The distance from one CPU's lock to the next CPU's.
    stride: usize,
}

// SAFETY: only the holders of its locks access the memory.
unsafe impl Sync for UwPercpu {}

/// The function that is called with a block.
pub type UwPercpuFn = Option<unsafe extern "C-unwind" fn(c_int, *mut c_void, *mut c_void)>;

/// The distance from a lock to its block: aligned like `malloc`, and on the same cache line.
const BLOCK: usize = 16;
/// Two cache lines, because processors fetch lines in pairs.
const STRIDE_UNIT: usize = 128;

impl UwPercpu {
    fn new(size: usize) -> Result<UwPercpu, c_int> {
        let too_large = || fail(libc::ENOMEM, format!("no memory for {size} bytes for each CPU"));
        let len = Locks::count();
        let stride =
            size.checked_add(BLOCK).and_then(|size| size.checked_next_multiple_of(STRIDE_UNIT));
        let whole =
            stride.and_then(|stride| stride.checked_mul(len as usize)).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(whole, STRIDE_UNIT).map_err(|_| too_large())?;
        // Not from the reserve, which is for calls that cannot fail.
        // SAFETY: the size is not 0: at least one CPU exists, with room for its lock.
        let memory = NonNull::new(unsafe { System.alloc_zeroed(layout) }).ok_or_else(too_large)?;
        let stride = whole / len as usize;
        let place = Place { first: memory.cast(), stride, len };
        // SAFETY: zero bytes are unlocked locks. They stay until `drop`.
        let locks = unsafe { Locks::new(place) };
        // SAFETY: as above. Releasing the lock is all that a child can do for data of unknown
        // content.
        let registration = Some(unsafe { Registration::locks(place, give_up) });
        Ok(UwPercpu { registration, locks, memory, layout, stride })
    }

    fn block_of(&self, cpu: u32) -> *mut c_void {
        // SAFETY: the CPU exists: its lock was taken.
        unsafe { block(self.memory.byte_add(self.stride * cpu as usize).cast()) }
    }

    /// The lock of a block; `None` if the pointer is not a block of these.
    #[inline(always)]
    fn lock_of(&self, block: *mut c_void) -> Option<NonNull<CpuLock>> {
        let offset = block.addr().wrapping_sub(self.memory.addr().get() + BLOCK);
        // Blocks of one unit are the usual case; they need no division.
        let is_one = offset < self.layout.size()
            && offset.is_multiple_of(STRIDE_UNIT)
            && (self.stride == STRIDE_UNIT || offset.is_multiple_of(self.stride));
        // SAFETY: the lock is before its block, in the same memory.
        is_one.then(|| unsafe { NonNull::new_unchecked(block.byte_sub(BLOCK).cast()) })
    }
}

impl Drop for UwPercpu {
    fn drop(&mut self) {
        self.registration = None;
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { System.dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// # Safety
/// The lock is one of a [`UwPercpu`].
#[inline(always)]
unsafe fn block(lock: NonNull<CpuLock>) -> *mut c_void {
    // SAFETY: the block lies behind its lock, in the same memory.
    unsafe { lock.byte_add(BLOCK).as_ptr().cast() }
}

#[cold]
#[inline(never)]
fn recursion<T>() -> *mut T {
    nothing(fail(
        libc::EDEADLK,
        "the caller already holds the lock of this CPU's block, or of another CPU's",
    ))
}

#[cold]
#[inline(never)]
fn busy<T>() -> *mut T {
    nothing(fail(libc::EBUSY, "the lock of this CPU's block is held"))
}

/// Creates blocks of zero bytes.
#[unsafe(no_mangle)]
pub extern "C" fn uw_percpu_create(size: usize) -> *mut UwPercpu {
    made(|| {
        if size == 0 {
            return Err(fail(libc::EINVAL, "a block has at least 1 byte"));
        }
        UwPercpu::new(size)
    })
}

/// Frees the blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_destroy(percpu: *mut UwPercpu) -> c_int {
    // SAFETY: by uwork.h.
    let locks = match unsafe { there(percpu) } {
        Ok(known) => &known.locks,
        Err(code) => return code,
    };
    if let Some(cpu) = (0..locks.cpus()).find(|&cpu| locks.is_held_on(cpu)) {
        return fail(libc::EDEADLK, format!("the caller holds the lock of CPU {cpu}'s block"));
    }
    // SAFETY: from `uw_percpu_create`, and freed once (uwork.h).
    drop(unsafe { Box::from_raw(percpu) });
    0
}

/// The number of CPUs that have a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cpus(percpu: *const UwPercpu) -> c_int {
    // SAFETY: by uwork.h.
    unsafe { there(percpu) }.map_or_else(|code| code, |percpu| percpu.locks.cpus() as c_int)
}

/// Locks the block of the caller's CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_lock_local(percpu: *mut UwPercpu) -> *mut c_void {
    // SAFETY: by uwork.h.
    match unsafe { there(percpu) }.map(|percpu| lock_here(&percpu.locks)) {
        // SAFETY: the lock is one of these.
        Ok(Ok(lock)) => unsafe { block(lock) },
        Ok(Err(Recursion)) => recursion(),
        Err(code) => nothing(code),
    }
}

/// The same, unless the lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_trylock_local(percpu: *mut UwPercpu) -> *mut c_void {
    // SAFETY: by uwork.h.
    match unsafe { there(percpu) }.map(|percpu| percpu.locks.try_here()) {
        // SAFETY: the lock is one of these.
        Ok(Some(lock)) => unsafe { block(lock) },
        Ok(None) => busy(),
        Err(code) => nothing(code),
    }
}

/// Locks the block of a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_lock(percpu: *mut UwPercpu, cpu: c_int) -> *mut c_void {
    let locked = || {
        // SAFETY: by uwork.h.
        let (percpu, cpu) = (unsafe { there(percpu) }?, cpu_of(cpu)?);
        let taken = caught(|| percpu.locks.lock_of(cpu))?;
        taken.map_err(|error| failed(&error)).map(|()| percpu.block_of(cpu))
    };
    locked().unwrap_or_else(nothing)
}

/// The same, unless the lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_trylock(percpu: *mut UwPercpu, cpu: c_int) -> *mut c_void {
    let locked = || {
        // SAFETY: by uwork.h.
        let (percpu, cpu) = (unsafe { there(percpu) }?, cpu_of(cpu)?);
        let taken = caught(|| percpu.locks.try_lock_of(cpu))?.map_err(|error| failed(&error))?;
        Ok(if taken { percpu.block_of(cpu) } else { busy() })
    };
    locked().unwrap_or_else(nothing)
}

/// Unlocks a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_unlock(percpu: *mut UwPercpu, block: *mut c_void) -> c_int {
    // SAFETY: by uwork.h.
    let percpu = match unsafe { there(percpu) } {
        Ok(percpu) => percpu,
        Err(code) => return code,
    };
    match percpu.lock_of(block) {
        // SAFETY: the lock is one of these (uwork.h).
        Some(lock) if unsafe { percpu.locks.release_own(lock) } => 0,
        Some(_) => misuse(libc::EPERM, "the caller does not hold the lock of this block"),
        None => misuse(libc::EINVAL, "this is not one of these blocks"),
    }
}

/// The CPU that a block belongs to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_cpu_of(percpu: *const UwPercpu, block: *const c_void) -> c_int {
    // SAFETY: by uwork.h.
    match unsafe { there(percpu) }.map(|percpu| (percpu, percpu.lock_of(block.cast_mut()))) {
        Ok((percpu, Some(lock))) => percpu.locks.cpu_of(lock) as c_int,
        Ok((_, None)) => misuse(libc::EINVAL, "this is not one of these blocks"),
        Err(code) => code,
    }
}

/// A function of the program, with its argument.
struct Call {
    func: unsafe extern "C-unwind" fn(c_int, *mut c_void, *mut c_void),
    arg: *mut c_void,
}

// SAFETY: by uwork.h the function runs on other threads, with that argument.
unsafe impl Sync for Call {}

impl Call {
    /// Calls the function, then releases the lock.
    ///
    /// # Safety
    /// The caller holds the lock of `cpu`.
    unsafe fn call(&self, percpu: &UwPercpu, cpu: u32) {
        /// Releases the lock also if the function unwinds, because other threads wait for it.
        struct Release<'a>(&'a Locks, u32);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                // SAFETY: by the contract of `call`.
                unsafe { self.0.release(self.1) };
            }
        }
        let _release = Release(&percpu.locks, cpu);
        // SAFETY: by uwork.h.
        must_return(|| unsafe { (self.func)(cpu as c_int, percpu.block_of(cpu), self.arg) });
    }
}

/// Calls a function with the block of a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_with(
    percpu: *mut UwPercpu,
    cpu: c_int,
    func: UwPercpuFn,
    arg: *mut c_void,
) -> c_int {
    let visited = || {
        // SAFETY: by uwork.h.
        let percpu = unsafe { there(percpu) }?;
        let (cpu, call) = (cpu_of(cpu)?, &Call { func: given(func)?, arg });
        // SAFETY: `visit` calls it with the lock held.
        let visit = || percpu.locks.visit(cpu, || unsafe { call.call(percpu, cpu) });
        guarded(visit)?.map_err(|error| failed(&error))
    };
    visited().map_or_else(|code| code, |()| 0)
}

/// Calls a function with each CPU's block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_for_each(
    percpu: *mut UwPercpu,
    func: UwPercpuFn,
    arg: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: by uwork.h.
        let (percpu, func) =
            match unsafe { there(percpu) }.and_then(|percpu| Ok((percpu, given(func)?))) {
                Ok(both) => both,
                Err(code) => return code,
            };
        let call = &Call { func, arg };
        // SAFETY: `visit_all` calls it with the lock held.
        crate::error::done(
            percpu.locks.visit_all(0..percpu.locks.cpus(), |cpu| unsafe { call.call(percpu, cpu) }),
        )
    })
}
