//! What a recorded run keeps of the machine.

use super::{Machine, ThreadId};
use crate::tape::What;

impl Machine {
    /// Records what a thread does, if the run is recorded.
    pub fn record(&mut self, id: ThreadId, what: What) {
        let (at, cpu) = (self.now, self.threads[id].cpu);
        if let Some(tape) = &mut self.tape {
            tape.push(at, id, cpu, what);
        }
    }

    /// Records what the executing thread does, if the run is recorded.
    pub fn record_current(&mut self, what: What) {
        let id = self.current.expect("called from outside of the simulation");
        self.record(id, what);
    }

    /// Whether this fault occurs, at one in so many points. Counts it.
    pub(crate) fn strikes(&mut self, fault: &'static str, one_in: u64) -> bool {
        let strikes = self.chance.one_in(one_in);
        if strikes {
            *self.faults.entry(fault).or_default() += 1;
        }
        strikes
    }

    /// The names of all threads, by number.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.threads.iter().map(|thread| thread.name.clone()).collect()
    }
}
