//! A switch for measurements: a worker is woken under its pool's lock, as the kernel did before it
//! deferred the wake. The figures show what the deferral gains. Production builds have neither the
//! feature nor the switch.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Has workers of all engines woken under their pools' locks from now on, or after the unlock again.
pub fn set(on: bool) {
    IS_ON.store(on, Ordering::Relaxed);
}

#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}
