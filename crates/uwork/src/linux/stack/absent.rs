//! No stacks of other threads: the feature `symbols` is off, or this processor's registers are not known.

use uwork_engine::host::Frame;

/// Not known.
pub(crate) fn of_thread(_: u64) -> Option<Vec<Frame>> {
    None
}

/// Nothing to forget.
pub(super) fn forget() {}
