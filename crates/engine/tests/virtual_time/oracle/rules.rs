//! What the oracle allows, and why.

use uwork_policy::blocking::{PATIENCE_MAX_NS, Tier};

use super::{NEVER, PoolNo};
use crate::setup::{MS, SEC, US};

/// The longest interval between two looks of the watch.
pub(super) const LOOK_NS: u64 = 2 * MS;
/// For how long an item must have been running before what is lined up behind it is taken back.
const STUCK_NS: u64 = 200 * US;
/// Latencies of the machine: some wakes and creations of threads, one after the other.
pub(super) const MARGIN_NS: u64 = MS;
/// A due timer is served within this time where a place is free: 5 ms, and the length of a preemption, after which
/// the watch looks that much later.
const TIMER_NS: u64 = 5 * MS + 200 * US;
/// How long after a thread could not be created the next is tried.
pub(super) const COOL_DOWN_NS: u64 = SEC;
/// For how long a run that has computed for too long may still hold its place: until the next look. With the look
/// that meets the run and the threshold of 10 ms, an item behind one that computes starts within 15.2 ms. The watcher
/// measures a run no more often than each `STUCK_NS`.
pub(super) const EXPOSED_NS: u64 = LOOK_NS + STUCK_NS + MARGIN_NS;
/// What the bounds depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) tier: Tier,
    /// The CPU time after which a run computes for too long.
    pub(crate) threshold_ns: u64,
}

impl Rules {
    /// Until a run that sleeps undeclared is known to. It is met at the first look, found asleep at the second, and
    /// counted out at the third, after the pool's patience.
    pub(super) fn found(self) -> u64 {
        match self.tier {
            Tier::Declared => NEVER,
            Tier::Events | Tier::Sampling => 3 * LOOK_NS + PATIENCE_MAX_NS,
        }
    }

    /// For how long an item may wait beside a free place.
    ///
    /// Tier `Declared`: the watch looks at the latest after `LOOK_NS`, and takes back what is lined up
    /// behind an item that has been running for `STUCK_NS`. A run that computes for long is met at the
    /// first look at which something waits, which is as late.
    ///
    /// Other tiers look every `LOOK_UNDECLARED_NS`. A sleeper is met at the first look, found asleep at
    /// the second, and counted out at the third, after the pool's patience.
    ///
    /// A due timer that waits alone is bounded by `TIMER_NS`.
    ///
    /// `elsewhere`: what the item needs may be in another pod. Where pods share their work that is the free
    /// place: the runs of the item's own pod come first, each up to the threshold. Where they share the
    /// limit of the queue it is a place under the limit that was promised to another pod, which gives it
    /// back when a worker looks, at the latest after a run has computed for too long there.
    pub(super) fn bound(self, is_timer: bool, elsewhere: bool) -> u64 {
        let bound = match self.tier {
            _ if is_timer => TIMER_NS,
            Tier::Declared => LOOK_NS + STUCK_NS + MARGIN_NS,
            Tier::Events | Tier::Sampling => self.found() + STUCK_NS + MARGIN_NS,
        };
        bound + if elsewhere { self.threshold_ns + LOOK_NS } else { 0 }
    }
}

/// The pods that a queue's items run in, one by one or all together.
#[derive(Clone, Debug)]
pub(crate) struct PoolRules {
    pub(crate) label: String,
    /// Runs that may hold a place at the same time: its CPUs.
    pub(crate) target: u32,
    /// One worker, which is never replaced.
    pub(crate) single: bool,
    /// For items of its CPU alone.
    pub(crate) per_cpu: bool,
    /// Several pods that share their work.
    pub(crate) shared: bool,
}

/// A queue as it was specified.
#[derive(Clone, Debug)]
pub(crate) struct QueueRules {
    /// The pool for each CPU.
    pub(crate) pools: Vec<PoolNo>,
    pub(crate) max_active: u32,
    /// Whether the limit is for all pools together.
    pub(crate) limit_in_all: bool,
    pub(crate) freezable: bool,
    pub(crate) intensive: bool,
}

impl QueueRules {
    /// Whether its pods are looked at one by one.
    pub(super) fn has_several_pools(&self) -> bool {
        self.pools.iter().any(|pool| *pool != self.pools[0])
    }

    /// Whether its places are for several pods together, one by one.
    pub(super) fn shares_places(&self) -> bool {
        self.limit_in_all && self.has_several_pools()
    }
}
