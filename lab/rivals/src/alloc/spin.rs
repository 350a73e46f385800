//! The cheapest possible lock that any CPU can take: one compare-and-swap to acquire it, and one
//! store to release it.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. It spins, and records no owner.
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
