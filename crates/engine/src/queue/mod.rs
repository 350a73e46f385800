//! A queue: a name, attributes, and a pwq for each pool that its items may run on.

mod chain;
pub(crate) mod flush;
mod gate;
mod limits;
mod name;
mod names;
pub(crate) mod owner;
mod pause;
pub(crate) mod pwq;
pub(crate) mod registry;
mod round_robin;
mod route;
mod spec;
pub(crate) mod submit;

use std::sync::{Arc, OnceLock};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::EffectiveAffinityScope;

pub use chain::Chain;
pub(crate) use gate::{SEALED, SHUT};
pub(crate) use limits::BecameReady;
pub(crate) use name::Name;
pub use name::path_char;
pub(crate) use names::{Names, Taken};
pub use owner::{Queue, QueueMemory};
pub use spec::{
    Attrs, Kind, MAX_ACTIVE_DEFAULT, MAX_ACTIVE_LIMIT, NAME_MAX, NICE_HIGHPRI, QueueError,
    QueueSpec, scope_names,
};
pub use submit::Queued;

use crate::engine::Engine;
use crate::pool::Pool;
use crate::pool::PoolSet;
use crate::queue::flush::FlushState;
use crate::queue::pwq::Pwq;
use crate::words::host::{Cpus, Demands, Host};
use crate::words::item::Work;
use crate::words::sync::{
    AtomicBool, AtomicU32, AtomicU64, Cell, Link, Lock, LockGuard, Ordering, Rank,
    assert_nothing_held,
};
use crate::worker::rescuer::Rescuer;
use gate::{Admits, Gate};
use limits::Nodes;
use round_robin::RoundRobin;
pub(crate) use route::Destination;
use route::Route;

/// Conditions that are reported once for each queue.
pub(crate) struct Warned;

impl Warned {
    pub(crate) const REFUSED: u32 = 1;
    pub(crate) const BH_WAITS: u32 = 2;
    pub(crate) const FLUSH_DEPENDENCY: u32 = 4;
    pub(crate) const READ_SIDE_LEFT: u32 = 8;
    pub(crate) const SLACK_BEYOND_PERIOD: u32 = 16;
}

/// A queue.
pub struct Wq<H: Host> {
    engine: Arc<Engine<H>>,
    name: Name,
    /// Whether the name was released for use by another queue.
    name_released: AtomicBool,
    /// The next queue in the list of those whose last reference a fork held. Guard: the owner of
    /// the whole list.
    pub(crate) next_unreleased: Cell<Link<Wq<H>>>,
    /// The queue's position in the list of all queues.
    registered: AtomicU64,
    /// By CPU id; null for CPUs that the queue does not use. Replaced entry by entry.
    routes: Box<[Route<H>]>,
    /// Whose submissions it accepts.
    pub(crate) gate: Gate,
    /// The reports made about this queue: bits of [`Warned`].
    warned: AtomicU32,
    /// Distributes submitters outside of the mask over its CPUs.
    turns: RoundRobin,
    ordered: bool,
    /// Whether it was created as a per-CPU queue.
    per_cpu: bool,
    /// Whether a queue that was created as a per-CPU one is unbound at present, to save power.
    floats: AtomicBool,
    flags: Flags,
    /// How much later than their deadlines its timers may expire, in nanoseconds.
    timer_slack_ns: AtomicU64,
    /// The shortest delay, below its slack, for which an item has armed itself, and the item: an
    /// [`armed_for`].
    shortest_period: AtomicU64,
    /// The last such delay and item.
    last_period: AtomicU64,
    tunable: Lock<Tunable>,
    /// Whether `pauses` of `tunable` is not 0: for readers under the lock of a pwq.
    paused: AtomicBool,
    /// The nodes among which the limit of an unbound queue is divided; none for others. Constant.
    nodes: Option<Nodes<H>>,
    /// Every pwq that the queue ever had: they are reused when their pool is used again, and
    /// released with the queue.
    pwqs: Lock<Vec<(u32, u32)>>,
    pub(crate) flush: Lock<FlushState<H>>,
    /// The pool sets that the pwqs are on; the queue leaves them when it is dropped.
    sets: Lock<Vec<UsedSet>>,
    demands: Demands,
    /// Set while the queue is created.
    rescuer: OnceLock<Rescuer<H>>,
}

