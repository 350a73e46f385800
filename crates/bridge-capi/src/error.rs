//! Errors of the bridge as errno values.

use std::ffi::c_int;

use uwork_bridge::{Error, ErrorKind};
use uwork_capi::error::fail;
use uwork_capi::set_errno;

/// The one table of errno values; `uwork-bridge.h` documents it.
fn errno_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Unreachable => libc::EHOSTUNREACH,
        ErrorKind::Busy => libc::EAGAIN,
        ErrorKind::Denied => libc::EACCES,
        ErrorKind::Refused => libc::EPROTO,
        // The configuration, and kinds that a later version adds.
        _ => libc::EINVAL,
    }
}

/// Converts an error to a negative errno value, and keeps its text for the thread.
pub(crate) fn failed(error: &Error) -> c_int {
    fail(errno_of(error.kind()), error.to_string())
}

/// The object for C, or NULL with `errno`.
pub(crate) fn leaked<T>(made: Result<T, c_int>) -> *mut T {
    match made {
        Ok(object) => Box::into_raw(Box::new(object)),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}
