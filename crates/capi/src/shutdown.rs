//! Freezing and shutdown.

use std::ffi::{c_char, c_int, c_uint};
use std::time::Duration;

use uwork::{Shutdown, freeze};

use crate::error::{Written, fail, failed, give, guard};

/// Begins to freeze the freezable queues.
#[unsafe(no_mangle)]
pub extern "C" fn uw_freeze_begin() -> c_int {
    guard(|| freeze::begin().map_or_else(|error| fail(libc::EALREADY, error.to_string()), |()| 0))
}

/// Whether an item that started before the freeze is still running.
#[unsafe(no_mangle)]
pub extern "C" fn uw_freeze_is_busy() -> c_int {
    guard(|| {
        freeze::is_busy().map_or_else(|error| fail(libc::EINVAL, error.to_string()), c_int::from)
    })
}

/// Thaws the frozen queues.
#[unsafe(no_mangle)]
pub extern "C" fn uw_thaw() -> c_int {
    guard(|| freeze::thaw().map_or_else(|error| fail(libc::EINVAL, error.to_string()), |()| 0))
}

const DRAIN: c_uint = 0;
const CANCEL: c_uint = 1;

/// Shuts all queues down, within a time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_shutdown(
    how: c_uint,
    timeout_ns: u64,
    report: *mut *mut c_char,
) -> c_int {
    guard(|| {
        let how = match how {
            DRAIN => Shutdown::Drain,
            CANCEL => Shutdown::Cancel,
            _ => {
                let text = format!("shutdown {}: UW_DRAIN and UW_CANCEL are allowed", Written(how));
                return fail(libc::EINVAL, text);
            }
        };
        let outcome = match uwork::shutdown(how, Duration::from_nanos(timeout_ns)) {
            Ok(outcome) => outcome,
            Err(error) => return failed(&error),
        };
        // SAFETY: null, or a valid place for the report (uwork.h).
        if let Some(report) = unsafe { report.as_mut() } {
            *report = give(outcome.to_string());
        }
        if outcome.is_complete() { 0 } else { fail(libc::ETIMEDOUT, outcome.to_string()) }
    })
}
