//! `max_active`, and the order of ordered and BH queues.

use super::{Case, Made, Ran};
use crate::script::QueueKind;
use crate::tape::{Call, What};

impl Case<'_> {
    /// How many runs of this queue may be in progress on one CPU, or in all.
    fn limit_of(&self, queue: usize) -> Option<(bool, u32)> {
        let line = &self.script.queues[queue];
        let nodes = self.machine.nodes().len() as u32;
        match line.kind {
            QueueKind::PerCpu => line.max_active.map(|max| (true, max)),
            // Each node has a share, at least the lower of `min_active` and the limit, and pods that
            // span nodes have one in common. When CPUs come and go, a pod may span nodes, then lie in
            // one of them, then in another, and its runs end under the share under which they began.
            QueueKind::Unbound => {
                let shares = nodes + u32::from(self.restricts);
                line.max_active.map(|max| (false, max * shares))
            }
            QueueKind::Ordered | QueueKind::Dedicated => Some((false, 1)),
            QueueKind::Bh => Some((true, 1)),
        }
    }

    /// No more runs at once than `max_active` permits.
    pub(super) fn limit(&self) -> Option<String> {
        let cpus = self.machine.possible().last().map_or(0, |last| last as usize + 1);
        let queues = self.script.queues.len();
        let mut running = vec![vec![0_u32; cpus]; queues];
        // The CPU on which each item in progress has started.
        let mut started: Vec<Vec<u32>> = vec![Vec::new(); self.items.len()];
        for (at, entry) in self.run.tape.entries().iter().enumerate() {
            match entry.what {
                What::Starts(no) => {
                    let queue = self.queue_of(no);
                    running[queue][entry.cpu as usize] += 1;
                    started[no].push(entry.cpu);
                    let Some((each, max)) = self.limit_of(queue) else { continue };
                    // Workers of a CPU that is taken away run elsewhere.
                    if each && self.restricts {
                        continue;
                    }
                    let here = running[queue][entry.cpu as usize];
                    let count = if each { here } else { running[queue].iter().sum() };
                    if count > max {
                        let (name, at) = (&self.script.queues[queue].name, self.at(at));
                        return Some(format!(
                            "{count} items of queue {name} run at {at}; its limit is {max}"
                        ));
                    }
                }
                What::Finishes(no) => {
                    let cpu = started[no].pop().expect("it has started");
                    running[self.queue_of(no)][cpu as usize] -= 1;
                }
                _ => {}
            }
        }
        None
    }

    /// Items of ordered and BH queues start in the order of their submission. Only items that were
    /// submitted once, and not armed, have an order that is known. Dedicated queues are not checked.
    pub(super) fn order(&self) -> Option<String> {
        (0..self.script.queues.len()).find_map(|queue| match self.script.queues[queue].kind {
            QueueKind::Ordered => self.first_out_of_order(queue, None),
            QueueKind::Bh if !self.restricts => self
                .machine
                .online()
                .iter()
                .find_map(|cpu| self.first_out_of_order(queue, Some(cpu))),
            _ => None,
        })
    }

    /// `cpu`: only items that were queued on this CPU.
    fn first_out_of_order(&self, queue: usize, cpu: Option<u32>) -> Option<String> {
        let mut once: Vec<(usize, Made, Ran)> = Vec::new();
        for (no, item) in
            self.items.iter().enumerate().filter(|&(no, _)| self.queue_of(no) == queue)
        {
            let submits = |made: &&Made| matches!(made.call, Call::Queue(_) | Call::Arm);
            let mut submissions = item.calls.iter().filter(submits);
            if let (Some(made), None, [ran]) =
                (submissions.next(), submissions.next(), &item.runs[..])
                && matches!(made.call, Call::Queue(on) if cpu.is_none() || on == cpu)
                && made.outcome
            {
                once.push((no, *made, *ran));
            }
        }
        once.sort_unstable_by_key(|(_, _, ran)| ran.start);
        // The latest begin of a submission among the items that started before.
        let mut latest: Option<(usize, usize)> = None;
        for (no, made, ran) in &once {
            if let Some((before, begin)) = latest
                && made.end < begin
            {
                let (first, second) = (self.name(*no), self.name(before));
                let at = self.at(ran.start);
                return Some(format!(
                    "item {first} was queued before item {second}, and starts after it, at {at}"
                ));
            }
            if latest.is_none_or(|(_, begin)| made.begin > begin) {
                latest = Some((*no, made.begin));
            }
        }
        None
    }
}
