//! Long runs with their stacks, on request: what a report of a stall says, without waiting for one.

use super::stall::Listed;
use super::survey::Survey;
use crate::engine::Engine;
use crate::words::dump::{LongRuns, Stall, Wants};
use crate::words::host::Host;

impl<H: Host> Engine<H> {
    /// For each time in nanoseconds: the workers and helpers whose batch is older than that, the oldest
    /// first, with the stacks of some of them, and the items among those that wait for each other. With a
    /// queue's name: only those in an item of that queue.
    ///
    /// Each of them takes a signal, which makes some system calls return early. All answers together
    /// take up to 0.6 s, if threads get no CPU. The caller holds no locks. Without `named` the
    /// frames of the stacks have addresses alone, for a reader that names them.
    pub fn long_runs(&self, of: &[(u64, Option<&str>)], named: bool) -> Vec<LongRuns> {
        let mut all: Vec<Stall> =
            of.iter().map(|&(ns, queue)| self.long_runs_of(ns, queue)).collect();
        self.watch.inspect_blockers(self, &mut all, named);
        all.into_iter().map(LongRuns::new).collect()
    }

    /// The same of one time and queue, without stacks.
    fn long_runs_of(&self, ns: u64, queue: Option<&str>) -> Stall {
        let survey = Survey::of(self);
        let now = self.host().now();
        let is_of = |pwq: Option<u32>| {
            let pwq = pwq.and_then(|id| self.pwqs.get(id));
            queue.is_none_or(|name| pwq.is_some_and(|pwq| pwq.queue_name() == name))
        };
        let age = |id: u32| {
            let (pwq, began) = self.slot(id).batch.get();
            let age = now.saturating_sub(began?);
            (age >= ns && is_of(pwq)).then_some((age, id))
        };
        let mut found: Vec<(u64, u32)> = survey.slots_at_work().filter_map(age).collect();
        found.sort_by_key(|&(age, _)| std::cmp::Reverse(age));
        let slots: Vec<u32> = found.into_iter().map(|(_, id)| id).collect();
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
        runs
    }
}
