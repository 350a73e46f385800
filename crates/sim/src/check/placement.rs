//! On which CPUs items run.

use uwork_policy::cpuset::CpuSet;

use super::{Case, Made};
use crate::script::QueueKind;
use crate::tape::{Call, What};

impl Case<'_> {
    /// No run starts on a CPU that is forbidden: by the process's CPUs, by the queue's mask, or by the
    /// CPU that the submission to a per-CPU queue has named.
    pub(super) fn affinity(&self) -> Option<String> {
        let mut allowed: Option<CpuSet> = Some(self.machine.online().clone());
        // Since which position these are allowed.
        let (mut wanted, mut since) = (None, 0);
        let helped = self.helped_starts();
        for (at, entry) in self.run.tape.entries().iter().enumerate() {
            match &entry.what {
                What::Restricts(cpus) => (allowed, wanted) = (None, Some(cpus.clone())),
                // A change that was not made leaves the earlier CPUs, which are not known here.
                What::Restricted(done) => {
                    (allowed, since) = (wanted.take().filter(|_| *done), at);
                }
                What::Starts(no) => {
                    if helped.binary_search(&at).is_ok() {
                        continue;
                    }
                    let forbidden = allowed.as_ref().is_some_and(|cpus| !cpus.contains(entry.cpu));
                    let outside = || match &allowed {
                        Some(allowed) => {
                            self.is_outside_of_mask(*no, (since, at), entry.cpu, allowed)
                        }
                        None => false,
                    };
                    if forbidden || self.is_misplaced(*no, at, entry.cpu) || outside() {
                        let (name, cpu, at) = (self.name(*no), entry.cpu, self.at(at));
                        return Some(format!(
                            "item {name} starts on CPU {cpu}, which is forbidden, at {at}"
                        ));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The positions of the starts on threads that are no workers of the item's pool, in ascending
    /// order. A waiter that helps an item runs it on its own CPU: a thread of the script, or an item
    /// that waits. So does a rescuer.
    pub(super) fn helped_starts(&self) -> Vec<usize> {
        let names = &self.run.threads;
        // The runs in progress of each thread.
        let mut depth = vec![0_u32; names.len()];
        let mut helped = Vec::new();
        for (at, entry) in self.run.tape.entries().iter().enumerate() {
            match entry.what {
                What::Finishes(_) => depth[entry.thread] -= 1,
                What::Starts(_) => {
                    depth[entry.thread] += 1;
                    let name = &names[entry.thread];
                    let helps = depth[entry.thread] > 1 || !name.starts_with("uw/");
                    if helps || name.starts_with("uw/R-") {
                        helped.push(at);
                    }
                }
                _ => {}
            }
        }
        helped
    }

    /// Whether the queue or the submission forbids the CPU of the run that starts at this position.
    fn is_misplaced(&self, no: usize, start: usize, cpu: u32) -> bool {
        if self.restricts {
            return false;
        }
        let queue = &self.script.queues[self.queue_of(no)];
        match queue.kind {
            QueueKind::Unbound => false,
            QueueKind::PerCpu | QueueKind::Bh => {
                let item = &self.items[no];
                let submits = |made: &&Made| matches!(made.call, Call::Queue(_) | Call::Arm);
                let mut before =
                    item.calls.iter().filter(submits).filter(|made| made.begin < start);
                // An item that was queued while it ran stays where it ran. So only a submission is
                // judged that is the item's first.
                match (before.next(), before.next()) {
                    (Some(made), None) => matches!(made.call, Call::Queue(Some(on)) if on != cpu),
                    _ => false,
                }
            }
            QueueKind::Ordered | QueueKind::Dedicated => false,
        }
    }

    /// Whether the run that starts at `start` is on a CPU that its queue's mask lacks, although some of the
    /// mask's CPUs have been allowed since `since`, and the item was first submitted later. An item that
    /// was enqueued before may be in the pool of a CPU that has left. A queue that gets no thread for
    /// its CPUs keeps those that it had.
    fn is_outside_of_mask(
        &self,
        no: usize,
        (since, start): (usize, usize),
        cpu: u32,
        allowed: &CpuSet,
    ) -> bool {
        let queue = &self.script.queues[self.queue_of(no)];
        let Some(mask) = queue.cpus.as_ref().filter(|_| queue.kind == QueueKind::Unbound) else {
            return false;
        };
        let lacks_threads = self.restricts && self.script.faults.get("spawn") > 0;
        let calls = self.items[no].calls.iter();
        let mut before = calls.filter(|made| made.begin < start);
        let is_late = !self.restricts || before.all(|made| made.begin > since);
        is_late && !lacks_threads && mask.intersects(allowed) && !mask.contains(cpu)
    }
}
