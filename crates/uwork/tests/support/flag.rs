//! Flags that end the loops of other threads.
//!
//! A test whose other threads loop until a flag is set must set it also where it panics: the end of a
//! scope, or of a queue, would wait for them, and hide which assertion failed.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
