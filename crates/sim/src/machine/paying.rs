//! Threads whose instructions take time: they keep their CPU meanwhile.

use super::{Doing, Machine, ThreadId};
use crate::costs::Cost;

impl Machine {
    /// The executing thread computes for this time and keeps its CPU. Returns whether other threads
    /// run first: then the caller has to switch.
    #[must_use]
    pub fn compute(&mut self, ns: u64) -> bool {
        let id = self.current.expect("called from outside of the simulation");
        let until = self.now + ns;
        let is_next = self.next_event().is_none_or(|at| at > until);
        let thread = &mut self.threads[id];
        thread.burnt += ns;
        let others = !self.ready.is_empty() || !self.continuing.is_empty();
        if is_next && !others && until <= self.bound_ns {
            self.now = until;
            self.dispatches_now = 0;
            return false;
        }
        thread.doing = Doing::Burning;
        thread.pause += 1;
        thread.is_sliced = false;
        thread.keeps_cpu = true;
        thread.burns_until = until;
        self.current = None;
        if self.no_choice_until < until {
            // The end of its slice is an event only once a search has found it.
            self.no_choice_until = 0;
        }
        self.add_event(until, id);
        true
    }

    /// A thread that computes while it waits for a lock, or sleeps for it, waits no longer.
    pub fn end_wait(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id];
        match thread.doing {
            Doing::Burning => {
                thread.burnt -= thread.burns_until - self.now;
                thread.burns_until = self.now;
                thread.pause += 1;
                self.add_event(self.now, id);
            }
            Doing::Ready => thread.burn = 0,
            _ => {
                self.unpark(id);
            }
        }
    }

    /// What the wake of this thread costs its waker. An idle CPU must be told, a busy one has its
    /// list of threads.
    pub fn wake_cost(&self, id: ThreadId) -> Cost {
        let idles = self.threads[id].cpus.intersects(self.holders.free());
        if idles { Cost::Wake } else { Cost::Ready }
    }

    /// How long this CPU needs to leave its idle state, if it idles.
    pub(super) fn idle_ns(&self, cpu: u32) -> u64 {
        let idles = self.holders.is_free(cpu);
        self.bill.as_ref().map_or(0, |bill| if idles { bill.costs().ns(Cost::Idle) } else { 0 })
    }

    /// The CPU time that a thread has used. Instructions count only if they take time.
    pub fn cpu_time(&self, id: ThreadId) -> Option<u64> {
        let thread = self.threads.get(id)?;
        if thread.doing != Doing::Burning {
            return Some(thread.burnt);
        }
        // `burnt` already includes the whole burn in progress.
        Some(thread.burnt - (thread.burns_until - self.now))
    }

    /// How long the executing thread has waited for a CPU.
    pub fn run_delay(&self) -> Option<u64> {
        self.current.map(|id| self.threads[id].delayed)
    }

    /// The CPU time that all threads have used.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        (0..self.threads.len()).filter_map(|id| self.cpu_time(id)).sum()
    }
}
