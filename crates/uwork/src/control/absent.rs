//! No control socket: the feature `control` is off.

/// Nothing is offered.
pub(crate) fn offer() {}
