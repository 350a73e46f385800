//! No names of functions: the feature `symbols` is off.

/// No thread.
#[derive(Default)]
pub(super) struct Apart;

impl Apart {
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
