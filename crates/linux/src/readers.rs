//! The read sides of `uwork::rcu` that each thread holds, and those that a forked child inherits.
//!
//! The child has new grace periods (`uwork::rcu`), whose readers are the guards made in the child.
//! But the guards of the thread that forked exist there too. The code that holds them still reads
//! the data that they protect, so they delay the child's grace periods like the child's own guards:
//! they are counted, and none of its grace periods ends before the count is 0. Guards of other
//! threads are not counted, since those threads do not exist in the child.
//!
//! - The count is that of the forking thread, at the fork. The handler stores it while that thread
//!   is the only one. From then on it only falls: a guard made later belongs to the child.
//! - A guard knows the fork count at its creation, so its end knows whether it was inherited. A
//!   guard of the grandparent, held over two forks by one thread, is counted anew in the second.
//! - The last decrement releases, and [`is_inherited`] acquires: an item that a grace period has
//!   delayed sees what happened under the inherited guards.
//!
//! A thread's count has no destructor, so it is valid until the thread has ended, in the destructors
//! of other thread-local data too.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::forks;

thread_local! {
    /// The read sides that the calling thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Those of the read sides held by the forking thread at the fork that have not ended in this
/// process.
static INHERITED: AtomicU32 = AtomicU32::new(0);

/// Counts a read side of the calling thread while it lives. It stays on its thread.
#[derive(Debug)]
pub struct Counted {
    forks: u32,
    on_its_thread: PhantomData<*mut ()>,
}

impl Counted {
    /// Counts one more.
    #[inline]
    #[must_use]
    pub fn begin() -> Counted {
        HELD.set(HELD.get() + 1);
        Counted { forks: forks(), on_its_thread: PhantomData }
    }
}

impl Drop for Counted {
    #[inline]
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if self.forks != forks() {
            // Release: for the acquire in `is_inherited`.
            INHERITED.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Whether the calling thread holds a read side.
#[inline]
#[must_use]
pub fn is_held() -> bool {
    HELD.get() > 0
}

/// Whether a read side from before the fork is still held in this process, a forked child. Once
/// false, it stays false.
#[must_use]
pub fn is_inherited() -> bool {
    // Acquire: for the release of the last one's end.
    INHERITED.load(Ordering::Acquire) > 0
}

/// In a child after a fork, on its only thread.
pub(crate) fn child() {
    INHERITED.store(HELD.get(), Ordering::Relaxed);
}
