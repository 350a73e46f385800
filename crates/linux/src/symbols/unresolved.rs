//! No names of functions: the feature `symbols` is off.

/// Always None.
pub fn name(_: usize) -> Option<String> {
    None
}

/// See [`hold`].
pub(crate) struct Held;

/// There is no lock to hold.
pub(crate) fn hold() -> Held {
    Held
}
