//! The bounds that the oracle allows, and their reasons.

use uwork_policy::blocking::{CREATE_COST_NS, Tier};

use super::{NEVER, PoolNo};
use crate::setup::{MS, SEC, US};

/// The longest interval between two scans of the watcher.
pub(super) const SCAN_NS: u64 = 2 * MS;
/// How long an item must have been running before the items scheduled behind it are taken back.
const STUCK_NS: u64 = 200 * US;
/// Latencies of the machine: some wakes and thread spawns, one after the other.
pub(super) const MARGIN_NS: u64 = MS;
/// A due timer is served within this time where the pool is below its target: 5 ms, and the length
/// of a preemption, after which the watcher scans that much later.
const TIMER_NS: u64 = 5 * MS + 200 * US;
/// How long after a failed spawn the next one is tried.
pub(super) const COOL_DOWN_NS: u64 = SEC;
/// How long a run that has computed for too long may still count as running: until the next scan.
/// With the scan that first sees the run and the threshold of 10 ms, an item behind a computing one
/// starts within 15.2 ms. The watcher measures a run at most once each `STUCK_NS`.
pub(super) const EXPOSED_NS: u64 = SCAN_NS + STUCK_NS + MARGIN_NS;
/// The parameters of the bounds.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How undeclared blocks are detected.
    pub tier: Tier,
    /// The CPU time after which a run computes for too long.
    pub threshold_ns: u64,
}

impl Rules {
    /// The time until an undeclared block is detected. The first scan sees the run, the second
    /// finds it blocked, and the third takes it off the running count, after the pool's patience.
    pub(super) fn found(self) -> u64 {
        match self.tier {
            Tier::Declared => NEVER,
            Tier::Standby | Tier::Events | Tier::Sampling => 3 * SCAN_NS + CREATE_COST_NS,
        }
    }

    /// How long an item may wait while the pool is below its target.
    ///
    /// Tier `Declared`: the watcher scans after `SCAN_NS` at the latest, and takes back the items
    /// scheduled behind an item that has been running for `STUCK_NS`. The first scan at which
    /// something waits also sees a run that computes for long; that is equally late.
    ///
    /// The other tiers scan every `SCAN_NS`. The first scan sees a blocked run, the
    /// second finds it blocked, and the third takes it off the running count, after the pool's
    /// patience.
    ///
    /// A due timer that waits alone is bounded by `TIMER_NS`.
    ///
    /// `elsewhere`: the resource that the item needs may be in another pod. Where pods share their
    /// work this is the free CPU: the runs of the item's own pod come first, each up to the
    /// threshold. Where they share the limit of the queue it is a permit that was promised to
    /// another pod. That pod releases it when a worker scans, at the latest after a run has
    /// computed for too long there.
    pub(super) fn bound(self, is_timer: bool, elsewhere: bool) -> u64 {
        let bound = match self.tier {
            _ if is_timer => TIMER_NS,
            Tier::Declared => SCAN_NS + STUCK_NS + MARGIN_NS,
            Tier::Standby | Tier::Events | Tier::Sampling => self.found() + STUCK_NS + MARGIN_NS,
        };
        bound + if elsewhere { self.threshold_ns + SCAN_NS } else { 0 }
    }
}

/// The pods that a queue's items run in, one by one or all together.
#[derive(Clone, Debug)]
pub struct PoolRules {
    /// Identifies the pool; pools with equal labels are the same.
    pub label: String,
    /// How many runs may count as running at the same time: its CPUs.
    pub target: u32,
    /// The pool has one worker, which is never replaced.
    pub single: bool,
    /// The pool serves items of its CPU alone.
    pub per_cpu: bool,
    /// Several pods that share their work.
    pub shared: bool,
}

/// A queue as it was specified.
#[derive(Clone, Debug)]
pub struct QueueRules {
    /// The pool of each CPU.
    pub pools: Vec<PoolNo>,
    /// How many of its items run at once, in each pool or in all.
    pub max_active: u32,
    /// Whether the limit applies to all pools together.
    pub limit_in_all: bool,
    /// Whether a freeze stops it.
    pub freezable: bool,
    /// Whether its runs do not count as running.
    pub intensive: bool,
    /// Whether the queue had other pools before, in which items may still be queued.
    pub has_old_pools: bool,
}

impl QueueRules {
    /// Whether its pods are checked one by one.
    pub(super) fn has_several_pools(&self) -> bool {
        self.has_old_pools || self.pools.iter().any(|pool| *pool != self.pools[0])
    }

    /// Whether its permits are shared by several pods that are checked one by one.
    pub(super) fn shares_permits(&self) -> bool {
        self.limit_in_all && self.has_several_pools()
    }
}
