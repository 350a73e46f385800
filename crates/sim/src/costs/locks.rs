//! The locks of a machine: which thread holds which, and which threads wait.

use std::collections::VecDeque;

use super::lines::ByAddress;
use crate::machine::ThreadId;

#[derive(Debug, Default)]
struct Lock {
    holder: Option<ThreadId>,
    waiters: VecDeque<ThreadId>,
}

/// The locks that are held or waited for, by address.
#[derive(Debug, Default)]
pub(crate) struct Locks(ByAddress<Lock>);

impl Locks {
    /// Takes a lock, unless another thread holds it.
    #[must_use]
    pub(crate) fn take(&mut self, lock: usize, thread: ThreadId) -> bool {
        let lock = self.0.entry(lock).or_default();
        let is_free = lock.holder.is_none();
        if is_free {
            lock.holder = Some(thread);
        }
        is_free
    }

    /// Adds a waiter, if it does not wait yet.
    pub(crate) fn wait(&mut self, lock: usize, thread: ThreadId) {
        let waiters = &mut self.0.entry(lock).or_default().waiters;
        if !waiters.contains(&thread) {
            waiters.push_back(thread);
        }
    }

    /// Releases a lock. Returns the next waiter, which waits no longer and may take the lock.
    pub(crate) fn release(&mut self, lock: usize) -> Option<ThreadId> {
        let held = self.0.get_mut(&lock)?;
        held.holder = None;
        let next = held.waiters.pop_front();
        if held.waiters.is_empty() && next.is_none() {
            self.0.remove(&lock);
        }
        next
    }

    /// Whether another thread still holds the lock, and this one still waits.
    pub(crate) fn is_waiting(&self, lock: usize, thread: ThreadId) -> bool {
        self.0.get(&lock).is_some_and(|lock| lock.waiters.contains(&thread))
    }
}
