//! A queue: a name, attributes, and a pwq for each pool that its items may run on.

mod limits;
mod name;
mod spec;

use std::sync::{Arc, OnceLock};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{EffectiveScope, Pods, effective_cpumask};

pub(crate) use limits::BecameReady;
pub(crate) use name::Name;
pub use spec::{
    Attrs, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI, QueueError,
    QueueSpec, scope_names,
};

use crate::cpus::Cpus;
use crate::engine::{Context, Engine, PoolSet, SetKey};
use crate::flush::FlushState;
use crate::host::Host;
use crate::pool::Pool;
use crate::pwq::{Limits, Pwq};
use crate::rescuer::Rescuer;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Lock, LockGuard, Ordering};
use limits::Nodes;

/// The queue takes items only from its own items: it drains.
const DRAINING: u32 = 1;
/// The queue was destroyed: for good, it takes items only from its own.
const CLOSED: u32 = 1 << 31;
/// The engine shuts down: the queue takes items only from items, of whatever queue.
pub(crate) const SHUT: u32 = 1 << 30;
/// The engine is shut down: the queue takes nothing from anybody.
pub(crate) const SEALED: u32 = 1 << 29;

/// What is reported once for each queue.
pub(crate) struct Warned;

impl Warned {
    pub(crate) const REFUSED: u32 = 1;
    pub(crate) const BH_WAITS: u32 = 2;
    pub(crate) const FLUSH_DEPENDENCY: u32 = 4;
}

/// Where an item goes that is queued on a given CPU.
struct Route<H: Host> {
    pwq: AtomicPtr<Pwq<H>>,
    pool: AtomicPtr<Pool<H>>,
}

/// A queue.
pub struct Wq<H: Host> {
    engine: Arc<Engine<H>>,
    name: Name,
    /// Whether the name is the queue's no more.
    name_released: AtomicBool,
    /// The queue's place in the list of all.
    pub(crate) registered: AtomicU64,
    /// By CPU id; null where the queue does not reach. Replaced entry by entry.
    routes: Box<[Route<H>]>,
    /// Open, draining (a count, times `DRAINING`), closed.
    pub(crate) gate: AtomicU32,
    /// What was reported of this queue: bits of [`Warned`].
    warned: AtomicU32,
    /// The CPU that was used last for a caller outside the mask.
    round_robin: AtomicU32,
    ordered: bool,
    per_cpu: bool,
    flags: Flags,
    tunable: Lock<Tunable>,
    /// Where the limit of an unbound queue is divided; none for others. Constant.
    nodes: Option<Nodes<H>>,
    /// Every pwq that the queue ever had: they are reused when their pool comes back, and given
    /// back with the queue.
    pwqs: Lock<Vec<(u32, u32)>>,
    pub(crate) flush: Lock<FlushState<H>>,
    /// The pool sets that the pwqs are on; left with the queue.
    sets: Lock<Vec<Arc<PoolSet>>>,
    /// Set while the queue is made.
    rescuer: OnceLock<Rescuer<H>>,
}

/// A queue's pwqs.
pub(crate) struct Pwqs<'a, H: Host> {
    engine: &'a Engine<H>,
    ids: LockGuard<'a, Vec<(u32, u32)>>,
}

impl<H: Host> Pwqs<'_, H> {
    pub(crate) fn for_each(&self, f: impl FnMut(&Pwq<H>)) {
        self.ids.iter().filter_map(|&(id, _)| self.engine.pwqs().get(id)).for_each(f);
    }

    /// With the pool that each was made for.
    fn for_each_with_pool(&self, mut f: impl FnMut(&Pwq<H>, &Pool<H>)) {
        for &(id, pool) in &*self.ids {
            if let Some(pwq) = self.engine.pwqs().get(id) {
                f(pwq, self.engine.pool(pool));
            }
        }
    }
}

/// What of a queue can be changed while it is in use.
pub(crate) struct Tunable {
    kind: Kind,
    max_active: u32,
    /// The least that a node gets of it.
    min_active: u32,
    /// Whether nothing may start.
    frozen: bool,
    effective: Option<EffectiveScope>,
    mask: CpuSet,
    /// The value of the engine's CPUs that the routes are for.
    fitted: *const Cpus,
    /// The pools that the routes lead to.
    routed: Option<Arc<PoolSet>>,
}

// SAFETY: `fitted` is only compared.
unsafe impl Send for Tunable {}

