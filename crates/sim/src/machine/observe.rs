//! A thread that waits until others go to sleep, wake up or lose their CPU: the engine's watcher.

use super::{Machine, ThreadId};

impl Machine {
    /// The executing thread parks until one of these switches, or until a time.
    pub fn observe(&mut self, threads: Vec<ThreadId>) {
        let current = self.current.expect("called from outside of the simulation");
        self.observer = Some((current, threads));
    }

    /// The observer is awake.
    pub fn observe_no_more(&mut self) {
        self.observer = None;
    }

    /// A thread has left its CPU, or has woken.
    pub(super) fn note_switch(&mut self, id: ThreadId) {
        self.threads[id].switches += 1;
        if let Some((observer, threads)) = &self.observer
            && threads.contains(&id)
        {
            self.unpark(*observer);
        }
    }

    /// How often a thread has gone to sleep, woken up, or lost its CPU.
    pub fn switches_of(&self, id: ThreadId) -> u64 {
        self.threads[id].switches
    }

    /// Since when a thread sleeps, if it does and is not parked by the engine; and its last
    /// finished sleep.
    pub fn sleep_of(&self, id: ThreadId) -> (Option<u64>, Option<(u64, u64)>) {
        let thread = &self.threads[id];
        (thread.asleep_since, thread.slept)
    }
}
