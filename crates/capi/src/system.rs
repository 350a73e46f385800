//! The system queues.

use std::ffi::{c_int, c_uint};

use uwork::{Queue, system};

use crate::error::{Written, fail, guarded};
use crate::queue::{SYSTEM, UwQueue, set_errno};

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

/// The tokens of the system queues. uwork.h and the kernel headers have the same values.
static TOKENS: [u64; QUEUES.len()] = {
    let mut tokens = [SYSTEM; QUEUES.len()];
    let mut number = 0;
    while number < tokens.len() {
        tokens[number] |= number as u64;
        number += 1;
    }
    tokens
};

/// A system queue. The first use creates it.
pub(crate) fn queue_of(number: usize) -> Result<&'static Queue, c_int> {
    let Some(queue) = QUEUES.get(number) else {
        let given = Written(number as c_uint);
        return Err(fail(libc::EINVAL, format!("{given} is not a system queue; see uwork.h")));
    };
    // A panic here means that no thread could be created.
    guarded(queue).map_err(|_| -libc::EAGAIN)
}

/// The token of a system queue. The first use creates the queue.
#[unsafe(no_mangle)]
pub extern "C" fn uw_system_queue(which: c_uint) -> *mut UwQueue {
    match queue_of(which as usize) {
        Ok(_) => std::ptr::from_ref(&TOKENS[which as usize]).cast_mut().cast(),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}
