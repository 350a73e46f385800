//! In a pod with a pool for each CPU: the pool of another CPU for an item whose submitter keeps its own
//! CPU busy.
//!
//! The items of a submitter that waits next belong on its CPU, which becomes free: no wake across
//! CPUs, neither of the worker nor at the end of the wait. Those of a submitter that goes on computing
//! would wait there while other CPUs of the pod idle. So would those of a worker of another pool, which
//! is in an item, and those for a NUMA node whose first CPU is busy. A worker of this pool leaves its
//! items to the sharing of work (README.md), as in a pod of one CPU.
//!
//! Nothing here is needed for the rule of progress: the item waits in one pool or the other, which is
//! settled.

use uwork_policy::concurrency::STEAL_CHOICE;
use uwork_policy::cpu_choice::{Habit, is_occupied, keeps_cpu};

use super::Pool;
use crate::engine::Engine;
use crate::words::host::Host;

impl<H: Host> Pool<H> {
    /// The CPU for an item of the caller that would go to this pool, if that is another one of the pod.
    #[cold]
    pub(crate) fn cpu_beside(&self, engine: &Engine<H>) -> Option<u32> {
        let spec = self.spec();
        if spec.nr_beside == 0 || self.is_run_by_caller(engine) {
            return None;
        }
        let now = engine.host().now();
        let idles = |&other: &&Pool<H>| {
            other.has_room() && !is_occupied(other.occupied_at.get() as u64, now)
        };
        if spec.cpus.contains(engine.host().current_cpu()) {
            let habit = self.habit_of_caller(engine);
            if !keeps_cpu(habit) {
                return None;
            }
            if habit == Habit::Computes {
                self.occupied_at.set(now as usize);
            }
        } else if idles(&self) {
            return None;
        }
        let near = spec.near_beside().map(|id| engine.pool(id));
        let has_more = spec.nr_beside > STEAL_CHOICE;
        let beyond = spec.wide.iter().filter(|_| has_more).flat_map(|set| {
            // From its own position on, so that submitters of different CPUs find different ones.
            let (after, before) = (set.at + 1..set.pod.end, set.pod.start..set.at);
            let others = set.room.with_room(after).chain(set.room.with_room(before));
            others.take(STEAL_CHOICE).map(|at| engine.pool(set.pools[at]))
        });
        near.chain(beyond).find(idles)?.spec().cpus.first()
    }
}
