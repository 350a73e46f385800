//! `max_active`, and the order of ordered and BH queues.

use std::collections::BTreeMap;

use uwork_policy::admission::{default_min_active, node_max_active};
use uwork_policy::scope::AffinityScope;

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
            // So with `cpus` steps little is checked here.
            QueueKind::Unbound => {
                let shares = nodes + u32::from(self.restricts);
                line.max_active.map(|max| (false, max * shares))
            }
            QueueKind::Ordered | QueueKind::Dedicated => Some((false, 1)),
            QueueKind::Bh => Some((true, 1)),
        }
    }

    /// The share of each node in the limit of this queue, by node. `None` if the runs of a node are
    /// not known: a worker of a queue that is not strict may start the items of another node, and so
    /// may the worker of a pod that spans nodes.
    fn shares_of(&self, queue: usize) -> Option<Vec<(u32, u32)>> {
        let line = &self.script.queues[queue];
        let spans = line.scope == Some(AffinityScope::System);
        if line.kind != QueueKind::Unbound || !line.strict || spans || self.restricts {
            return None;
        }
        let (max, all) = (line.max_active?, self.machine.online());
        let mask = line.cpus.as_ref().map_or_else(|| all.clone(), |cpus| cpus.and(all));
        let share = |node: u32| {
            let here = mask.and(&self.machine.node_cpus(node)).len() as u32;
            (node, node_max_active(max, default_min_active(max), here, mask.len() as u32))
        };
        Some(self.machine.nodes().into_iter().map(share).collect())
    }

    /// No more runs at once than `max_active` permits.
    pub(super) fn limit(&self) -> Option<String> {
        (0..self.script.queues.len()).find_map(|queue| {
            let over = self.limit_of(queue).and_then(|limit| self.over_limit(queue, limit));
            over.or_else(|| self.over_share(queue))
        })
    }

    /// The starts and the ends of the runs of this queue: position, item, and whether it starts.
    fn runs_of(&self, queue: usize) -> impl Iterator<Item = (usize, usize, bool)> {
        let entries = self.run.tape.entries().iter().enumerate();
        let runs = entries.filter_map(|(at, entry)| match entry.what {
            What::Starts(no) => Some((at, no, true)),
            What::Finishes(no) => Some((at, no, false)),
            _ => None,
        });
        runs.filter(move |&(_, no, _)| self.queue_of(no) == queue)
    }

    fn over_limit(&self, queue: usize, (each, max): (bool, u32)) -> Option<String> {
        // Workers of a CPU that is taken away run elsewhere.
        if each && self.restricts {
            return None;
        }
        let of = |at: usize| if each { self.run.tape.entries()[at].cpu } else { 0 };
        let (count, at) = self.first_over(queue, |at| Some((of(at), max)))?;
        let (name, at) = (&self.script.queues[queue].name, self.at(at));
        Some(format!("{count} items of queue {name} run at {at}; its limit is {max}"))
    }

    fn over_share(&self, queue: usize) -> Option<String> {
        let shares = self.shares_of(queue)?;
        let (entries, helped) = (self.run.tape.entries(), self.helped_starts());
        let (count, at) = self.first_over(queue, |at| {
            // A waiter that helps, and a rescuer, run an item anywhere.
            if helped.binary_search(&at).is_ok() {
                return None;
            }
            let cpu = entries[at].cpu;
            shares.iter().copied().find(|&(node, _)| self.machine.node_cpus(node).contains(cpu))
        })?;
        let (name, at) = (&self.script.queues[queue].name, self.at(at));
        Some(format!(
            "{count} items of queue {name} run on a node at {at}; the shares are {shares:?}"
        ))
    }

    /// The first start that exceeds the limit of its group, and how many then run there. `group_of`
    /// has the group of a start and the group's limit, or `None` if the start does not count.
    fn first_over(
        &self,
        queue: usize,
        group_of: impl Fn(usize) -> Option<(u32, u32)>,
    ) -> Option<(u32, usize)> {
        let mut running: BTreeMap<u32, u32> = BTreeMap::new();
        let mut started: BTreeMap<usize, Vec<Option<u32>>> = BTreeMap::new();
        for (at, no, starts) in self.runs_of(queue) {
            if !starts {
                let group = started.get_mut(&no).and_then(Vec::pop).expect("it has started");
                if let Some(count) = group.and_then(|group| running.get_mut(&group)) {
                    *count -= 1;
                }
                continue;
            }
            let group = group_of(at);
            started.entry(no).or_default().push(group.map(|(group, _)| group));
            let Some((group, max)) = group else { continue };
            let count = running.entry(group).or_default();
            *count += 1;
            if *count > max {
                return Some((*count, at));
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
