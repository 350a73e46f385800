//! No stacks of other threads: the feature `symbols` is off, or this processor's registers are not known.

use uwork_engine::host::{Frame, NoStack};

/// Not known.
pub(crate) fn of_thread(_: u64) -> Result<Vec<Frame>, NoStack> {
    Err(NoStack::Unavailable)
}

/// Stacks need no signal where there are none.
pub(super) fn signal() -> Option<libc::c_int> {
    None
}

/// Nothing to forget.
pub(super) fn forget() {}
