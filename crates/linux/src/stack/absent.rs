//! No stacks of other threads: the feature `symbols` is off, or this processor is not supported.

use uwork_engine::host::{Frame, NoStack};

/// Always `Unavailable`.
pub(crate) fn of_threads(threads: &[u64], _: bool) -> Vec<Result<Vec<Frame>, NoStack>> {
    threads.iter().map(|_| Err(NoStack::Unavailable)).collect()
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
