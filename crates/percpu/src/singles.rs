//! Buffers of one item each, for items that go to a sink by themselves: so that an `add` that finds
//! its CPU's lock taken does not allocate. One for each CPU; if more threads need one at the same
//! time, the rest allocate.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub(super) struct Singles<T>(Box<[Single<T>]>);

struct Single<T> {
    is_taken: AtomicBool,
    /// Empty, with room for an item, while it is free. Guard: `is_taken`.
    buffer: UnsafeCell<ManuallyDrop<Vec<T>>>,
}

// SAFETY: only the thread that took a buffer accesses it.
unsafe impl<T: Send> Sync for Singles<T> {}

impl<T> Singles<T> {
    pub(super) fn new(count: u32) -> Singles<T> {
        let single = |_| Single {
            is_taken: AtomicBool::new(false),
            buffer: UnsafeCell::new(ManuallyDrop::new(Vec::with_capacity(1))),
        };
        Singles((0..count).map(single).collect())
    }

    /// Calls `f` with a buffer that has this item, and drops what `f` leaves in it. Takes the first
    /// free buffer from that of `cpu` on, so that callers on different CPUs do not contend.
    pub(super) fn with(&self, cpu: u32, item: T, f: impl FnOnce(&mut Vec<T>)) {
        match self.take(cpu) {
            Some(mut buffer) => {
                buffer.push(item);
                f(&mut buffer);
            }
            None => f(&mut vec![item]),
        }
    }

    fn take(&self, cpu: u32) -> Option<Taken<'_, T>> {
        let (before, from) = self.0.split_at(cpu as usize % self.0.len().max(1));
        // Acquire: pairs with the release by the buffer's previous user.
        let mut all = from.iter().chain(before);
        all.find(|single| !single.is_taken.swap(true, Ordering::Acquire)).map(Taken)
    }
}

impl<T> Drop for Singles<T> {
    fn drop(&mut self) {
        for single in &mut self.0 {
            // Only in a child of a fork can a buffer still be taken, by a thread that does not
            // exist there: its item belongs to the parent.
            if !*single.is_taken.get_mut() {
                // SAFETY: no thread can access it any more.
                unsafe { ManuallyDrop::drop(single.buffer.get_mut()) };
            }
        }
    }
}

/// A taken buffer, until it is dropped, also if the sink unwinds.
struct Taken<'a, T>(&'a Single<T>);

impl<T> Deref for Taken<'_, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        // SAFETY: taken by this value.
        unsafe { &*self.0.buffer.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        // SAFETY: taken by this value, and `self` is not shared.
        unsafe { &mut *self.0.buffer.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.clear();
        // Release: pairs with the acquire by the next user.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_buffer_holds_one_item_at_a_time_and_is_returned_empty() {
        let singles = Singles::new(2);
        let item = Arc::new(());
        for _ in 0..3 {
            // Nested once more than there are buffers: the innermost call allocates its own.
            singles.with(1, item.clone(), |outer| {
                singles.with(1, item.clone(), |inner| {
                    singles.with(1, item.clone(), |own| assert_eq!(own.len(), 1));
                    inner.drain(..);
                    assert_eq!(Arc::strong_count(&item), 2);
                });
                assert_eq!((outer.len(), outer.capacity()), (1, 1));
            });
            assert_eq!(Arc::strong_count(&item), 1, "what is left is dropped");
        }
        assert!(singles.0.iter().all(|single| !single.is_taken.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_sink_that_panics_gives_the_buffer_back() {
        let singles = Singles::new(1);
        let item = Arc::new(());
        let panics = || singles.with(0, item.clone(), |_| panic!("on purpose"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(Arc::strong_count(&item), 1);
        assert!(singles.take(7).is_some());
    }

    #[test]
    fn a_buffer_taken_by_a_missing_thread_is_left_alone() {
        let singles = Singles::new(1);
        let item = Arc::new(());
        let mut lost = ManuallyDrop::new(singles.take(0).expect("free"));
        lost.push(item.clone());
        drop(singles);
        assert_eq!(Arc::strong_count(&item), 2);
    }
}
