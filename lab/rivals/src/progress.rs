//! The body of every item: count, and wake the producer when the batch is complete. It is the same
//! for every pool.

use std::ops::Deref;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Mutex, PoisonError};

use crate::futex;

/// How many items of one producer have run.
///
/// A `Progress` is never freed: it is leased, and returns to a shelf. So an item may hold a plain
/// `&'static` to it. The item may still access `waiting` after the producer has continued, which
/// causes at most one early wake-up.
#[derive(Default)]
#[repr(align(128))]
pub struct Progress {
    done: AtomicU32,
    /// The count at which the producer's batch is complete. The producer writes it before it
    /// submits the batch.
    target: AtomicU32,
    /// 1 while the producer sleeps or is about to sleep; the futex word.
    waiting: AtomicU32,
}

impl Progress {
    /// Counts one run; the last run of a batch wakes the producer. This is the whole body of every
    /// item.
    #[inline]
    pub fn complete(&'static self) {
        let target = self.target.load(Relaxed);
        // SeqCst, partner of the store and load in `wait`: either `wait` sees this count, or this
        // thread sees `waiting`. Otherwise the producer could sleep forever.
        if self.done.fetch_add(1, SeqCst) + 1 == target && self.waiting.swap(0, SeqCst) == 1 {
            futex::wake(&self.waiting, 1);
        }
    }

    /// How many items have run since the lease.
    pub fn done(&self) -> u32 {
        self.done.load(Acquire)
    }

    /// Sleeps until the current batch is complete.
    pub fn wait(&self) {
        let target = self.target.load(Relaxed);
        while self.done() < target {
            // Set again in every iteration, because the last item of an earlier batch may clear it
            // late.
            self.waiting.store(1, SeqCst);
            if self.done.load(SeqCst) < target {
                futex::wait(&self.waiting, 1);
            }
        }
        self.waiting.store(0, Relaxed);
    }

    /// Sets the count at which the next batch is complete.
    pub(crate) fn expect(&self, target: u32) {
        self.target.store(target, Relaxed);
    }
}

/// The exclusive use of one `Progress`. It returns to the shelf on drop, which must follow the end
/// of the pool.
pub(crate) struct Lease(&'static Progress);

static SHELF: Mutex<Vec<&'static Progress>> = Mutex::new(Vec::new());

impl Lease {
    pub(crate) fn new() -> Self {
        let shelved = SHELF.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let progress: &'static Progress = shelved.unwrap_or_else(|| Box::leak(Box::default()));
        progress.done.store(0, SeqCst);
        progress.target.store(0, SeqCst);
        progress.waiting.store(0, SeqCst);
        Self(progress)
    }

    pub(crate) fn progress(&self) -> &'static Progress {
        self.0
    }
}

impl Deref for Lease {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        SHELF.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}
