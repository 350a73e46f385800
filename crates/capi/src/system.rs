//! The system queues.

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use uwork::{Queue, system};

use crate::error::{fail, guarded};
use crate::queue::{UwQueue, set_errno};

/// `enum uw_system_queue`.
const QUEUES: [fn() -> &'static Queue; 10] = [
    system::percpu,
    system::highpri,
    system::long,
    system::dfl,
    system::dfl_long,
    system::freezable,
    system::power_efficient,
    system::freezable_power_efficient,
    system::bh,
    system::bh_highpri,
];

/// A handle that all threads may have.
struct Shared(*const UwQueue);

// SAFETY: handles of queues are `Sync`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A system queue; made at first use.
#[unsafe(no_mangle)]
pub extern "C" fn uw_system_queue(which: c_uint) -> *mut UwQueue {
    static HANDLES: [OnceLock<Shared>; QUEUES.len()] = [const { OnceLock::new() }; QUEUES.len()];
    let Some(handle) = HANDLES.get(which as usize) else {
        return none(fail(libc::EINVAL, format!("{which} is no system queue; see uwork.h")));
    };
    if let Some(shared) = handle.get() {
        return shared.0.cast_mut();
    }
    // A panic says that there is no thread.
    match guarded(QUEUES[which as usize]) {
        Ok(queue) => {
            handle.get_or_init(|| Shared(UwQueue::adopt(queue.clone(), true))).0.cast_mut()
        }
        Err(_) => none(-libc::EAGAIN),
    }
}

fn none(code: c_int) -> *mut UwQueue {
    set_errno(-code);
    std::ptr::null_mut()
}
