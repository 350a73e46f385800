//! Long runs with their stacks, on request: what a report of a stall says, without waiting for one.

use super::stall::Listed;
use super::survey::Survey;
use crate::dump::{LongRuns, Stall, Wants};
use crate::engine::Engine;
use crate::host::Host;

impl<H: Host> Engine<H> {
    /// The workers and helpers whose batch is older than `ns`, with the stacks of some of them, and
    /// the items among those that wait for each other.
    ///
    /// Each of them takes a signal, which makes some system calls return early, and may take 100 ms
    /// to answer. The caller holds no locks.
    pub fn long_runs(&self, ns: u64) -> LongRuns {
        let survey = Survey::of(self);
        let now = self.host().now();
        let is_long = |&id: &u32| {
            let began = self.slot(id).batch.get().1;
            began.is_some_and(|began| now.saturating_sub(began) >= ns)
        };
        let slots: Vec<u32> = survey.slots_at_work().filter(is_long).collect();
        let listed = |&slot: &u32| Listed { slot, thread: survey.thread_of(slot), idle: false };
        let mut runs = Stall {
            at_ns: now,
            stalled_ns: ns,
            wants: Wants::EachOther,
            queues: Vec::new(),
            pending: 0,
            pool: None,
            workers: Vec::new(),
            more_workers: 0,
            deadlock: survey.deadlock_behind(&slots),
            undeclared: None,
            workers_max: None,
        };
        survey.list(&mut runs, slots.iter().map(listed).collect(), &slots);
        self.watch.inspect_blockers(self, &mut runs);
        LongRuns::new(runs)
    }
}
