//! Waits for items, with a periodic check of something else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval between two checks.
const GLANCE: Duration = Duration::from_millis(5);

/// The number of unfinished items.
pub(super) struct Tally {
    left: AtomicUsize,
    waiter: Thread,
}

impl Tally {
    /// Created by the thread that waits. Lives until the process ends.
    pub(super) fn new() -> &'static Self {
        Box::leak(Box::new(Self { left: AtomicUsize::new(0), waiter: thread::current() }))
    }

    /// Adds items to wait for. Must precede their submission.
    pub(super) fn expect(&self, items: usize) {
        self.left.fetch_add(items, Ordering::Relaxed);
    }

    /// Marks an item as finished.
    pub(super) fn done(&self) {
        // Release: the waiter sees the effects of the item. Acquire: the last item passes on the
        // effects of the others.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    /// Waits until all items are finished. Calls `look` every few milliseconds and at the end.
    pub(super) fn wait(&self, mut look: impl FnMut()) {
        while self.left.load(Ordering::Acquire) > 0 {
            thread::park_timeout(GLANCE);
            look();
        }
    }
}
