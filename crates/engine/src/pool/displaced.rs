//! Pools that lose their CPUs and get them back. README.md has the states and the protocol.
//!
//! A pool has CPUs, and uses those of them that its queues may use at present: one that uses none is
//! *displaced*. Its workers run elsewhere, for its own items only.

use std::ops::Range;
use std::sync::Arc;

use uwork_policy::concurrency::STEAL_CHOICE;

use super::bits::PoolBits;
use super::room::RoomMap;
use super::{Pool, PoolSpec, WideSet};
use crate::engine::Engine;
use crate::words::host::{Cpus, Host};
use crate::words::sync::Hint;

/// No CPU.
pub(super) const NO_CPU: usize = usize::MAX;

/// No pool.
const NO_POOL: usize = usize::MAX;

/// The nearest pools that are in place, as one of the pools of a wide set sees them. Hints.
pub(crate) struct Near([Hint; STEAL_CHOICE]);

impl Near {
    fn none() -> Near {
        Near(std::array::from_fn(|_| Hint::new(NO_POOL)))
    }

    fn ids(&self) -> impl Iterator<Item = u32> + Clone {
        self.0.iter().map(Hint::get).take_while(|&id| id != NO_POOL).map(|id| id as u32)
    }
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl WideSet {
    /// The set of these pools, whose ids follow each other, as the first one sees it.
    pub(crate) fn new(pools: &[u32]) -> WideSet {
        assert!(pools.windows(2).all(|ids| ids[0] + 1 == ids[1]), "{pools:?}");
        let (room, in_place) = (RoomMap::new(pools.len()), PoolBits::new(pools.len()));
        let (room, in_place) = (Arc::new(room), Arc::new(in_place));
        let near = Arc::new(Near::none());
        WideSet { at: 0, pod: 0..0, pools: pools.into(), room, in_place, near }
    }

    /// The same set, as the pool at this position sees it, and the positions of its pod.
    pub(crate) fn seen_from(&self, at: usize, pod: Range<usize>) -> WideSet {
        WideSet { at, pod, near: Arc::new(Near::none()), ..self.clone() }
    }

    /// The position of the pool with this id, one of the set.
    fn position(&self, id: u32) -> usize {
        (id - self.pools[0]) as usize
    }
}

impl PoolSpec {
    /// The nearest neighbours; of a wide set, those that are in place. Their lines are written all the
    /// time, so a thread reads those of all pools as rarely as work conservation permits (README.md).
    pub(crate) fn near(&self) -> impl Iterator<Item = u32> + Clone {
        let (all, chosen) = match &self.wide {
            None => (&self.neighbours[..], None),
            Some(set) => (&[][..], Some(set.near.ids())),
        };
        all.iter().copied().chain(chosen.into_iter().flatten())
    }

    /// The neighbours beyond these that are in place, the nearest first. Hints.
    pub(crate) fn beyond_near(&self) -> impl Iterator<Item = u32> {
        self.wide.iter().flat_map(|set| {
            let others = self.neighbours[STEAL_CHOICE..].iter().copied();
            others.filter(move |&id| set.in_place.has(set.position(id)))
        })
    }

    /// Those of the nearest that are in its pod.
    pub(crate) fn near_beside(&self) -> impl Iterator<Item = u32> {
        let set = self.wide.as_ref();
        let is_beside = move |&id: &u32| set.is_none_or(|set| set.pod.contains(&set.position(id)));
        // Those of the pod come first.
        self.near().take(self.nr_beside).take_while(is_beside)
    }
}

impl<H: Host> Pool<H> {
    /// Notes which CPUs the pool uses of those in `cpus`, and how many workers should run there. The caller
    /// settles the pool. Only for the thread that makes the pool, and the holder of the lock of all changes.
    pub(crate) fn place(&self, spec: &PoolSpec, cpus: &Cpus) {
        let cpu = spec.cpus.first_common(cpus.usable(spec.bound));
        self.cpu.set(cpu.map_or(NO_CPU, |cpu| cpu as usize));
        if let Some(set) = &spec.wide {
            match cpu {
                Some(_) => set.in_place.set(set.at),
                None => set.in_place.clear(set.at),
            }
        }
        // A saving pool begins with one worker.
        let has_one = spec.bound || spec.single || spec.saves;
        let target = if has_one { 1 } else { cpus.target(&spec.cpus) };
        self.set_base(target);
        self.target.place(cpu.is_none(), target, || self.note_room());
    }

    /// Chooses the nearest pools again, once all pools of the set have noted their CPUs. A displaced pool
    /// keeps those that it has.
    pub(crate) fn choose_near(&self) {
        let spec = self.spec();
        let Some(set) = spec.wide.as_ref().filter(|_| !self.is_displaced()) else { return };
        let in_place = |&id: &u32| set.in_place.has(set.position(id));
        let mut nearest = spec.neighbours.iter().copied().filter(in_place);
        for near in &set.near.0 {
            near.set(nearest.next().map_or(NO_POOL, |id| id as usize));
        }
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
    /// workers. Both the thread that removes the last route and the one that displaces the pool wake all
    /// parked workers next, which ask this: exact, so the workers see both.
    #[inline]
    pub(crate) fn needs_no_worker(&self) -> bool {
        self.target_for_neighbours() == 0 && self.has_no_routes()
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
}