/// A delay and the item that has armed itself for it, in one word: the shorter the delay, the
/// smaller. The lowest bits are a hash of the item's address.
fn armed_for(item: &Work, delay_ns: u64) -> u64 {
    const HASH_BITS: u32 = 20;
    let address = std::ptr::from_ref(item).addr() as u64;
    // 2^64 divided by the golden ratio: nearby addresses get distant values.
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS);
    delay_ns.min(u64::MAX >> HASH_BITS) << HASH_BITS | hash
}

/// A pool set that a queue uses.
struct UsedSet {
    set: Arc<PoolSet>,
    /// The limit that the set's pools count for the queue (`Pool::limits`).
    counted: u32,
}

/// A queue's pwqs.
pub(crate) struct Pwqs<'a, H: Host> {
    engine: &'a Engine<H>,
    ids: LockGuard<'a, Vec<(u32, u32)>>,
}

impl<H: Host> Pwqs<'_, H> {
    pub(crate) fn for_each(&self, f: impl FnMut(&Pwq<H>)) {
        self.ids.iter().filter_map(|&(id, _)| self.engine.pwqs.get(id)).for_each(f);
    }

    /// Calls `f` with each pwq and the pool that it was created for.
    fn for_each_with_pool(&self, mut f: impl FnMut(&Pwq<H>, &Pool<H>)) {
        for &(id, pool) in &*self.ids {
            if let Some(pwq) = self.engine.pwqs.get(id) {
                f(pwq, self.engine.pool(pool));
            }
        }
    }
}

/// The settings of a queue that can change while it is in use.
pub(crate) struct Tunable {
    kind: Kind,
    max_active: u32,
    /// The least share of it for a node.
    min_active: u32,
    /// Whether the queue is frozen: no item may start.
    frozen: bool,
    /// How many pauses have begun and not ended.
    pauses: u32,
    /// Whether the queue has ended: its items have run, and it gets no more.
    ended: bool,
    effective: Option<EffectiveAffinityScope>,
    mask: CpuSet,
    /// The value of the engine's CPUs that the routes are for.
    fitted: *const Cpus,
    /// The pools that the routes lead to.
    routed: Vec<u32>,
}

// SAFETY: `fitted` is only compared.
unsafe impl Send for Tunable {}

impl<H: Host> Wq<H> {
    /// Creates a queue. With `numbered` a name that is taken gets a number, from this one on, where 1
    /// is the name itself.
    ///
    /// # Errors
    /// See [`QueueError`]; an error leaves nothing behind.
    fn new(
        engine: &Arc<Engine<H>>,
        spec: QueueSpec,
        numbered: Option<u32>,
    ) -> Result<Box<Wq<H>>, QueueError> {
        let Some(name) = Name::new(&spec.name) else {
            return Err(QueueError::BadName(spec.name));
        };
        if spec.max_active == 0 || spec.max_active > MAX_ACTIVE_LIMIT {
            return Err(QueueError::BadMaxActive(spec.max_active));
        }
        let name = match numbered {
            Some(first) => engine.names.claim_numbered(name, first),
            None if engine.names.claim(name) => name,
            None => return Err(QueueError::NameTaken(spec.name)),
        };
        Wq::with_name(engine, spec, name)
    }

