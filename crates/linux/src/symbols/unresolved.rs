//! No names of functions: the feature `symbols` is off.

/// No thread.
pub(super) struct Apart;

impl Apart {
    pub(super) fn new() -> Apart {
        Apart
    }

    /// Always None.
    pub(super) fn name(&mut self, _: usize) -> Option<String> {
        None
    }
}

/// See [`hold`].
pub(crate) struct Held;

/// There is no lock to hold.
pub(crate) fn hold() -> Held {
    Held
}
