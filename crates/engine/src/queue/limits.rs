//! How many items of a queue may run at once: the limits of its pwqs and nodes, and their changes.

use std::collections::HashMap;

use uwork_policy::admission::{default_min_active, node_max_active};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::topology::Topology;

use super::{Kind, MAX_ACTIVE_LIMIT, QueueError, Tunable, Wq};
use crate::engine::Engine;
use crate::pool::Pool;
use crate::pool::PoolSet;
use crate::queue::pwq::{Pwq, PwqNode};
use crate::words::dump::NodeDump;
use crate::words::host::Host;
use crate::words::wake::Waiters;

/// A queue's nodes. The last one is for pwqs whose pod spans several.
pub(super) struct Nodes<H: Host> {
    /// NUMA node ids, ascending, with the CPUs of each.
    cpus: Vec<(u32, CpuSet)>,
    /// An entry for each of those, and a last one for pwqs whose pod spans several.
    nodes: Box<[PwqNode<H>]>,
}

impl<H: Host> Nodes<H> {
    pub(super) fn new(topology: &Topology) -> Nodes<H> {
        let ids = topology.nodes().into_iter();
        let cpus: Vec<_> = ids.map(|id| (id, topology.node_cpus(id))).collect();
        let nodes = (0..=cpus.len()).map(|_| PwqNode::new()).collect();
        Nodes { cpus, nodes }
    }

    /// The index of the node that contains the whole pod.
    fn of(&self, pod: &CpuSet) -> usize {
        let holds = |(_, node): &(u32, CpuSet)| pod.and_not(node).is_empty();
        self.cpus.iter().position(holds).unwrap_or(self.cpus.len())
    }

    /// The limit on this node, for a queue that uses the CPUs of `mask`.
    fn limit(&self, at: usize, tunable: &Tunable, mask: &CpuSet) -> u32 {
        let Some((_, node)) = self.cpus.get(at) else { return tunable.max_active };
        let (here, total) = (mask.and(node).len() as u32, mask.len() as u32);
        node_max_active(tunable.max_active, tunable.min_active, here, total)
    }
}

impl<H: Host> Wq<H> {
    /// The nodes on which several pods share the node's part of the limit.
    pub(crate) fn shared_nodes(&self) -> Vec<NodeDump> {
        let Some(nodes) = &self.nodes else { return Vec::new() };
        let ids = nodes.cpus.iter().map(|&(id, _)| Some(id)).chain([None]);
        let shared = ids.zip(&nodes.nodes).filter_map(|(id, node)| {
            let (nr, max, waiting) = node.figures()?;
            Some(NodeDump { node: id, nr, max, waiting })
        });
        shared.collect()
    }

    /// The nodes among which the limit is divided.
    pub(crate) fn nodes(&self) -> &[PwqNode<H>] {
        self.nodes.as_ref().map_or(&[], |nodes| &nodes.nodes)
    }
}

impl Tunable {
    /// Whether no item may start: the queue is frozen or paused.
    pub(super) fn is_stopped(&self) -> bool {
        self.frozen || self.pauses > 0
    }

    /// The settings from the specification; nothing is applied yet.
    pub(super) fn new(kind: Kind, max_active: u32) -> Tunable {
        let max_active =
            if matches!(kind, Kind::Ordered(_) | Kind::Dedicated(_)) { 1 } else { max_active };
        Tunable {
            kind,
            max_active,
            min_active: default_min_active(max_active),
            frozen: false,
            pauses: 0,
            ended: false,
            effective: None,
            mask: CpuSet::new(),
            fitted: std::ptr::null(),
            routed: Vec::new(),
        }
    }
}

/// Pwqs that became ready while locks were held, and waiters to be woken. [`BecameReady::push`]
/// handles both once the locks are released.
#[must_use = "items would wait for ever"]
pub(crate) struct BecameReady<H: Host> {
    pwqs: Vec<*const Pwq<H>>,
    waiters: Waiters<H>,
    /// Pools to which no route leads any more.
    pub(super) deserted: Vec<u32>,
    /// Pools that may now have more workers than before.
    pub(super) roomier: Vec<u32>,
}

impl<H: Host> BecameReady<H> {
    pub(crate) fn none() -> Self {
        BecameReady::of(Vec::new())
    }

    fn of(pwqs: Vec<*const Pwq<H>>) -> Self {
        BecameReady { pwqs, waiters: Waiters::new(), deserted: Vec::new(), roomier: Vec::new() }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.pwqs.append(&mut other.pwqs);
        self.waiters.append(other.waiters);
        self.deserted.append(&mut other.deserted);
        self.roomier.append(&mut other.roomier);
    }

    /// Puts the pwqs on their ready lists, wakes the waiters, and settles the pools. The caller
    /// holds no locks.
    pub(crate) fn push(self, engine: &Engine<H>) {
        for pwq in self.pwqs {
            // SAFETY: pwqs live as long as their engine. The READY claim keeps this pwq what it
            // was, even if its queue no longer exists.
            (unsafe { &*pwq }).make_ready(engine);
        }
        self.waiters.complete(engine.host());
        self.deserted.iter().for_each(|&id| engine.pool(id).wake_all_parked(engine));
        self.roomier.iter().for_each(|&id| engine.pool(id).settle(engine));
    }
}

