//! A queue: a name, attributes, and a pwq for each pool that its items may run on.

mod limits;
mod name;
mod route;
mod spec;
mod turns;

use std::sync::{Arc, OnceLock};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::EffectiveScope;

pub(crate) use limits::BecameReady;
pub(crate) use name::Name;
pub use spec::{
    Attrs, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI, QueueError,
    QueueSpec, scope_names,
};

use crate::cpus::Cpus;
use crate::engine::{Engine, PoolSet};
use crate::flush::FlushState;
use crate::host::Host;
use crate::pool::Pool;
use crate::pwq::Pwq;
use crate::rescuer::Rescuer;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Cell, Link, Lock, LockGuard, Ordering, Rank,
    assert_nothing_held,
};
use limits::Nodes;
use route::Route;
use turns::Turns;

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
    pub(crate) const READ_SIDE_LEFT: u32 = 8;
}

/// A queue.
pub struct Wq<H: Host> {
    engine: Arc<Engine<H>>,
    name: Name,
    /// Whether the name is the queue's no more.
    name_released: AtomicBool,
    /// The next queue that a fork was the last to keep. Guard: the owner of the whole list.
    pub(crate) next_left: Cell<Link<Wq<H>>>,
    /// The queue's place in the list of all.
    pub(crate) registered: AtomicU64,
    /// By CPU id; null where the queue does not reach. Replaced entry by entry.
    routes: Box<[Route<H>]>,
    /// Open, draining (a count, times `DRAINING`), closed.
    pub(crate) gate: AtomicU32,
    /// What was reported of this queue: bits of [`Warned`].
    warned: AtomicU32,
    /// Whose turn it is for a caller outside of the mask.
    turns: Turns,
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
    sets: Lock<Vec<UsedSet>>,
    /// Set while the queue is made.
    rescuer: OnceLock<Rescuer<H>>,
}

/// A pool set of a queue.
struct UsedSet {
    set: Arc<PoolSet>,
    /// What the set's pools count for the queue (`Pool::limits`).
    counted: u32,
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
        let wq = Box::new(Wq {
            engine: engine.clone(),
            name,
            name_released: AtomicBool::new(false),
            next_left: Cell::new(Link(std::ptr::null_mut())),
            registered: AtomicU64::new(0),
            routes: (0..cpus).map(|_| Route::new()).collect(),
            gate: AtomicU32::new(0),
            warned: AtomicU32::new(0),
            turns: Turns::new(cpus),
            ordered,
            per_cpu: matches!(spec.kind, Kind::PerCpu),
            flags: spec.flags,
            tunable: Lock::ranked(Rank::Tunable, Tunable::new(spec.kind.clone(), spec.max_active)),
            nodes: (matches!(spec.kind, Kind::Unbound(_))
                && !spec.flags.contains(Flags::POD_LIMITS))
            .then(|| Nodes::new(&engine.config().topology)),
            pwqs: Lock::ranked(Rank::Pwqs, Vec::new()),
            flush: Lock::ranked(Rank::Flush, FlushState::new()),
            sets: Lock::ranked(Rank::QueueSets, Vec::new()),
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
    /// `change` is called with a copy, and with nothing held. Another change may be made at the same time: then
    /// each attribute that `change` leaves as it was is what the other one made of it.
    ///
    /// # Errors
    /// For per-CPU queues, and as [`Wq::new`]; nothing is changed then.
    pub fn change_attrs(&self, change: impl FnOnce(&mut Attrs)) -> Result<(), QueueError> {
        let kind = self.kind();
        let Some(before) = kind.attrs() else {
            return Err(QueueError::NotForThisKind(
                "nice, cpumask, affinity_scope and affinity_strict are for unbound and ordered \
                 queues; this one is per-CPU",
            ));
        };
        let mut after = before.clone();
        assert_nothing_held("a change of attributes");
        change(&mut after);
        self.change(|wq, tunable| {
            let mut kind = tunable.kind.clone();
            if let Kind::Unbound(attrs) | Kind::Ordered(attrs) | Kind::Dedicated(attrs) = &mut kind
            {
                attrs.take_changes(before, after);
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
        let sets = std::mem::take(&mut *self.sets.lock());
        for UsedSet { set, counted } in sets {
            self.engine.count_limit(&set, 0, counted);
            self.engine.leave_set(&set);
        }
        deserted.iter().for_each(|&id| self.engine.nudge_all(self.engine.pool(id)));
        self.release_name();
    }
}