    /// Creates a queue with a name that was claimed for it.
    fn with_name(
        engine: &Arc<Engine<H>>,
        spec: QueueSpec,
        name: Name,
    ) -> Result<Box<Wq<H>>, QueueError> {
        let ordered = matches!(spec.kind, Kind::Ordered(_) | Kind::Dedicated(_));
        let cpus = engine.config().topology.possible().last().map_or(1, |last| last + 1);
        let tunable = Tunable::new(spec.kind.clone(), spec.max_active);
        let wq = Box::new(Wq {
            engine: engine.clone(),
            name,
            name_released: AtomicBool::new(false),
            next_unreleased: Cell::new(Link(std::ptr::null_mut())),
            registered: AtomicU64::new(0),
            routes: (0..cpus).map(|_| Route::new()).collect(),
            gate: Gate::new(),
            warned: AtomicU32::new(0),
            turns: RoundRobin::new(cpus),
            ordered,
            per_cpu: matches!(spec.kind, Kind::PerCpu),
            floats: AtomicBool::new(false),
            flags: spec.flags,
            timer_slack_ns: AtomicU64::new(0),
            shortest_period: AtomicU64::new(u64::MAX),
            last_period: AtomicU64::new(u64::MAX),
            tunable: Lock::ranked(Rank::Tunable, tunable),
            paused: AtomicBool::new(false),
            nodes: (matches!(spec.kind, Kind::Unbound(_))
                && !spec.flags.contains(Flags::POD_LIMITS))
            .then(|| Nodes::new(&engine.config().topology)),
            pwqs: Lock::ranked(Rank::Pwqs, Vec::new()),
            flush: Lock::ranked(Rank::Flush, FlushState::new()),
            sets: Lock::ranked(Rank::QueueSets, Vec::new()),
            demands: Demands::new(),
            rescuer: OnceLock::new(),
        });
        // From here on, an early return drops the box, which undoes everything.
        if spec.flags.contains(Flags::MEM_RECLAIM) {
            let rescuer = Rescuer::new(engine)?;
            let fresh = wq.rescuer.set(rescuer).is_ok();
            debug_assert!(fresh, "the queue is new");
        }
        if wq.flags.contains(Flags::FREEZABLE) {
            engine.freeze.enter(engine, &wq);
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

    /// A value to compare queues by: no other queue has it while this one lives.
    pub fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// The flags that the queue was created with. A power-efficient per-CPU queue is `UNBOUND`
    /// instead of `PERCPU` while power is saved.
    pub fn flags(&self) -> Flags {
        match self.floats.load(Ordering::Relaxed) {
            true => (self.flags - Flags::PERCPU) | Flags::UNBOUND,
            false => self.flags,
        }
    }

    /// How much later than their deadlines timers that are armed on the queue may expire, in
    /// nanoseconds.
    pub fn timer_slack(&self) -> u64 {
        self.timer_slack_ns.load(Ordering::Relaxed)
    }

    /// Changes [`Wq::timer_slack`] for timers that are armed from now on. An item with a longer
    /// slack keeps its own.
    pub fn set_timer_slack(&self, slack_ns: u64) {
        self.timer_slack_ns.store(slack_ns, Ordering::Relaxed);
    }

    /// An item has armed itself for so long. Whether the shortest such delay of the queue recurs with
    /// that item, or the last one, and so is a period: an item that follows a fixed grid has another
    /// delay after each run.
    pub(crate) fn is_period(&self, item: &Work, delay_ns: u64) -> bool {
        let armed = armed_for(item, delay_ns);
        let shortest = self.shortest_period.fetch_min(armed, Ordering::Relaxed);
        let last = self.last_period.swap(armed, Ordering::Relaxed);
        shortest == armed || last == armed
    }

    /// The engine that runs the queue.
    pub fn engine(&self) -> &Arc<Engine<H>> {
        &self.engine
    }

    /// Marks a condition as reported. Returns whether this is the first time for the queue.
    pub(crate) fn warn_once(&self, what: u32) -> bool {
        self.warned.fetch_or(what, Ordering::Relaxed) & what == 0
    }

    pub(crate) fn rescuer(&self) -> Option<&Rescuer<H>> {
        self.rescuer.get()
    }

    /// What the host must do on each thread before it runs an item of the queue.
    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    /// Whether items run on the CPU that queued them.
    pub fn is_per_cpu(&self) -> bool {
        self.per_cpu && !self.floats.load(Ordering::Relaxed)
    }

    /// Whether items run on the CPU that queued them, whatever the settings: a power-efficient queue
    /// can become unbound at any time.
    pub fn stays_per_cpu(&self) -> bool {
        self.per_cpu && !self.flags.contains(Flags::POWER_EFFICIENT)
    }

    /// Whether items run one at a time and in order.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Where items may run at present.
    pub fn kind(&self) -> Kind {
        self.tunable.lock().kind.clone()
    }

    /// The scope in effect; none for per-CPU queues.
    pub fn effective_scope(&self) -> Option<EffectiveAffinityScope> {
        self.tunable.lock().effective
    }

    /// The CPUs in use.
    pub fn cpus(&self) -> CpuSet {
        self.tunable.lock().mask.clone()
    }

    /// Changes the attributes of an unbound or ordered queue while it is in use. Items that are
    /// queued already run where they are; ordered ones keep their order.
    ///
    /// `change` gets a copy, and runs without locks held. Another change may happen at the same
    /// time. Then each attribute that `change` leaves alone keeps the value that the other change
    /// gave it.
    ///
    /// # Errors
    /// For per-CPU queues, and as those of a new queue; an error changes nothing.
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

    /// Locks the settings that can change.
    pub(crate) fn hold_tunable(&self) -> LockGuard<'_, Tunable> {
        self.tunable.lock()
    }

    /// In a forked child, once no thread holds the queue: ends drains that the parent began, and
    /// resets the rescuer, whose thread does not exist here.
    pub(crate) fn forget(&self) {
        self.gate.forget_drains();
        if let Some(rescuer) = self.rescuer() {
            rescuer.forget();
        }
    }

    /// The queue's pwqs, under the lock that prevents additions.
    pub(crate) fn pwqs(&self) -> Pwqs<'_, H> {
        Pwqs { engine: &self.engine, ids: self.pwqs.lock() }
    }

