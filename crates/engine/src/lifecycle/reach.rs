//! The CPUs for which queues have pools: all that they could use so far.
//!
//! Another system may change the CPUs of the process again and again, as one that gives each new
//! container CPUs of its own. Pools are never freed, so they are not made for the CPUs of the moment: each
//! new set of CPUs would need new pools. Pools that have no CPU at the moment wait for it (`pool/displaced.rs`).

use uwork_policy::cpuset::CpuSet;

use crate::words::host::Cpus;

/// How often the CPUs of the pools may grow. Each time the queues get new pools, once for each set of
/// attributes. Beyond this the pools are for all CPUs of the machine.
const GROWTHS_MAX: u32 = 8;

/// The CPUs of the pools of one kind.
#[derive(Debug, Default)]
struct Reach {
    cpus: CpuSet,
    grown: u32,
}

impl Reach {
    /// Adds the CPUs that queues may use now. `possible`: those of the machine. Returns all.
    fn extend(&mut self, now: &CpuSet, possible: &CpuSet) -> CpuSet {
        if !now.is_subset(&self.cpus) {
            let more = if self.grown < GROWTHS_MAX { now } else { possible };
            self.cpus = self.cpus.or(now).or(more);
            self.grown += 1;
        }
        self.cpus.clone()
    }
}

/// The CPUs of the pools of per-CPU queues, and of unbound ones.
#[derive(Debug, Default)]
pub(crate) struct Reaches {
    bound: Reach,
    unbound: Reach,
}

impl Reaches {
    /// The CPUs of the pools of per-CPU queues (`bound`) or of unbound ones, in a process that has these
    /// CPUs now, on a machine with those that are `possible`.
    pub(crate) fn extend(&mut self, bound: bool, cpus: &Cpus, possible: &CpuSet) -> CpuSet {
        let reach = if bound { &mut self.bound } else { &mut self.unbound };
        reach.extend(cpus.usable(bound), possible)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn after(reach: &mut Reach, now: &str) -> String {
        let now = now.parse().expect("a list");
        reach.extend(&now, &CpuSet::first_n(64)).to_string()
    }

    #[test]
    fn it_never_shrinks() {
        let mut reach = Reach::default();
        assert_eq!(after(&mut reach, "4-7"), "4-7");
        assert_eq!(after(&mut reach, "5"), "4-7");
        assert_eq!(after(&mut reach, "1"), "1,4-7");
        assert_eq!(after(&mut reach, "1,7"), "1,4-7");
        assert_eq!(reach.grown, 2);
    }

    #[test]
    fn it_has_few_values_whatever_cpus_come() {
        let mut reach = Reach::default();
        let values: Vec<String> = (0..64).map(|cpu| after(&mut reach, &cpu.to_string())).collect();
        let mut distinct = values.clone();
        distinct.dedup();
        assert_eq!(distinct.len() as u32, GROWTHS_MAX + 1);
        assert_eq!(values[7], "0-7");
        assert_eq!(values[8], "0-63");
    }
}
