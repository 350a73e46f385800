//! Slots that helpers keep for the next helper on the same CPU.
//!
//! A thread that helps needs a slot for one run. Without these, two helpers on different CPUs would
//! contend for the lock of the table of slots twice in each run.

use crate::words::sync::{AtomicU32, Line, Ordering};

/// For each CPU, the id of a slot plus one, or 0.
pub(crate) struct SpareSlots(Box<[Line<AtomicU32>]>);

impl SpareSlots {
    /// One place for each CPU; a CPU that is not among these shares one.
    pub(crate) fn new(cpus: usize) -> SpareSlots {
        SpareSlots((0..cpus.max(1)).map(|_| Line(AtomicU32::new(0))).collect())
    }

    fn place(&self, cpu: u32) -> &AtomicU32 {
        &self.0[cpu as usize % self.0.len()].0
    }

    /// Takes the slot kept for this CPU, if any. It belongs to the caller then.
    #[inline]
    pub(crate) fn take(&self, cpu: u32) -> Option<u32> {
        let place = self.place(cpu);
        if place.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire: what the helper did that kept the slot.
        place.swap(0, Ordering::Acquire).checked_sub(1)
    }

    /// Keeps a slot for the next helper on this CPU. False if one is kept already.
    #[inline]
    pub(crate) fn put(&self, cpu: u32, slot: u32) -> bool {
        // Release: partner of `take`.
        self.place(cpu).compare_exchange(0, slot + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// In a child after a fork, where all slots that no frame uses are free.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.0.store(0, Ordering::Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_kept_once_and_taken_once() {
        let spare = SpareSlots::new(8);
        assert_eq!(spare.take(1), None);
        assert!(spare.put(1, 0));
        assert!(!spare.put(1 + 8, 7), "the place is in use");
        assert_eq!(spare.take(0), None);
        assert_eq!((spare.take(1), spare.take(1)), (Some(0), None));
        assert!(spare.put(1, 7));
        spare.forget();
        assert_eq!(spare.take(1), None);
    }
}
