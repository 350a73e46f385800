//! A counter that all threads add to, with a part for each CPU.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use uwork_policy::percpu::Mode;

use super::parts::{Held, Lost, Parts};

/// A counter to which the CPUs add without contention, and whose sum is exact.
///
/// It wraps around at the ends of an `i64`.
///
/// ```
/// let requests = uwork::percpu::Counter::new();
/// requests.add(3);
/// requests.add(-1);
/// assert_eq!(requests.sum(), 2);
/// ```
pub struct Counter {
    /// Written by the holder of the lock in modes 0 and 2, by a locked addition of any thread in
    /// mode 1; read by any thread.
    parts: Parts<AtomicI64>,
    /// The additions made while a lock's holder was preempted. The counter's value is the sum of
    /// the parts and this.
    rest: AtomicI64,
}

/// How a child treats a part whose lock another thread held: it keeps the number, which is written
/// atomically.
struct Keep;

impl Lost<AtomicI64> for Keep {
    fn lost(_: &mut Held<'_, AtomicI64>) {}
}

impl Counter {
    /// A counter with value zero.
    pub fn new() -> Counter {
        Counter { parts: Parts::new::<Keep>(|_| AtomicI64::new(0)), rest: AtomicI64::new(0) }
    }

    #[cfg(test)]
    pub(super) fn in_mode(mode: Mode) -> Counter {
        Counter {
            parts: Parts::in_mode::<Keep>(mode, |_| AtomicI64::new(0)),
            rest: AtomicI64::new(0),
        }
    }

    /// Adds a number. Never waits.
    #[inline]
    pub fn add(&self, number: i64) {
        if self.parts.mode() == Mode::Remote {
            let cpu = uwork_linux::current_cpu() % self.parts.len();
            // SAFETY: only ever accessed by shared references.
            let part = unsafe { &*self.parts.value(cpu) };
            // Relaxed: it orders nothing else; a reader that must see an addition is ordered after
            // it by other means.
            part.fetch_add(number, Ordering::Relaxed);
            return;
        }
        match self.parts.try_here() {
            Some(held) => {
                // SAFETY: only ever accessed by shared references.
                let part = unsafe { &*held.value() };
                // This thread has the lock, so no other thread writes it.
                let sum = part.load(Ordering::Relaxed).wrapping_add(number);
                part.store(sum, Ordering::Relaxed);
            }
            None => {
                self.rest.fetch_add(number, Ordering::Relaxed);
            }
        }
    }

    /// The sum. It includes every addition that happened before the call, exactly once, and any
    /// subset of the concurrent ones.
    ///
    /// Reads one word of each CPU, and disturbs none.
    pub fn sum(&self) -> i64 {
        // SAFETY: only ever accessed by shared references.
        let part = |cpu| unsafe { &*self.parts.value(cpu) }.load(Ordering::Relaxed);
        let parts = (0..self.parts.len()).map(part);
        parts.fold(self.rest.load(Ordering::Relaxed), i64::wrapping_add)
    }
}

impl Default for Counter {
    fn default() -> Counter {
        Counter::new()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.sum()).finish()
    }
}
