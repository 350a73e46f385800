//! No names of functions: the feature `symbols` is off.

/// Not known.
pub(crate) fn name(_: usize) -> Option<String> {
    None
}

/// See [`hold`].
pub(crate) struct Held;

/// There is nothing to be held.
pub(crate) fn hold() -> Held {
    Held
}
