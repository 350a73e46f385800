//! Routes: the pwq and the pool of each CPU, and how the attributes determine them.

use std::collections::HashMap;
use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{
    AffinityScope, AffinityScopeChoice, EffectiveAffinityScope, Pods, effective_cpumask,
};

use super::round_robin::RoundRobin;
use super::{Attrs, BecameReady, Kind, QueueError, Tunable, UsedSet, Wq};
use crate::engine::Engine;
use crate::lifecycle::cpus::Round;
use crate::lifecycle::housekeeping::Fit;
use crate::pool::Pool;
use crate::pool::{Context, PoolSet, SetKey};
use crate::queue::pwq::{Limits, Pwq};
use crate::words::host::{Cpus, Host};
use crate::words::sync::{AtomicPtr, Ordering};
use crate::worker::rescuer::Rescuer;

/// Where a submitter wants an item to run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination {
    /// Near the calling CPU.
    Here,
    /// Near this CPU.
    Near(u32),
    /// On this CPU.
    On(u32),
}

impl Destination {
    /// The CPU that the item is enqueued for.
    pub(super) fn cpu<H: Host>(self, engine: &Engine<H>) -> u32 {
        match self {
            Destination::Here => engine.host().current_cpu(),
            Destination::Near(cpu) | Destination::On(cpu) => cpu,
        }
    }
}

/// The destination of an item that is queued on a given CPU.
pub(super) struct Route<H: Host> {
    pwq: AtomicPtr<Pwq<H>>,
    pool: AtomicPtr<Pool<H>>,
}

impl<H: Host> Route<H> {
    /// A route without a destination yet.
    pub(super) fn new() -> Route<H> {
        let pwq = AtomicPtr::new(std::ptr::null_mut());
        Route { pwq, pool: AtomicPtr::new(std::ptr::null_mut()) }
    }
}
impl<H: Host> Wq<H> {
    /// The destination of an item that is queued on `cpu`, or by a submitter there.
    #[inline(always)]
    pub(crate) fn route(&self, cpu: u32) -> &Pwq<H> {
        if let Some(route) = self.routes.get(cpu as usize) {
            // SAFETY: null, or a pwq of the queue, which lives as long as the queue.
            if let Some(pwq) = unsafe { route.pwq.load(Ordering::Acquire).as_ref() } {
                return pwq;
            }
        }
        self.pwq_in_turn()
    }

    /// The pwq of this CPU, if the queue uses it.
    pub(super) fn known_route(&self, cpu: u32) -> Option<&Pwq<H>> {
        // SAFETY: null, or a pwq of the queue, which lives as long as the queue.
        unsafe { self.routes.get(cpu as usize)?.pwq.load(Ordering::Acquire).as_ref() }
    }

    /// The destination of an item that is enqueued near `cpu`: the caller's, or one of a NUMA node. If
    /// that CPU is busy, it is another one of the pod.
    #[inline(always)]
    pub(super) fn route_near(&self, cpu: u32) -> &Pwq<H> {
        let pwq = self.route(cpu);
        // A pwq that is ready or at its limit needs no worker.
        if pwq.needs_worker() { self.route_beside(pwq) } else { pwq }
    }

    /// The destination of an item that is to run there, and the CPU that it was enqueued for.
    #[inline(always)]
    pub(super) fn route_to(&self, to: Destination) -> (&Pwq<H>, u32) {
        let cpu = to.cpu(&self.engine);
        match to {
            Destination::Here | Destination::Near(_) => (self.route_near(cpu), cpu),
            Destination::On(_) => (self.route(cpu), cpu),
        }
    }

    #[inline(never)]
    fn route_beside<'a>(&'a self, pwq: &'a Pwq<H>) -> &'a Pwq<H> {
        if self.ordered {
            return pwq;
        }
        pwq.home().cpu_beside(&self.engine).map_or(pwq, |cpu| self.route(cpu))
    }

    /// The pool for an ordered queue that a submitter on `cpu`, or for `cpu`, makes ready.
    pub(super) fn pool_for(&self, cpu: u32) -> &Pool<H> {
        let pool = self.pool_of(cpu);
        if cpu != self.engine.host().current_cpu() {
            return pool;
        }
        pool.cpu_beside(&self.engine).map_or(pool, |cpu| self.pool_of(cpu))
    }

