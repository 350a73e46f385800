//! No control socket: the feature `control` is off, or this processor is not supported.

use std::time::Duration;

use crate::Event;

/// Nothing is offered.
pub(crate) fn watcher_begins(_: *const Event) {}

/// Nothing to do.
pub(crate) fn attend() {}

/// As [`Event::wait`].
#[inline]
pub(crate) fn park(event: &Event, timeout: Option<Duration>) -> bool {
    event.wait(timeout)
}

/// See [`hold`].
pub(crate) struct Held;

impl Drop for Held {
    fn drop(&mut self) {}
}

/// There is no client.
pub(crate) fn hold() -> Held {
    Held
}

/// Nothing was open.
pub(crate) fn renew() {}

/// Nothing to close.
pub(crate) fn child() {}
