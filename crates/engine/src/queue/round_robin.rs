//! The CPUs of a queue's mask, among which submitters on other CPUs take turns.
//!
//! A submitter increments a counter and reads the entry that it selects: no lock, no loop. The
//! entries are replaced in place while submitters read them. That is safe because a submitter
//! follows the entry to the CPU's route, and an entry is only valid as long as that route exists:
//!
//! ```text
//! change of the mask (one at a time)     submitter
//! store the routes of the new mask       next += 1
//! store the entries, then their number   load the number, load an entry
//! remove the other routes                load its route: none? take the next turn
//! ```
//!
//! If the route is missing, the entry is older than the change that removed the route, and that
//! change has stored all new entries by then. So a submitter repeats at most once for each change.

use uwork_policy::cpuset::CpuSet;

use crate::words::sync::{AtomicU32, Line, Ordering};

/// The CPUs that take turns.
pub(super) struct RoundRobin {
    /// How many entries are in use. At least one once the queue has routes.
    count: AtomicU32,
    /// CPUs of the mask. Stores: the holder of the queue's `tunable`.
    entries: Box<[AtomicU32]>,
    /// The number of turns taken. In a cache line of its own: submitters inside of the mask read
    /// the fields around it, and submitters outside of it write it.
    next: Line<AtomicU32>,
}

impl RoundRobin {
    /// An empty list, with room for this many CPUs.
    pub(super) fn new(cpus: u32) -> RoundRobin {
        let entries = (0..cpus).map(|_| AtomicU32::new(0)).collect();
        RoundRobin { count: AtomicU32::new(0), entries, next: Line(AtomicU32::new(0)) }
    }

    /// Replaces the list by the CPUs of `mask`, which is not empty. Each has a route already.
    pub(super) fn set(&self, mask: &CpuSet) {
        let mut count = 0;
        for (entry, cpu) in self.entries.iter().zip(mask.iter()) {
            // Release: a submitter that reads the entry sees the CPU's route.
            entry.store(cpu, Ordering::Release);
            count += 1;
        }
        // Release: a submitter that reads this number sees as many entries.
        self.count.store(count, Ordering::Release);
    }

    /// The next CPU in turn. The caller is outside of the mask, so the queue has routes.
    pub(super) fn take(&self) -> u32 {
        // Relaxed: each turn is taken once, in any order.
        self.entry(self.next.0.fetch_add(1, Ordering::Relaxed))
    }

    /// A CPU of the mask, without taking a turn.
    pub(super) fn any(&self) -> u32 {
        self.entry(0)
    }

    fn entry(&self, turn: u32) -> u32 {
        let count = self.count.load(Ordering::Acquire).max(1);
        self.entries[(turn % count) as usize].load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SUBMITTERS: u32 = 4;
    const EACH: u32 = 3_000;

    /// How often each of `cpus` CPUs was reached by several submitters at once.
    fn reached(turns: &RoundRobin, cpus: usize, meanwhile: impl FnOnce()) -> Vec<u32> {
        std::thread::scope(|scope| {
            let submitter = || {
                let mut reached = vec![0; cpus];
                (0..EACH).for_each(|_| reached[turns.take() as usize] += 1);
                reached
            };
            let submitters: Vec<_> = (0..SUBMITTERS).map(|_| scope.spawn(submitter)).collect();
            meanwhile();
            submitters.into_iter().fold(vec![0; cpus], |sum, submitter| {
                sum.iter().zip(submitter.join().unwrap()).map(|(a, b)| a + b).collect()
            })
        })
    }

    // Catches: a turn that two submitters take, and a turn that is skipped.
    #[test]
    fn several_submitters_reach_each_cpu_equally_often() {
        let turns = RoundRobin::new(8);
        turns.set(&"1,4,7".parse().unwrap());
        let each = SUBMITTERS * EACH / 3;
        assert_eq!(reached(&turns, 8, || {}), [0, each, 0, 0, each, 0, 0, each]);
    }

    // Catches: an entry outside of both masks, for instance one that was never stored.
    #[test]
    fn while_the_mask_changes_each_turn_is_a_cpu_of_one_of_the_masks() {
        let turns = RoundRobin::new(8);
        let masks: [CpuSet; 2] = ["1,4,7".parse().unwrap(), "2".parse().unwrap()];
        turns.set(&masks[0]);
        let reached = reached(&turns, 8, || (0..1_000).for_each(|n| turns.set(&masks[n % 2])));
        assert_eq!(reached.iter().sum::<u32>(), SUBMITTERS * EACH);
        assert_eq!([0, 3, 5, 6].map(|cpu: usize| reached[cpu]), [0; 4]);
    }
}
