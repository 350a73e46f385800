//! The batch that a slot's owner took last, for readers on other threads.

use crate::words::sync::{AtomicU32, AtomicU64, Ordering};

/// No pwq.
const NONE: u32 = u32::MAX;

/// Hints, written by the slot's owner once for each batch. The two parts are not written
/// atomically: a reader may see the pwq of one batch with the time of another. A thread that acts
/// on them checks again under the pwq's lock.
pub(crate) struct BatchHint {
    pwq: AtomicU32,
    began: AtomicU64,
    cpu: AtomicU32,
}

impl BatchHint {
    pub(crate) fn new() -> BatchHint {
        BatchHint { pwq: AtomicU32::new(NONE), began: AtomicU64::new(0), cpu: AtomicU32::new(NONE) }
    }

    /// Owner: a batch of this pwq was taken at this time, on this CPU.
    #[inline]
    pub(crate) fn set(&self, pwq: u32, began: u64, cpu: u32) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.pwq.store(pwq, Ordering::Relaxed);
        self.began.store(began, Ordering::Relaxed);
    }

    /// The CPU on which the batch began; None if the slot was never used.
    pub(crate) fn cpu(&self) -> Option<u32> {
        Some(self.cpu.load(Ordering::Relaxed)).filter(|&cpu| cpu != NONE)
    }

    /// The pwq, and when the batch was taken; None if the slot was never used.
    pub(crate) fn get(&self) -> (Option<u32>, Option<u64>) {
        let pwq = self.pwq.load(Ordering::Relaxed);
        let known = pwq != NONE;
        (known.then_some(pwq), known.then_some(self.began.load(Ordering::Relaxed)))
    }
}