    /// The pool for a submitter on `cpu`.
    pub(crate) fn pool_of(&self, cpu: u32) -> &Pool<H> {
        if let Some(route) = self.routes.get(cpu as usize) {
            // SAFETY: null, or a pool, which lives as long as the engine.
            if let Some(pool) = unsafe { route.pool.load(Ordering::Acquire).as_ref() } {
                return pool;
            }
        }
        self.pool_in_turn()
    }

    /// A CPU for which an item that is enqueued now would start at once, as far as can be told: its
    /// pool runs fewer workers than it should. Tests three pools: that of the calling CPU, one of its
    /// pod, and that of CPU `turn`, modulo the number of CPUs. `turn` selects the second as well, so that
    /// a caller that asks often finds any pool.
    /// `outside` is the CPU of a thread that computes without being a worker; it counts as one.
    #[inline]
    pub fn cpu_with_room(&self, turn: u32, outside: Option<u32>) -> Option<u32> {
        let pool = |cpu: u32| {
            let route = self.routes.get(cpu as usize)?;
            // SAFETY: null, or a pool, which lives as long as the engine.
            unsafe { route.pool.load(Ordering::Acquire).as_ref() }
        };
        let outside = outside.and_then(pool).map(|pool| pool.id);
        let has_room = |&cpu: &u32| {
            let Some(pool) = pool(cpu) else { return false };
            pool.state.counts().running + u32::from(outside == Some(pool.id)) < pool.target()
        };
        let here = self.engine.host().current_cpu();
        let beside = pool(here).and_then(|pool| {
            let beside = pool.spec().beside();
            let id = beside.get(turn as usize % beside.len().max(1))?;
            self.engine.pool(*id).cpu()
        });
        let any = turn % self.routes.len() as u32;
        [Some(here), beside, Some(any)].into_iter().flatten().find(has_room)
    }

    /// The pwq for a submitter whose CPU is outside of the mask.
    #[cold]
    fn pwq_in_turn(&self) -> &Pwq<H> {
        // All CPUs of an ordered queue have the same pwq; only the pool that it becomes ready on
        // takes turns.
        let turn = if self.ordered { RoundRobin::any } else { RoundRobin::take };
        loop {
            let route = &self.routes[turn(&self.turns) as usize];
            // SAFETY: null, or a pwq of the queue, which lives as long as the queue.
            if let Some(pwq) = unsafe { route.pwq.load(Ordering::Acquire).as_ref() } {
                return pwq;
            }
        }
    }

    /// The pool for a submitter whose CPU is outside of the mask.
    #[cold]
    fn pool_in_turn(&self) -> &Pool<H> {
        loop {
            let route = &self.routes[self.turns.take() as usize];
            // SAFETY: null, or a pool, which lives as long as the engine.
            if let Some(pool) = unsafe { route.pool.load(Ordering::Acquire).as_ref() } {
                return pool;
            }
        }
    }

    /// Whether items can be queued for this CPU.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it.
    pub fn check_cpu(&self, cpu: u32) -> Result<(), QueueError> {
        let allowed = &self.engine.cpus().allowed;
        if allowed.contains(cpu) {
            Ok(())
        } else {
            // The CPU may have come back. A caller that only gets refusals never becomes busy, so
            // ask for the check here.
            self.engine.watch.request_check(&self.engine);
            Err(QueueError::BadCpu { cpu, allowed: allowed.clone() })
        }
    }

    /// Gives the queue the routes that fit the engine's CPUs, unless it has them. Items that
    /// are queued already run where they are.
    ///
    /// # Errors
    /// No worker for a new pod, or too many pools or queues: then the queue stays as it was.
    pub(crate) fn refit(&self, round: Option<Round>) -> Result<(), QueueError> {
        self.change(|wq, tunable| {
            // After a change also if they fit: their pools may have lost their last worker since.
            let is_first = round.is_some_and(|round| !round.is_repeated);
            if !is_first && std::ptr::eq(tunable.fitted, wq.engine.cpus()) {
                return Ok(BecameReady::none());
            }
            let kind = tunable.kind.clone();
            wq.apply(tunable, kind, round.map(|round| round.number))
        })
    }

