//! Pools that lose their CPUs and get them back. README.md has the states and the protocol.
//!
//! A pool has CPUs, and uses those of them that its queues may use at present: one that uses none is
//! *displaced*. Its workers run elsewhere, for its own items only.

use super::{Pool, PoolSpec, WideSet};
use crate::engine::Engine;
use crate::host::{Cpus, Host};
use crate::sync::{AtomicU64, Ordering};

/// No CPU.
pub(super) const NO_CPU: usize = usize::MAX;

/// Which pools of a wide set are displaced. Hints: they spare a thread that looks at all pools the
/// reading of these.
pub(crate) struct DisplacedMap(Box<[AtomicU64]>);

impl DisplacedMap {
    /// For this many pools, all in place.
    pub(super) fn new(pools: usize) -> DisplacedMap {
        let words = pools.div_ceil(u64::BITS as usize);
        DisplacedMap((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, at: usize) -> (&AtomicU64, u64) {
        (&self.0[at / u64::BITS as usize], 1 << (at % u64::BITS as usize))
    }

    #[track_caller]
    fn has(&self, at: usize) -> bool {
        let (word, bit) = self.place(at);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn note(&self, at: usize, displaced: bool) {
        let (word, bit) = self.place(at);
        if displaced {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for DisplacedMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pools = 0..self.0.len() * u64::BITS as usize;
        f.debug_list().entries(pools.filter(|&at| self.has(at))).finish()
    }
}

impl WideSet {
    /// Whether the pool with this id, one of the set, is displaced. A hint.
    #[track_caller]
    fn is_displaced(&self, id: u32) -> bool {
        self.displaced.has((id - self.pools[0]) as usize)
    }
}

impl<H: Host> Pool<H> {
    /// Notes which CPUs the pool uses of those in `cpus`. The caller sets the target next, and with it the
    /// room for neighbours' items. Only for the thread that makes the pool, and the holder of the lock of
    /// all changes.
    pub(crate) fn note_cpus(&self, spec: &PoolSpec, cpus: &Cpus) {
        let cpu = spec.cpus.first_common(cpus.usable(spec.bound));
        self.cpu.set(cpu.map_or(NO_CPU, |cpu| cpu as usize));
        if let Some(set) = &spec.wide {
            set.displaced.note(set.at, cpu.is_none());
        }
        self.target.set_displaced(cpu.is_none());
    }

    /// One of the CPUs that the pool uses; none if it is displaced. A hint.
    #[inline]
    #[track_caller]
    pub(crate) fn cpu(&self) -> Option<u32> {
        Some(self.cpu.get()).filter(|&cpu| cpu != NO_CPU).map(|cpu| cpu as u32)
    }

    /// Whether the pool may use none of its CPUs. A hint: after a change of the CPUs the pool is settled,
    /// and the watcher finds the items and the room that a thread has missed.
    #[inline]
    #[track_caller]
    pub(crate) fn is_displaced(&self) -> bool {
        self.cpu.get() == NO_CPU
    }

    /// Whether no worker need stay. A queue that could not get new routes keeps its route here, and so the
    /// workers. A pool to which no route leads any more has all its parked workers woken, which ask this.
    #[inline]
    pub(crate) fn needs_no_worker(&self) -> bool {
        self.is_displaced() && self.has_no_routes()
    }

    /// Whether the pool uses this CPU.
    pub(super) fn uses(&self, engine: &Engine<H>, cpu: u32) -> bool {
        let spec = self.spec();
        spec.cpus.contains(cpu) && engine.cpus().usable(spec.bound).contains(cpu)
    }

    /// How many workers should run for items of neighbours.
    #[inline]
    #[track_caller]
    pub(crate) fn target_for_neighbours(&self) -> u32 {
        self.target.for_neighbours()
    }

    /// How many workers the pool keeps for itself: one for each CPU that it uses.
    pub(crate) fn kept_workers(&self) -> u32 {
        if self.is_displaced() { 0 } else { self.base_target() }
    }

    /// Whether a worker of this pool that was not called looks for work at this neighbour: not if that is
    /// displaced and one of many. Its own workers run its items, and call for help.
    #[inline]
    #[track_caller]
    pub(crate) fn looks_at(&self, id: u32) -> bool {
        self.spec().wide.as_ref().is_none_or(|set| !set.is_displaced(id))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_the_pools_that_were_noted() {
        let map = DisplacedMap::new(100);
        for at in [0, 63, 64, 99] {
            map.note(at, true);
        }
        map.note(63, false);
        assert_eq!((0..100).filter(|&at| map.has(at)).collect::<Vec<_>>(), [0, 64, 99]);
    }
}
