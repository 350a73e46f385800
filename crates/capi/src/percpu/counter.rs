//! A counter that every CPU adds to.

use std::ffi::c_int;

use uwork::percpu::Counter;

use super::{made, there};
use crate::error::misuse;

/// The counter.
pub struct UwPercpuCounter(Counter);

/// Creates a counter with the value 0.
#[unsafe(no_mangle)]
pub extern "C" fn uw_percpu_counter_create() -> *mut UwPercpuCounter {
    made(|| Ok(UwPercpuCounter(Counter::new())))
}

/// Adds a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_counter_add(counter: *mut UwPercpuCounter, number: i64) {
    // SAFETY: by uwork.h.
    if let Ok(counter) = unsafe { there(counter) } {
        counter.0.add(number);
    }
}

/// The sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_counter_sum(counter: *const UwPercpuCounter) -> i64 {
    // SAFETY: by uwork.h.
    unsafe { there(counter) }.map_or(0, |counter| counter.0.sum())
}

/// Frees the counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_percpu_counter_destroy(counter: *mut UwPercpuCounter) -> c_int {
    if counter.is_null() {
        return misuse(libc::EINVAL, "the handle is NULL");
    }
    // SAFETY: from `uw_percpu_counter_create`, and freed once (uwork.h).
    drop(unsafe { Box::from_raw(counter) });
    0
}