impl<H: Host> Wq<H> {
    /// How many items may run at once. A per-CPU queue has this limit on each CPU; that of an
    /// unbound queue is divided among the NUMA nodes.
    pub fn max_active(&self) -> u32 {
        self.tunable.lock().max_active
    }

    /// The least share of an unbound queue's `max_active` for a NUMA node. None for other queues.
    pub fn min_active(&self) -> Option<u32> {
        self.nodes.as_ref().map(|_| self.tunable.lock().min_active)
    }

    /// Changes `max_active` while the queue is in use. Lowers `min_active` with it if necessary.
    ///
    /// # Errors
    /// The value is out of range, or the queue is ordered or a BH queue.
    pub fn set_max_active(&self, max_active: u32) -> Result<(), QueueError> {
        if self.is_ordered() {
            return Err(QueueError::NotForThisKind("max_active of an ordered queue is always 1"));
        }
        if self.flags().contains(Flags::BH) {
            return Err(QueueError::NotForThisKind("a BH queue has no max_active"));
        }
        if max_active == 0 || max_active > MAX_ACTIVE_LIMIT {
            return Err(QueueError::BadMaxActive(max_active));
        }
        self.change(|wq, tunable| {
            let was_one = tunable.max_active == 1;
            tunable.max_active = max_active;
            tunable.min_active = tunable.min_active.min(max_active);
            // Items that run one at a time start in their order, so they have a pool for the whole pod.
            // If these pools cannot be made, the limit holds in the present ones.
            let pools_change = wq.nodes.is_some() && was_one != (max_active == 1);
            let kind = tunable.kind.clone();
            let applied = if pools_change { wq.apply(tunable, kind, None).ok() } else { None };
            Ok(applied.unwrap_or_else(|| wq.apply_changed_limits(tunable)))
        })
    }

    /// Changes `min_active` while the queue is in use. A value above `max_active` counts as
    /// `max_active`.
    ///
    /// # Errors
    /// The queue is not unbound, or is ordered.
    pub fn set_min_active(&self, min_active: u32) -> Result<(), QueueError> {
        if self.nodes.is_none() {
            return Err(QueueError::NotForThisKind(
                "min_active is for unbound queues; those that are ordered or per-CPU have none",
            ));
        }
        self.change_limits(|tunable| tunable.min_active = min_active.min(tunable.max_active));
        Ok(())
    }

    /// Whether items wait because of the limit, in the pod of this CPU, or of the caller's CPU.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it.
    pub fn is_congested(&self, cpu: Option<u32>) -> Result<bool, QueueError> {
        cpu.map_or(Ok(()), |cpu| self.check_cpu(cpu))?;
        let cpu = cpu.unwrap_or_else(|| self.engine().host().current_cpu());
        let pwq = self.route(cpu);
        // An item from one CPU of a pod may wait in the pool of another.
        let spec = pwq.home().spec();
        let mut beside = spec.pod.iter().filter_map(|cpu| self.known_route(cpu));
        Ok(pwq.is_congested() || spec.nr_beside > 0 && beside.any(Pwq::is_congested))
    }

    /// Whether a worker holds items of the queue.
    pub(crate) fn is_held(&self) -> bool {
        let mut held = false;
        self.pwqs().for_each(|pwq| held |= pwq.is_held());
        held
    }

    /// Freezes or thaws the queue.
    pub(crate) fn set_frozen(&self, frozen: bool) -> BecameReady<H> {
        self.stop_or_start(&mut self.tunable.lock(), |tunable| tunable.frozen = frozen)
    }

    /// Changes what stops the queue, under the lock of `tunable`. Where nothing stops it any more,
    /// the waiters for its items check again whether they can help.
    pub(super) fn stop_or_start(
        &self,
        tunable: &mut Tunable,
        change: impl FnOnce(&mut Tunable),
    ) -> BecameReady<H> {
        change(tunable);
        let mut ready = self.apply_limits(tunable);
        if !tunable.is_stopped() {
            self.pwqs().for_each(|pwq| ready.waiters.append(pwq.take_waiters_of_frozen()));
        }
        ready
    }

    fn change_limits(&self, change: impl FnOnce(&mut Tunable)) {
        let mut tunable = self.tunable.lock();
        change(&mut tunable);
        let ready = self.apply_changed_limits(&tunable);
        drop(tunable);
        ready.push(self.engine());
    }

    fn apply_changed_limits(&self, tunable: &Tunable) -> BecameReady<H> {
        let mut ready = self.apply_limits(tunable);
        ready.roomier = self.count_limits(tunable);
        ready
    }

