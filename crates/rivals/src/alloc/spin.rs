//! The least that a lock can be which any CPU can take: one compare-and-swap, and a store.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. It spins, and knows no owner.
#[derive(Default)]
pub struct SpinLock(AtomicU64);

impl SpinLock {
    /// Calls `f` with the lock held.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        while self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            hint::spin_loop();
        }
        let value = f();
        self.0.store(0, Ordering::Release);
        value
    }
}