impl<H: Host> Wq<H> {
    /// Makes a queue.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing is left behind.
    pub fn new(engine: &Arc<Engine<H>>, spec: QueueSpec) -> Result<Box<Wq<H>>, QueueError> {
        let Some(name) = Name::new(&spec.name) else {
            return Err(QueueError::BadName(spec.name));
        };
        let ordered = matches!(spec.kind, Kind::Ordered(_) | Kind::Dedicated(_));
        if spec.max_active == 0 || spec.max_active > MAX_ACTIVE_LIMIT {
            return Err(QueueError::BadMaxActive(spec.max_active));
        }
        if !engine.claim_name(name) {
            return Err(QueueError::NameTaken(spec.name));
        }
        let cpus = engine.config().topology.possible().last().map_or(1, |last| last + 1);
        let route = |_| Route {
            pwq: AtomicPtr::new(std::ptr::null_mut()),
            pool: AtomicPtr::new(std::ptr::null_mut()),
        };
        let wq = Box::new(Wq {
            engine: engine.clone(),
            name,
            name_released: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            routes: (0..cpus).map(route).collect(),
            gate: AtomicU32::new(0),
            warned: AtomicU32::new(0),
            round_robin: AtomicU32::new(0),
            ordered,
            per_cpu: matches!(spec.kind, Kind::PerCpu),
            flags: spec.flags,
            tunable: Lock::new(Tunable::new(spec.kind.clone(), spec.max_active)),
            nodes: (matches!(spec.kind, Kind::Unbound(_))
                && !spec.flags.contains(Flags::POD_LIMITS))
            .then(|| Nodes::new(&engine.config().topology)),
            pwqs: Lock::new(Vec::new()),
            flush: Lock::new(FlushState::new()),
            sets: Lock::new(Vec::new()),
            rescuer: OnceLock::new(),
        });
        // From here on, dropping the box undoes everything.
        if spec.flags.contains(Flags::MEM_RECLAIM) {
            let rescuer = Rescuer::new(engine)?;
            let fresh = wq.rescuer.set(rescuer).is_ok();
            debug_assert!(fresh, "the queue is new");
        }
        if wq.flags.contains(Flags::FREEZABLE) {
            engine.enter_freezable(&wq);
        }
        wq.change(|wq, tunable| wq.apply_new(tunable, spec.kind))?;
        if let Some(rescuer) = wq.rescuer() {
            wq.start_rescuer(rescuer)?;
        }
        Ok(wq)
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Whether the calling thread is inside one of this queue's items.
    pub fn runs_here(&self) -> bool {
        self.engine.runs_queue(self.identity())
    }

    /// The queue as a thing to compare: no other queue has it while this one lives.
    pub fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// What the queue is for.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The engine that runs the queue.
    pub fn engine(&self) -> &Arc<Engine<H>> {
        &self.engine
    }

    /// Whether this is the first time that such a thing is to be reported of the queue.
    pub(crate) fn warn_once(&self, what: u32) -> bool {
        self.warned.fetch_or(what, Ordering::Relaxed) & what == 0
    }

    /// Whether items were refused because the queue drained, since it exists.
    pub fn has_refused(&self) -> bool {
        self.warned.load(Ordering::Relaxed) & Warned::REFUSED != 0
    }

    pub(crate) fn rescuer(&self) -> Option<&Rescuer<H>> {
        self.rescuer.get()
    }

    /// Whether items run on the CPU that queued them.
    pub fn is_per_cpu(&self) -> bool {
        self.per_cpu
    }

    /// Whether items run one at a time and in order.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Where items may run at present.
    pub fn kind(&self) -> Kind {
        self.tunable.lock().kind.clone()
    }

    /// The scope that is in force; none for per-CPU queues.
    pub fn effective_scope(&self) -> Option<EffectiveScope> {
        self.tunable.lock().effective
    }

    /// The CPUs that are in use.
    pub fn cpus(&self) -> CpuSet {
        self.tunable.lock().mask.clone()
    }

    /// Changes the attributes of an unbound or ordered queue while it is in use. Items that are
    /// queued already run where they are; ordered ones keep their order.
    ///
    /// # Errors
    /// For per-CPU queues, and as [`Wq::new`]; nothing is changed then.
    pub fn change_attrs(&self, change: impl FnOnce(&mut Attrs)) -> Result<(), QueueError> {
        self.change(|wq, tunable| {
            let mut kind = tunable.kind.clone();
            match &mut kind {
                Kind::PerCpu => {
                    return Err(QueueError::NotForThisKind(
                        "a per-CPU queue has no affinity attributes; they are for unbound queues",
                    ));
                }
                Kind::Unbound(attrs) | Kind::Ordered(attrs) | Kind::Dedicated(attrs) => {
                    change(attrs);
                }
            }
            wq.apply_new(tunable, kind)
        })
    }

    /// Holds on to what can be changed.
    pub(crate) fn hold_tunable(&self) -> LockGuard<'_, Tunable> {
        self.tunable.lock()
    }

