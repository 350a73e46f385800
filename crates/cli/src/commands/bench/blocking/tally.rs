//! Waiting for items, with a look at something now and then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);

/// Items that are not done yet.
pub(super) struct Tally {
    left: AtomicUsize,
    waiter: Thread,
}

impl Tally {
    /// The calling thread is the one that waits. It lasts until the process ends.
    pub(super) fn new() -> &'static Self {
        Box::leak(Box::new(Self { left: AtomicUsize::new(0), waiter: thread::current() }))
    }

    /// So many will be done. Before they are submitted.
    pub(super) fn expect(&self, items: usize) {
        self.left.fetch_add(items, Ordering::Relaxed);
    }

    /// An item is done.
    pub(super) fn done(&self) {
        // Release: what the item did is seen by the waiter. Acquire is for the last one, which passes on
        // what the others did.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    /// Until all are done; `look` is called every few milliseconds and at the end.
    pub(super) fn wait(&self, mut look: impl FnMut()) {
        while self.left.load(Ordering::Acquire) > 0 {
            thread::park_timeout(GLANCE);
            look();
        }
    }
}