    /// Changes the settings under the lock of `tunable`. Releases the lock before the pwqs that
    /// became ready are put on their lists.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&Self, &mut Tunable) -> Result<BecameReady<H>, QueueError>,
    ) -> Result<(), QueueError> {
        let _change = self.engine.reports.begin_change(&self.engine);
        let mut tunable = self.tunable.lock();
        let outcome = change(self, &mut tunable);
        drop(tunable);
        outcome?.push(&self.engine);
        Ok(())
    }

    /// Whether these attributes are valid for the queue. Those that it has already stay valid: if
    /// none of its mask's CPUs is allowed any more, the mask stands for all CPUs of unbound queues
    /// until one is.
    fn check_attrs(&self, tunable: &Tunable, kind: &Kind) -> Result<(), QueueError> {
        let Some(attrs) = kind.attrs() else { return Ok(()) };
        if !(-20..=19).contains(&attrs.nice) {
            return Err(QueueError::BadNice(attrs.nice));
        }
        let known = !tunable.fitted.is_null()
            && tunable.kind.attrs().is_some_and(|old| old.cpumask == attrs.cpumask);
        let allowed = &self.engine.cpus().allowed;
        if known || attrs.cpumask.intersects(allowed) {
            return Ok(());
        }
        Err(QueueError::NoCpu { cpumask: attrs.cpumask.clone(), allowed: allowed.clone() })
    }

    /// As `apply`, for attributes from the user.
    pub(super) fn apply_new(
        &self,
        tunable: &mut Tunable,
        kind: Kind,
    ) -> Result<BecameReady<H>, QueueError> {
        self.check_attrs(tunable, &kind)?;
        self.apply(tunable, kind, None)
    }

    pub(super) fn apply(
        &self,
        tunable: &mut Tunable,
        kind: Kind,
        round: Option<u64>,
    ) -> Result<BecameReady<H>, QueueError> {
        let fit = self.engine.versions.now();
        let (kind, cpus) = (self.kind_in(kind, fit), &fit.cpus);
        let (key, effective, mask) = match &kind {
            Kind::PerCpu => (self.per_cpu_key(cpus), None, cpus.allowed.clone()),
            Kind::Ordered(attrs) => self.unbound_key(fit, attrs, false),
            Kind::Unbound(attrs) => self.unbound_key(fit, attrs, tunable.max_active == 1),
            Kind::Dedicated(attrs) => {
                let (key, _, mask) = self.unbound_key(fit, attrs, false);
                let pods = vec![key.pods.iter().flat_map(CpuSet::iter).collect()];
                let context = Context::Dedicated;
                (
                    SetKey { pods, context, strict: true, sharded: false, saves: false, ..key },
                    None,
                    mask,
                )
            }
        };
        let set = self.use_set(key, &mask, round)?;
        // The pools of the CPUs that the queue may use now. The others wait, without a route.
        let used = set.used(&mask);
        let limits = |pool: &Pool<H>| Limits {
            max_active: self.limit_on(pool, tunable, &mask),
            cpu_intensive: self.flags.contains(Flags::CPU_INTENSIVE),
            ordered: self.ordered,
            name: self.name,
            rescuer: self.rescuer().map(Rescuer::slot),
        };
        let pwqs = self.pwqs_for(&set, &used, limits)?;
        let floats = self.per_cpu && matches!(kind, Kind::Unbound(_));
        self.floats.store(floats, Ordering::Relaxed);
        tunable.kind = kind;
        tunable.effective = effective;
        tunable.mask = mask;
        // Before any item is queued on a pwq that has just joined others on its node.
        let mut ready = self.share_limits();
        ready.append(self.apply_limits(tunable));
        ready.roomier = self.count_limits(tunable);
        let routed: Vec<u32> = used.iter().map(|&at| set.pools[at]).collect();
        routed.iter().for_each(|&id| self.engine.pool(id).add_route());
        let mut unreached = vec![true; self.routes.len()];
        for (index, &at) in used.iter().enumerate() {
            let pwq = pwqs[if self.ordered { 0 } else { index }];
            let pool: *const Pool<H> = self.engine.pool(set.pools[at]);
            for cpu in set.cpus(at).and(&tunable.mask).iter() {
                let Some(route) = self.routes.get(cpu as usize) else { continue };
                unreached[cpu as usize] = false;
                // A submitter may combine the new pool with the old pwq or the other way round.
                // Readiness only decides which pool examines the pwq first, so both combinations
                // preserve the queue's guarantees.
                route.pool.store(pool.cast_mut(), Ordering::Release);
                route.pwq.store(std::ptr::from_ref(pwq).cast_mut(), Ordering::Release);
            }
        }
        // After the new routes are stored, and before the old ones are removed: see `turns`.
        self.turns.set(&tunable.mask);
        for (route, _) in self.routes.iter().zip(unreached).filter(|&(_, unreached)| unreached) {
            route.pwq.store(std::ptr::null_mut(), Ordering::Release);
            route.pool.store(std::ptr::null_mut(), Ordering::Release);
        }
        tunable.fitted = cpus;
        let before = std::mem::replace(&mut tunable.routed, routed);
        ready.deserted = self.remove_routes(before);
        Ok(ready)
    }

    /// Removes this queue's routes to these pools. Returns the pools to which no route leads any
    /// more.
    pub(super) fn remove_routes(&self, mut pools: Vec<u32>) -> Vec<u32> {
        pools.retain(|&id| self.engine.pool(id).remove_route());
        pools
    }

    /// The pools for this key, with workers for the CPUs of the mask. The queue uses them from now on.
    fn use_set(
        &self,
        key: SetKey,
        mask: &CpuSet,
        round: Option<u64>,
    ) -> Result<Arc<PoolSet>, QueueError> {
        let known = |used: &&UsedSet| used.set.is_for(&key);
        let own = self.sets.lock().iter().find(known).map(|used| used.set.clone());
        if let Some(own) = own {
            // This queue is one of its users; a dedicated set has no other. The queue may have had none of
            // these CPUs before.
            own.create_first_workers(&self.engine, mask, round)?;
            return Ok(own);
        }
        let set = self.engine.sets.use_set(&self.engine, key, (mask, round), self.name)?;
        let mut sets = self.sets.lock();
        if sets.iter().any(|known| Arc::ptr_eq(&known.set, &set)) {
            drop(sets);
            self.engine.sets.leave_set(&self.engine, &set);
        } else {
            sets.push(UsedSet { set: set.clone(), counted: 0 });
        }
        Ok(set)
    }

    /// The kind that the queue has under these settings: a power-efficient per-CPU queue is unbound
    /// while power is saved. Attributes that it is given meanwhile are dropped when that ends.
    fn kind_in(&self, kind: Kind, fit: &Fit) -> Kind {
        if !self.per_cpu || !self.flags.contains(Flags::POWER_EFFICIENT) {
            return kind;
        }
        match (fit.housekeeping.power_efficient, kind) {
            (false, _) => Kind::PerCpu,
            (true, Kind::PerCpu) => Kind::Unbound(Attrs {
                nice: self.engine.default_nice(self.flags),
                cpumask: self.engine.config().topology.possible().clone(),
                scope: AffinityScopeChoice::Default,
                strict: false,
            }),
            (true, kind) => kind,
        }
    }

    fn per_cpu_key(&self, cpus: &Cpus) -> SetKey {
        let pods = self.engine.reach(cpus, true).iter().map(CpuSet::single).collect();
        let nice = self.engine.default_nice(self.flags);
        let bh = self.flags.contains(Flags::BH);
        let context = if bh { Context::Bh } else { Context::Managed };
        let wanted = self.engine.config().topology.possible().clone();
        let (bound, strict, sharded, saves) = (true, true, false, false);
        SetKey { pods, wanted, nice, context, bound, strict, sharded, saves }
    }

    /// The pools, the scope and the mask in effect. The pools do not depend on which CPUs the process may
    /// use at the moment, except where none of the queue's mask is among them.
    ///
    /// `one_at_a_time`: the items of a pod start in their order, as far as one of them runs at a time.
    fn unbound_key(
        &self,
        fit: &Fit,
        attrs: &Attrs,
        one_at_a_time: bool,
    ) -> (SetKey, Option<EffectiveAffinityScope>, CpuSet) {
        let (topology, settings) = (&self.engine.config().topology, &fit.housekeeping);
        let size = settings.cache_shard_size;
        let mask = effective_cpumask(&attrs.cpumask, &fit.cpus.unbound_cpumask);
        // A mask without a usable CPU stands for all CPUs.
        let wanted = match attrs.cpumask.intersects(&fit.cpus.unbound_cpumask) {
            true => attrs.cpumask.and(topology.possible()),
            false => topology.possible().clone(),
        };
        let reach = wanted.and(&self.engine.reach(&fit.cpus, false));
        // One pool for all CPUs, and so one wheel (`pool/saving.rs`). A scope that was chosen stays.
        let saves = settings.power_efficient
            && self.flags.contains(Flags::POWER_EFFICIENT)
            && attrs.scope == AffinityScopeChoice::Default;
        let scope = match saves {
            true => EffectiveAffinityScope {
                choice: attrs.scope,
                configured: AffinityScope::System,
                effective: AffinityScope::System,
            },
            false => {
                let default = settings.default_scope;
                uwork_policy::scope::effective_scope(topology, attrs.scope, default, &mask, size)
            }
        };
        let pods = Pods::of(topology, scope.effective, size);
        let pods: Vec<CpuSet> = pods.restricted(&reach).map(|(_, pod)| pod).collect();
        // A limit for each pod is that of its pwq. A limit of CPU time below a pod's usable CPUs is the
        // number of the pool's workers that run.
        let is_whole = |pod: &CpuSet| {
            fit.cpus.cpu_limit.is_some_and(|max| (max as usize) < pod.and(&mask).len())
        };
        let sharded = !saves
            && !one_at_a_time
            && !self.flags.contains(Flags::POD_LIMITS)
            && pods.iter().any(|pod| pod.len() > 1)
            && !pods.iter().any(is_whole);
        let (context, strict) = (Context::Managed, attrs.strict);
        let nice = attrs.nice;
        let key = SetKey { pods, wanted, nice, context, bound: false, strict, sharded, saves };
        (key, Some(scope), mask)
    }

    /// A pwq for each of the set's pools at these positions (a single one if ordered); existing pwqs are
    /// reused. The homes of ordered queues differ: they become ready there when they are thawed.
    fn pwqs_for(
        &self,
        set: &PoolSet,
        used: &[usize],
        limits: impl Fn(&Pool<H>) -> Limits,
    ) -> Result<Vec<&Pwq<H>>, QueueError> {
        // A new pwq starts with the colour that the queue has reached.
        let flush = self.flush.lock();
        let mut known = self.pwqs.lock();
        let positions = if self.ordered { &used[..1] } else { used };
        let by_pool: HashMap<u32, u32> = known.iter().map(|&(id, pool)| (pool, id)).collect();
        let only = known.first().filter(|_| self.ordered).map(|&(id, _)| id);
        let mut pwqs = Vec::with_capacity(positions.len());
        for &at in positions {
            let pool = set.pools[at];
            let id = match only.or_else(|| by_pool.get(&pool).copied()) {
                Some(id) => id,
                None => {
                    let (id, pwq) =
                        self.engine.pwqs.allocate(Pwq::new).ok_or(QueueError::TooManyQueues)?;
                    let pool_of_pwq = self.engine.pool(pool);
                    pwq.attach(self, pool_of_pwq, limits(pool_of_pwq), flush.colour());
                    known.push((id, pool));
                    id
                }
            };
            let pwq = self.engine.pwqs.get(id).expect("an id that was given out names a pwq");
            let home = if self.ordered { set.pools[used[id as usize % used.len()]] } else { pool };
            pwq.set_home(self.engine.pool(home));
            pwqs.push(pwq);
        }
        Ok(pwqs)
    }
}
