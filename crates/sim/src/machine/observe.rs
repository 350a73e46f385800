//! A thread that waits until others go to sleep or wake up: the engine's watcher.

use super::{Machine, ThreadId};

impl Machine {
    /// The executing thread parks until one of these goes to sleep or wakes up, or until a time.
    pub fn observe(&mut self, threads: Vec<ThreadId>) {
        let current = self.current.expect("called from outside of the simulation");
        self.observer = Some((current, threads));
    }

    /// The observer is awake.
    pub fn observe_no_more(&mut self) {
        self.observer = None;
    }

    pub(super) fn notify_observer(&mut self, id: ThreadId) {
        if let Some((observer, threads)) = &self.observer
            && threads.contains(&id)
        {
            self.unpark(*observer);
        }
    }

    /// Since when a thread sleeps, if it does and is not parked by the engine; and its last
    /// finished sleep.
    pub fn sleep_of(&self, id: ThreadId) -> (Option<u64>, Option<(u64, u64)>) {
        let thread = &self.threads[id];
        (thread.asleep_since, thread.slept)
    }
}
