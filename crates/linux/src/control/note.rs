//! The reason for which a process has no socket, where a client finds it: as the name of a file in
//! memory, which the links in `/proc/PID/fd` show to the process's user and to root.

use std::ffi::CString;

use crate::descriptor::{Expected, OwnDescriptor};

/// The start of the name.
pub const PREFIX: &str = "uwork: ";
/// The longest name of memfd_create(2), in bytes.
const NAME_MAX: usize = 249;

/// Shows the reason until the value is dropped. `None` if the system gives no file.
pub(super) fn show(reason: &str) -> Option<OwnDescriptor> {
    let mut name = format!("{PREFIX}{reason}").replace(char::is_control, "?");
    while name.len() > NAME_MAX {
        name.pop();
    }
    let name = CString::new(name).ok()?;
    // SAFETY: the name is live.
    let open = || unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    OwnDescriptor::open(Expected::Memory, open).ok()
}
