//! What an item does when it runs: count, and wake its producer when the batch is complete. The
//! same for every pool.

use std::ops::Deref;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Mutex, PoisonError};

use crate::futex;

/// How many items of one producer have run.
///
/// A `Progress` is never freed (it is leased, and goes back to a shelf), so an item may hold a plain
/// `&'static` to it: its last look at `waiting` may come after the producer has gone on, and then
/// costs at most one early wake-up.
#[derive(Default)]
#[repr(align(128))]
pub struct Progress {
    done: AtomicU32,
    /// The count at which the producer's batch is complete. Written by the producer before it
    /// submits the batch.
    target: AtomicU32,
    /// 1 while the producer sleeps or is about to; the futex word.
    waiting: AtomicU32,
}

impl Progress {
    /// Counts one run; the last of a batch wakes the producer. This is the whole body of every
    /// item.
    #[inline]
    pub fn complete(&'static self) {
        let target = self.target.load(Relaxed);
        // SeqCst, partner of the store and load in `wait`: either this count is seen there, or
        // `waiting` is seen here.
        if self.done.fetch_add(1, SeqCst) + 1 == target && self.waiting.swap(0, SeqCst) == 1 {
            futex::wake(&self.waiting, 1);
        }
    }

    /// How many items have run since the lease.
    pub fn done(&self) -> u32 {
        self.done.load(Acquire)
    }

    /// Sleeps until the batch under way is complete.
    pub fn wait(&self) {
        let target = self.target.load(Relaxed);
        while self.done() < target {
            // Set again on every turn: the last item of an earlier batch may clear it late.
            self.waiting.store(1, SeqCst);
            if self.done.load(SeqCst) < target {
                futex::wait(&self.waiting, 1);
            }
        }
        self.waiting.store(0, Relaxed);
    }

    /// Says at which count the batch that is about to be submitted is complete.
    pub(crate) fn expect(&self, target: u32) {
        self.target.store(target, Relaxed);
    }
}

/// The right to use one `Progress`; goes back to the shelf when dropped, which must be after the
/// pool is gone.
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