    /// The queue's pwqs, with the pools that they were created for.
    pub(crate) fn pwq_ids(&self) -> Vec<(u32, u32)> {
        let room = self.pwqs.lock().len();
        let mut ids = Vec::with_capacity(room);
        // A pwq that is added between the two locks is missing, which is harmless: it is new.
        ids.extend(self.pwqs.lock().iter().take(room));
        ids
    }

    /// Whether this pwq, which an item's ticket names, belongs to the queue.
    pub(crate) fn owns(&self, pwq: &Pwq<H>) -> bool {
        std::ptr::eq(pwq.wq(), self)
    }

    /// Releases the name for other queues. Only once: another queue may have taken it since.
    pub(crate) fn release_name(&self) {
        if !self.name_released.swap(true, Ordering::SeqCst) {
            self.engine.names.release(&self.name);
        }
    }

    /// Whether the gate admits an item that the calling thread submits.
    #[inline]
    fn admits_caller(&self) -> bool {
        match self.gate.admits() {
            Admits::All => true,
            Admits::ItemsOfAnyQueue => self.runs_here() || self.engine.caller().is_inside_an_item(),
            Admits::ItemsOfTheQueue => self.runs_here(),
            Admits::Nothing => false,
        }
    }
}

impl<H: Host> Drop for Wq<H> {
    /// Waits until everything that is queued has run.
    fn drop(&mut self) {
        self.gate.close();
        self.end_pauses();
        self.settle();
        self.stop_rescuer();
        if self.flags.contains(Flags::FREEZABLE) {
            self.engine.freeze.leave(self);
        }
        let pwqs = std::mem::take(&mut *self.pwqs.lock());
        let known = |&(id, _): &(u32, u32)| self.engine.pwqs.get(id);
        for pwq in pwqs.iter().filter_map(known) {
            // The last worker may still be between the end of its last item and the release of the
            // pwq.
            let mut round = 0;
            while !pwq.detach() {
                self.engine.host().relax(round);
                round += 1;
            }
        }
        // In a second pass: a worker that released one pwq may have passed its permit to another of
        // them.
        for pwq in pwqs.iter().filter_map(known) {
            if pwq.kill() {
                self.engine.pwqs.release(pwq.id);
            }
        }
        let routed = std::mem::take(&mut self.tunable.lock().routed);
        let deserted = self.remove_routes(routed);
        let sets = std::mem::take(&mut *self.sets.lock());
        for UsedSet { set, counted } in sets {
            set.count_limit(&self.engine, 0, counted);
            self.engine.sets.leave_set(&self.engine, &set);
        }
        deserted.iter().for_each(|&id| self.engine.pool(id).wake_all_parked(&self.engine));
        self.release_name();
    }
}
