//! No stacks of other threads: the feature `symbols` is off, or this processor is not supported.

use uwork_engine::host::{Frame, NoStack};

/// Always `Unavailable`.
pub(crate) fn of_thread(_: u64) -> Result<Vec<Frame>, NoStack> {
    Err(NoStack::Unavailable)
}

/// Always `Unavailable`.
pub(crate) fn addresses_of_thread(_: u64) -> Result<Vec<Frame>, NoStack> {
    Err(NoStack::Unavailable)
}

/// No signal is used.
pub(super) fn signal() -> Option<libc::c_int> {
    None
}

/// As [`signal`].
pub(super) fn taken() -> Option<libc::c_int> {
    None
}

/// Nothing to forget.
pub(super) fn forget() {}