    /// The queue has ended: it counts no more in its pools. Other threads may still have its memory, and
    /// in a forked child it stays where a thread of the parent had it.
    pub(crate) fn end_limits(&self) {
        let mut tunable = self.tunable.lock();
        tunable.ended = true;
        let roomier = self.count_limits(&tunable);
        debug_assert!(roomier.is_empty(), "a limit of nothing is no greater");
    }

    /// Updates the number of items of the queue that may run at once in each pool. Returns the
    /// pools where it grew. The caller holds the lock of `tunable`, and has applied the limits.
    ///
    /// If more items run than a lowered limit permits, they all count until the next change: each
    /// occupies a worker, and items of other queues would otherwise find the pool full.
    pub(super) fn count_limits(&self, tunable: &Tunable) -> Vec<u32> {
        let mut running: HashMap<u32, u32> = HashMap::new();
        self.pwqs().for_each_with_pool(|pwq, pool| _ = running.insert(pool.id, pwq.holders()));
        let mut roomier = Vec::new();
        for used in &mut *self.sets.lock() {
            let held_by =
                |pools: &[u32]| pools.iter().filter_map(|pool| running.get(pool)).sum::<u32>();
            let held = used.set.sharers().map(held_by).max().unwrap_or(0);
            let limit = if tunable.ended { 0 } else { self.limit_in(&used.set, tunable).max(held) };
            let before = used.counted;
            if limit != before {
                used.set.count_limit(self.engine(), limit, before);
                used.counted = limit;
            }
            if limit > before {
                roomier.extend(&used.set.pools);
            }
        }
        roomier
    }

    /// How many items of the queue may run at once in a pool of this set and the pools that it
    /// shares work with.
    fn limit_in(&self, set: &PoolSet, tunable: &Tunable) -> u32 {
        if self.ordered {
            return 1;
        }
        let limit_of = |pools: &[u32]| {
            let limits: Vec<u32> = match &self.nodes {
                None => vec![tunable.max_active; pools.len()],
                Some(nodes) => {
                    let pods = pools.iter().map(|&id| &self.engine.pool(id).spec().pod);
                    // The pools of one pod follow each other.
                    let mut pods: Vec<&CpuSet> = pods.collect();
                    pods.dedup();
                    let mut at: Vec<usize> = pods.into_iter().map(|pod| nodes.of(pod)).collect();
                    at.sort_unstable();
                    at.dedup();
                    at.into_iter().map(|at| nodes.limit(at, tunable, &tunable.mask)).collect()
                }
            };
            limits.iter().fold(0, |sum: u32, &limit| sum.saturating_add(limit))
        };
        set.sharers().map(limit_of).max().unwrap_or(0)
    }

    /// The first limit of a new pwq on this pool, of a queue that will use the CPUs of `mask`.
    pub(super) fn limit_on(&self, pool: &Pool<H>, tunable: &Tunable, mask: &CpuSet) -> u32 {
        match &self.nodes {
            _ if tunable.is_stopped() => 0,
            Some(nodes) => nodes.limit(nodes.of(&pool.spec().pod), tunable, mask),
            None => tunable.max_active,
        }
    }

    /// Sets every pwq and node to the limits in effect. The caller holds the lock of `tunable`, so
    /// that the last change is applied last.
    pub(super) fn apply_limits(&self, tunable: &Tunable) -> BecameReady<H> {
        if let Some(nodes) = &self.nodes {
            for (at, node) in nodes.nodes.iter().enumerate() {
                let limit = nodes.limit(at, tunable, &tunable.mask);
                node.set_max(if tunable.is_stopped() { 0 } else { limit });
            }
        }
        let mut ready: Vec<*const Pwq<H>> = Vec::new();
        self.pwqs().for_each_with_pool(|pwq, pool| {
            if pwq.set_max_active(self.limit_on(pool, tunable, &tunable.mask)) {
                ready.push(pwq);
            }
        });
        for node in self.nodes.iter().flat_map(|nodes| &nodes.nodes) {
            node.pass_on(&mut |pwq| ready.push(pwq));
        }
        BecameReady::of(ready)
    }

    /// Makes pwqs share a limit where several are on one node. Sharing never ends.
    pub(super) fn share_limits(&self) -> BecameReady<H> {
        let mut ready: Vec<*const Pwq<H>> = Vec::new();
        let Some(nodes) = &self.nodes else { return BecameReady::of(ready) };
        let mut here: Vec<Vec<*const Pwq<H>>> = vec![Vec::new(); nodes.nodes.len()];
        let pwqs = self.pwqs();
        pwqs.for_each_with_pool(|pwq, pool| here[nodes.of(&pool.spec().pod)].push(pwq));
        for (node, here) in nodes.nodes.iter().zip(here).filter(|(_, here)| here.len() > 1) {
            node.make_room(here.len());
            // SAFETY: pwqs live as long as their engine, and these are the queue's.
            for pwq in here.into_iter().map(|pwq| unsafe { &*pwq }) {
                if pwq.share(node) {
                    ready.push(pwq);
                }
            }
            node.end_adding();
        }
        BecameReady::of(ready)
    }
}