    /// In a child after a fork, once nobody holds the queue: nobody changes or drains it, and nobody
    /// rescues it yet.
    pub(crate) fn forget(&self) {
        self.gate.fetch_and(CLOSED | SHUT | SEALED, Ordering::SeqCst);
        if let Some(rescuer) = self.rescuer() {
            rescuer.forget(self.engine.host());
        }
    }

    /// The pwqs that the queue has, under the lock that keeps it from getting more.
    pub(crate) fn pwqs(&self) -> Pwqs<'_, H> {
        Pwqs { engine: &self.engine, ids: self.pwqs.lock() }
    }

    /// The pwqs that the queue has, with the pools that they were made for.
    pub(crate) fn pwq_ids(&self) -> Vec<(u32, u32)> {
        let room = self.pwqs.lock().len();
        let mut ids = Vec::with_capacity(room);
        // One that comes between the two looks has not been there for long.
        ids.extend(self.pwqs.lock().iter().take(room));
        ids
    }

    /// Whether this pwq, named by an item's ticket, is one of the queue's.
    pub(crate) fn owns(&self, pwq: &Pwq<H>) -> bool {
        std::ptr::eq(pwq.wq(), self)
    }

    /// Where an item goes that is queued on `cpu`, or by a caller there.
    #[inline(always)]
    pub(crate) fn route(&self, cpu: u32) -> &Pwq<H> {
        if let Some(route) = self.routes.get(cpu as usize) {
            // SAFETY: null, or a pwq of the queue, which lives as long as the queue.
            if let Some(pwq) = unsafe { route.pwq.load(Ordering::Acquire).as_ref() } {
                return pwq;
            }
        }
        self.route_elsewhere(cpu).0
    }

    /// The pool for a caller on `cpu`.
    pub(crate) fn pool_of(&self, cpu: u32) -> &Pool<H> {
        if let Some(route) = self.routes.get(cpu as usize) {
            // SAFETY: null, or a pool, which lives as long as the engine.
            if let Some(pool) = unsafe { route.pool.load(Ordering::Acquire).as_ref() } {
                return pool;
            }
        }
        self.route_elsewhere(cpu).1
    }

    /// The caller's CPU is outside the mask: take turns among those in it.
    #[cold]
    fn route_elsewhere(&self, cpu: u32) -> (&Pwq<H>, &Pool<H>) {
        // The lock keeps the routes in step with the mask.
        let tunable = self.tunable.lock();
        let last = self.round_robin.load(Ordering::Relaxed);
        let chosen = uwork_policy::cpu_choice::choose_unbound(cpu, &tunable.mask, last);
        self.round_robin.store(chosen, Ordering::Relaxed);
        let route = &self.routes[chosen as usize];
        // SAFETY: every CPU of the mask has a route; its pwq lives as long as the queue, its pool
        // as long as the engine.
        unsafe { (&*route.pwq.load(Ordering::Acquire), &*route.pool.load(Ordering::Acquire)) }
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
            Err(QueueError::BadCpu { cpu, allowed: allowed.clone() })
        }
    }

    /// Gives the queue the routes that go with the engine's CPUs, if it does not have them. Items that
    /// are queued already run where they are.
    ///
    /// # Errors
    /// No worker for a new pool, or too many pools or queues: the queue stays as it was.
    pub(crate) fn refit(&self) -> Result<(), QueueError> {
        self.change(|wq, tunable| {
            if std::ptr::eq(tunable.fitted, wq.engine.cpus()) {
                return Ok(BecameReady::none());
            }
            let kind = tunable.kind.clone();
            wq.apply(tunable, kind)
        })
    }

    /// Changes what is under the lock of `tunable`, and puts on their lists what became ready, without
    /// it.
    fn change(
        &self,
        change: impl FnOnce(&Self, &mut Tunable) -> Result<BecameReady<H>, QueueError>,
    ) -> Result<(), QueueError> {
        let mut tunable = self.tunable.lock();
        let outcome = change(self, &mut tunable);
        drop(tunable);
        outcome?.push(&self.engine);
        Ok(())
    }

    /// Whether a queue can be given these attributes. Those that it has stay good: a mask of which
    /// no CPU is allowed any more stands for all CPUs of unbound queues until one is.
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

    /// As `apply`, with attributes that a user gave.
    fn apply_new(&self, tunable: &mut Tunable, kind: Kind) -> Result<BecameReady<H>, QueueError> {
        self.check_attrs(tunable, &kind)?;
        self.apply(tunable, kind)
    }

    fn apply(&self, tunable: &mut Tunable, kind: Kind) -> Result<BecameReady<H>, QueueError> {
        let cpus = self.engine.cpus();
        let (key, effective, mask) = match &kind {
            Kind::PerCpu => {
                let pods = cpus.allowed.iter().map(CpuSet::single).collect();
                let nice = if self.flags.contains(Flags::HIGHPRI) { NICE_HIGHPRI } else { 0 };
                let bh = self.flags.contains(Flags::BH);
                let context = if bh { Context::Bh } else { Context::Managed };
                let key = SetKey { pods, nice, context, bound: true, strict: true };
                (key, None, cpus.allowed.clone())
            }
            Kind::Unbound(attrs) | Kind::Ordered(attrs) => self.unbound_key(cpus, attrs),
            Kind::Dedicated(attrs) => {
                let (key, _, mask) = self.unbound_key(cpus, attrs);
                let pods = vec![mask.clone()];
                let context = Context::Dedicated;
                (SetKey { pods, context, strict: true, ..key }, None, mask)
            }
        };
        let set = self.use_set(key)?;
        let limits = |pool: &Pool<H>| Limits {
            max_active: self.limit_on(pool, tunable, &mask),
            cpu_intensive: self.flags.contains(Flags::CPU_INTENSIVE),
            ordered: self.ordered,
            name: self.name,
            rescuer: self.rescuer().map(Rescuer::slot),
        };
        let pwqs = self.pwqs_for(&set, limits)?;
        tunable.kind = kind;
        tunable.effective = effective;
        tunable.mask = mask;
        // Before anything is queued on a pwq that has just joined others on its node.
        let mut ready = self.share_limits();
        ready.append(self.apply_limits(tunable));
        set.pools.iter().for_each(|&id| self.engine.pool(id).add_route());
        for (cpu, route) in self.routes.iter().enumerate() {
            let pod = set.pod_of(cpu as u32);
            let (pwq, pool) = match pod {
                Some(pod) => (pwqs[if self.ordered { 0 } else { pod }], set.pools[pod]),
                None => {
                    route.pwq.store(std::ptr::null_mut(), Ordering::Release);
                    route.pool.store(std::ptr::null_mut(), Ordering::Release);
                    continue;
                }
            };
            // A submitter may pair the new pool with the old pwq or the other way round. Readiness
            // only says which pool looks at the pwq first, so either is right for the queue's
            // guarantees.
            let pool: *const Pool<H> = self.engine.pool(pool);
            route.pool.store(pool.cast_mut(), Ordering::Release);
            route.pwq.store(std::ptr::from_ref(pwq).cast_mut(), Ordering::Release);
        }
        tunable.fitted = cpus;
        let before = tunable.routed.replace(set);
        ready.deserted = self.remove_routes(before);
        Ok(ready)
    }

    /// Routes led to these pools. Those to which none leads any more.
    fn remove_routes(&self, set: Option<Arc<PoolSet>>) -> Vec<u32> {
        let pools = set.iter().flat_map(|set| &set.pools).copied();
        pools.filter(|&id| self.engine.pool(id).remove_route()).collect()
    }

    /// The pools for this key, used by this queue from now on.
    fn use_set(&self, key: SetKey) -> Result<Arc<PoolSet>, QueueError> {
        if let Some(own) = self.sets.lock().iter().find(|set| set.is_for(&key)) {
            // It has workers and this queue among its users; a dedicated one has no other.
            return Ok(own.clone());
        }
        let set = self.engine.pool_set(key)?;
        let mut sets = self.sets.lock();
        if sets.iter().any(|known| Arc::ptr_eq(known, &set)) {
            drop(sets);
            self.engine.leave_set(&set);
        } else {
            sets.push(set.clone());
        }
        Ok(set)
    }

    fn unbound_key(&self, cpus: &Cpus, attrs: &Attrs) -> (SetKey, Option<EffectiveScope>, CpuSet) {
        let config = self.engine.config();
        let mask = effective_cpumask(&attrs.cpumask, &cpus.unbound_cpumask);
        let scope = uwork_policy::scope::effective_scope(
            &config.topology,
            attrs.scope,
            config.default_scope,
            &mask,
            config.cache_shard_size,
        );
        let pods = Pods::of(&config.topology, scope.effective, config.cache_shard_size);
        let pods: Vec<CpuSet> = pods.restricted(&mask).map(|(_, pod)| pod).collect();
        let context = Context::Managed;
        let key = SetKey { pods, nice: attrs.nice, context, bound: false, strict: attrs.strict };
        (key, Some(scope), mask)
    }

    /// A pwq for each pool of the set (one for all, if ordered), old ones where there are any.
    fn pwqs_for(
        &self,
        set: &PoolSet,
        limits: impl Fn(&Pool<H>) -> Limits,
    ) -> Result<Vec<&Pwq<H>>, QueueError> {
        // A new pwq starts with the colour that the queue has reached.
        let flush = self.flush.lock();
        let mut known = self.pwqs.lock();
        let pools = if self.ordered { &set.pools[..1] } else { &set.pools[..] };
        let mut pwqs = Vec::with_capacity(pools.len());
        for &pool in pools {
            let old = known.iter().find(|&&(_, of)| self.ordered || of == pool);
            let id = match old {
                Some(&(id, _)) => id,
                None => {
                    let (id, pwq) =
                        self.engine.pwqs().allocate(Pwq::new).ok_or(QueueError::TooManyQueues)?;
                    let pool_of_pwq = self.engine.pool(pool);
                    pwq.attach(self, pool_of_pwq, limits(pool_of_pwq), flush.colour());
                    known.push((id, pool));
                    id
                }
            };
            let pwq = self.engine.pwqs().get(id).expect("an id that was given out names a pwq");
            pwq.set_home(self.engine.pool(pool));
            pwqs.push(pwq);
        }
        Ok(pwqs)
    }

    /// Lets another queue have the name. Once: that other one may have it already.
    pub(crate) fn release_name(&self) {
        if !self.name_released.swap(true, Ordering::SeqCst) {
            self.engine.release_name(&self.name);
        }
    }

    /// Stops taking items except from the queue's own. Counted; undone by [`Wq::end_drain`].
    pub(crate) fn begin_drain(&self) {
        self.gate.fetch_add(DRAINING, Ordering::SeqCst);
    }

    pub(crate) fn end_drain(&self) {
        self.gate.fetch_sub(DRAINING, Ordering::SeqCst);
    }

    /// From here on the queue takes items from its own items only, for good.
    pub(crate) fn close_gate(&self) {
        self.gate.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Shuts the gate further, for good: `SHUT`, `SEALED`.
    pub(crate) fn shut(&self, marks: u32) {
        self.gate.fetch_or(marks, Ordering::SeqCst);
    }

    /// Whether the queue was destroyed, or its engine shuts down: it arms no timers.
    pub fn is_closed(&self) -> bool {
        self.gate.load(Ordering::SeqCst) & (CLOSED | SHUT | SEALED) != 0
    }

    /// Whether nobody may queue anything.
    pub(crate) fn is_sealed(&self) -> bool {
        self.gate.load(Ordering::SeqCst) & SEALED != 0
    }

    /// Whether a gate that is not open lets the calling thread in.
    pub(crate) fn admits_caller(&self, gate: u32) -> bool {
        if gate & SEALED != 0 {
            return false;
        }
        self.runs_here() || (gate == SHUT && self.engine.is_inside_an_item())
    }
}

impl<H: Host> Drop for Wq<H> {
    /// Waits until everything that is queued has run.
    fn drop(&mut self) {
        self.close_gate();
        self.settle();
        self.stop_rescuer();
        if self.flags.contains(Flags::FREEZABLE) {
            self.engine.leave_freezable(self);
        }
        let pwqs = std::mem::take(&mut *self.pwqs.lock());
        let known = |&(id, _): &(u32, u32)| self.engine.pwqs().get(id);
        for pwq in pwqs.iter().filter_map(known) {
            // The last worker may still be on its way from its last item to letting go.
            let mut round = 0;
            while !pwq.detach() {
                self.engine.host().relax(round);
                round += 1;
            }
        }
        // Only now: who let go of one may have been handing its place to another.
        for pwq in pwqs.iter().filter_map(known) {
            if pwq.kill() {
                self.engine.pwqs().release(pwq.id);
            }
        }
        let routed = self.tunable.lock().routed.take();
        let deserted = self.remove_routes(routed);
        for set in std::mem::take(&mut *self.sets.lock()) {
            self.engine.leave_set(&set);
        }
        deserted.iter().for_each(|&id| self.engine.nudge_all(self.engine.pool(id)));
        self.release_name();
    }
}
