//! Work for one CPU's data.

use std::ffi::c_int;
use std::ptr::NonNull;

use uwork::Flags;
use uwork::foreign::{is_disabled, must_return, percpu_call, percpu_flush};
use uwork::percpu::{Mode, is_cpu_remote, mode};

use crate::error::{fail, guard, misuse};
use crate::item::{Kind, UwWork, UwWorkFn, func, item, with_item};
use crate::queue::{UwQueue, with_queue};
use crate::work::{init, uw_queue_work_on, uw_work_flush};

/// `struct uw_percpu_work`.
#[repr(C)]
pub struct UwPercpuWork {
    work: UwWork,
    cpu: c_int,
}

const _: () = assert!(size_of::<UwPercpuWork>() == 48 && align_of::<UwPercpuWork>() == 8);

/// Initialises an idle item for the data of a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_work_init(work: *mut UwPercpuWork, func: UwWorkFn, cpu: c_int) {
    // SAFETY: null, or memory for such an item (uwork.h).
    unsafe {
        init(work.cast(), func, Kind::Plain, 0);
        if !work.is_null() {
            (&raw mut (*work).cpu).write(cpu);
        }
    }
}

/// Has the item's function called for the data of its CPU: on that CPU (mode 0), or by the caller
/// (modes 1 and 2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_queue_on(
    handle: *mut UwQueue,
    cpu: c_int,
    work: *mut UwPercpuWork,
) -> c_int {
    // SAFETY: null, or an item (uwork.h).
    if let Err(code) = unsafe { item(work.cast(), Kind::Plain) } {
        return code;
    }
    // SAFETY: `item` has found that it is not null.
    let own = unsafe { (*work).cpu };
    if cpu != own {
        return fail(libc::EINVAL, format!("the item is for CPU {own}, not for CPU {cpu}"));
    }
    guard(|| {
        if mode() == Mode::Local {
            // An invalid handle passes this test; the call below reports it.
            if with_queue(handle, |queue| queue.flags().contains(Flags::PERCPU).into()) == 0 {
                let text = "per-CPU work needs a queue with UW_PERCPU or UW_BH in mode 0; \
                            other queues may run it on another CPU";
                return fail(libc::EINVAL, text);
            }
            // SAFETY: by uwork.h.
            return unsafe { uw_queue_work_on(handle, cpu, work.cast()) };
        }
        // Reports the same errors in all modes, as far as they can be detected here.
        with_queue(handle, |_| {
            let Ok(true) = u32::try_from(cpu).map(|cpu| cpu < uwork::foreign::Locks::count())
            else {
                return fail(libc::EINVAL, format!("CPU {cpu} does not exist"));
            };
            let Some(known) = NonNull::new(work.cast()) else {
                return misuse(libc::EINVAL, "the item is NULL");
            };
            let disabled = with_item!(work.cast(), |found| is_disabled(found.work).into());
            if disabled != 0 {
                return if disabled < 0 {
                    disabled
                } else {
                    fail(libc::EPERM, "the item is disabled")
                };
            }
            // SAFETY: an initialised item, whose function belongs to it (uwork.h).
            let Some(function) = (unsafe { func(known).read() }) else {
                return misuse(libc::EINVAL, "an item's function is NULL");
            };
            // The function may free the item. So a flush identifies the call by the item's address
            // only.
            // SAFETY: as above.
            percpu_call(own as u32, known.addr().get(), || {
                // SAFETY: the function belongs to this item (uwork.h).
                must_return(|| unsafe { function(known.as_ptr()) })
            });
            1
        })
    })
}

/// Waits until the item's function has returned for every call of `uw_percpu_queue_on` that began
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_flush(work: *mut UwPercpuWork) -> c_int {
    if mode() == Mode::Local {
        // SAFETY: by uwork.h.
        return unsafe { uw_work_flush(work.cast()) };
    }
    // SAFETY: null, or an item (uwork.h).
    if let Err(code) = unsafe { item(work.cast(), Kind::Plain) } {
        return code;
    }
    // SAFETY: `item` has found that it is not null.
    let cpu = unsafe { (*work).cpu };
    guard(|| c_int::from(percpu_flush(cpu as u32, work.addr())))
}

/// Whether a function for a CPU's data, called by this thread now, would run on another CPU.
#[unsafe(no_mangle)]
pub extern "C" fn uw_percpu_is_remote(cpu: c_int) -> bool {
    u32::try_from(cpu).is_ok_and(is_cpu_remote)
}
