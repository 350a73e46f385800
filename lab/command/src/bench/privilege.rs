//! Dropping privileges.

use std::io;
use std::ptr;

use super::UserError;

/// `nobody`.
const NOBODY: libc::uid_t = 65534;

/// Whether this process is root.
pub(super) fn is_root() -> bool {
    // SAFETY: the call has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Checks the precondition of `--unprivileged`.
pub(super) fn check(wanted: bool) -> Result<(), UserError> {
    if wanted && !is_root() {
        return Err(UserError(
            "--unprivileged: this process is not root; without the option it measures as it is"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Becomes user `nobody`, without groups. Requires root, and must be called while the process has a
/// single thread.
pub(super) fn drop() -> io::Result<()> {
    let check = |result: libc::c_int| {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: no group is read through the pointer.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: the call has no preconditions.
    check(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) })?;
    // Without this, a process that dropped root may not read its own files in /proc. A process that
    // was never root may.
    // SAFETY: PR_SET_DUMPABLE takes a number.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) })
}
