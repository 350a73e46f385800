//! The engine as a whole: its configuration, its tables, and the pools that queues share.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::Scope;
use uwork_policy::topology::Topology;

use crate::host::Cpus;
use crate::host::Host;
use crate::inbox::Inbox;
use crate::item::word::{RunId, SLOTS_MAX};
use crate::item::{Ticket, Work};
use crate::lifecycle::cpus::Versions;
use crate::lifecycle::disposal::Disposal;
use crate::lifecycle::freeze::FreezeState;
use crate::lifecycle::shutdown::ShutdownState;
use crate::pool::Pool;
use crate::pool::PoolSet;
use crate::pool::cap::Cap;
use crate::queue::pwq::Pwq;
use crate::queue::registry::Registry;
use crate::queue::{Name, Wq};
use crate::slab::Slab;
use crate::slot::Slot;
use crate::sync::{AtomicBool, AtomicU32, Lock, LockGuard, Ordering, Rank};
use crate::timer::grace::Grace;
use crate::wake::WakeToken;
use crate::watch::Hogs;
use crate::watch::Watch;
use crate::watch::reports::PendingReports;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The machine.
    pub topology: Topology,
    /// The CPUs that the process may use at first. [`Engine::cpus`] gives the present ones.
    pub allowed: CpuSet,
    /// How many CPUs' worth of time the process gets at first (its CPU quota, rounded up), if it is
    /// limited.
    pub cpu_limit: Option<u32>,
    /// The CPUs that unbound queues may use at first (the kernel's `workqueue/cpumask`).
    pub unbound_cpumask: CpuSet,
    /// The affinity scope of queues that chose none.
    pub default_scope: Scope,
    /// Cores in a `cache_shard` pod.
    pub cache_shard_size: u32,
    /// How long a surplus idle worker stays before it retires, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// How many more threads the process may create, if that is limited.
    pub threads_max: Option<u64>,
}

impl Config {
    /// The defaults for a machine on which the process may use `allowed`.
    pub fn new(topology: Topology, allowed: CpuSet) -> Config {
        let Cpus { allowed, unbound_cpumask, cpu_limit } = Cpus::new(&topology, allowed, None);
        Config {
            unbound_cpumask,
            topology,
            allowed,
            cpu_limit,
            default_scope: Scope::Cache,
            cache_shard_size: 8,
            idle_timeout_ns: 300_000_000_000,
            threads_max: None,
        }
    }
}

/// The maximum number of pools of one engine.
const POOLS_MAX: u32 = 1 << 16;

/// An engine (see the module).
pub struct Engine<H: Host> {
    host: H,
    me: Weak<Engine<H>>,
    pub(crate) config: Config,
    versions: Versions,
    slots: Slab<Slot<H>>,
    pwqs: Slab<Pwq<H>>,
    pub(crate) pools: Slab<Pool<H>>,
    /// All pool sets, each with the key that it serves.
    pub(crate) sets: Lock<Vec<Arc<PoolSet>>>,
    /// Names of all queues.
    names: Lock<HashSet<Name>>,
    registry: Registry<H>,
    watch: Watch<H>,
    hogs: Hogs,
    pub(crate) cap: Cap,
    freeze: Lock<FreezeState<H>>,
    /// Freezes and thaws that have begun: odd while frozen. Written under the lock of `freeze`.
    freeze_epoch: AtomicU32,
    grace: Grace<H>,
    disposal: Disposal<H>,
    pending_reports: PendingReports,
    pub(crate) shutdown_state: ShutdownState,
    /// Set in a forked child until the work that comes with its first worker is done.
    pub(crate) fork_unfinished: AtomicBool,
    /// Queues whose last reference was held by a fork.
    left: Inbox<Wq<H>>,
}

impl<H: Host> Engine<H> {
    /// An engine without threads; queues create the pools and workers that they need.
    pub fn new(host: H, config: Config) -> Arc<Engine<H>> {
        Arc::new_cyclic(|me| Engine {
            host,
            me: me.clone(),
            versions: Versions::new(Cpus {
                allowed: config.allowed.clone(),
                unbound_cpumask: config.unbound_cpumask.clone(),
                cpu_limit: config.cpu_limit,
            }),
            config,
            slots: Slab::new(SLOTS_MAX),
            pwqs: Slab::new(Ticket::PWQS_MAX),
            pools: Slab::new(POOLS_MAX),
            sets: Lock::ranked(Rank::EngineSets, Vec::new()),
            names: Lock::new(HashSet::new()),
            registry: Registry::new(),
            watch: Watch::new(),
            hogs: Hogs::new(),
            cap: Cap::new(),
            freeze: Lock::ranked(Rank::Freeze, FreezeState::new()),
            freeze_epoch: AtomicU32::new(0),
            grace: Grace::new(),
            disposal: Disposal::new(),
            pending_reports: PendingReports::new(),
            shutdown_state: ShutdownState::new(),
            fork_unfinished: AtomicBool::new(false),
            left: Inbox::new(),
        })
    }

    /// The platform.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the calling thread is inside a run of this item.
    pub fn runs_item(&self, item: &Work) -> bool {
        item.word.snapshot().1.is_some_and(|run| self.runs(run, item))
    }

    /// Whether the calling thread is inside an item of the queue with this identity.
    pub fn runs_queue(&self, identity: *const ()) -> bool {
        // SAFETY: the host's promise for the calling thread.
        unsafe { &*self.host.thread() }.runs_queue(identity)
    }

    /// Whether the calling thread is inside any item.
    pub(crate) fn is_inside_an_item(&self) -> bool {
        // SAFETY: the host's promise for the calling thread.
        !unsafe { &*self.host.thread() }.frame().is_null()
    }

    /// Whether the calling thread is inside this run, which `item` names.
    pub(crate) fn runs(&self, run: RunId, item: &Work) -> bool {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host.thread() };
        // A slot in which this thread runs items can only be in a run that the thread is in.
        thread.runs_slot(run.slot) && self.slot(run.slot).is_running_item(run.run, item)
    }

    /// A counted reference; None while the engine is being destroyed.
    pub(crate) fn me(&self) -> Option<Arc<Engine<H>>> {
        self.me.upgrade()
    }

    /// Counts freezes and thaws: odd while frozen. It changes before the first queue does.
    ///
    /// A waiter reads it before it tries to help, and again under the pwq's lock before it joins the
    /// chain of waiters. A thaw takes the waiters out under the same lock. So the waiter sees the
    /// change, or the thaw finds the waiter.
    pub fn freeze_epoch(&self) -> u32 {
        self.freeze_epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn next_freeze_epoch(&self) {
        self.freeze_epoch.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn freeze_state(&self) -> &Lock<FreezeState<H>> {
        &self.freeze
    }

    pub(crate) fn grace(&self) -> &Grace<H> {
        &self.grace
    }

    pub(crate) fn disposal(&self) -> &Disposal<H> {
        &self.disposal
    }

    pub(crate) fn pending_reports(&self) -> &PendingReports {
        &self.pending_reports
    }

    pub(crate) fn hogs(&self) -> &Hogs {
        &self.hogs
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    pub(crate) fn registry(&self) -> &Registry<H> {
        &self.registry
    }

    pub(crate) fn watch_state(&self) -> &Watch<H> {
        &self.watch
    }

    /// Visits every pool that is or was in use. Takes no lock, since pools are never destroyed.
    pub(crate) fn for_each_pool(&self, f: impl FnMut(&Pool<H>)) {
        let pools = (0..POOLS_MAX).map_while(|id| self.pools.get(id));
        pools.take_while(|pool| pool.is_configured()).for_each(f);
    }

    pub(crate) fn slots(&self) -> &Slab<Slot<H>> {
        &self.slots
    }

    pub(crate) fn pwqs(&self) -> &Slab<Pwq<H>> {
        &self.pwqs
    }

    /// The slot with an id that was given out.
    pub(crate) fn slot(&self, id: u32) -> &Slot<H> {
        self.slots.get(id).expect("a slot id that was given out names a slot")
    }

    /// The pool with an id that was given out.
    pub(crate) fn pool(&self, id: u32) -> &Pool<H> {
        self.pools.get(id).expect("a pool id that was given out names a pool")
    }

    /// Takes a free run slot.
    pub(crate) fn allocate_slot(&self) -> Option<u32> {
        self.slots.allocate(|_| Slot::new()).map(|(id, _)| id)
    }

    /// Queues whose last reference was held by a fork, until they are released.
    pub(crate) fn left(&self) -> &Inbox<Wq<H>> {
        &self.left
    }

    /// Locks the list of pool sets.
    pub(crate) fn lock_sets(&self) -> LockGuard<'_, Vec<Arc<PoolSet>>> {
        self.sets.lock()
    }

    pub(crate) fn lock_names(&self) -> LockGuard<'_, HashSet<Name>> {
        self.names.lock()
    }

    pub(crate) fn pools_table(&self) -> &Slab<Pool<H>> {
        &self.pools
    }

    /// Registers a queue's name. Returns false if it is taken.
    pub(crate) fn claim_name(&self, name: Name) -> bool {
        self.names.lock().insert(name)
    }

    pub(crate) fn release_name(&self, name: &Name) {
        self.names.lock().remove(name);
    }

    /// Asks every worker to exit once it finds no work. Call it when all queues are destroyed or
    /// accept no items.
    pub fn retire(&self) {
        self.retire_pools();
        self.retire_watch();
    }

    pub(crate) fn retire_pools(&self) {
        self.for_each_pool(|pool| {
            pool.state.set_retired(true);
            self.nudge_all(pool);
        });
    }

    /// Wakes every parked worker of a pool without picking it, as the pool has changed in more than
    /// its items: each one checks retirement and timers.
    pub(crate) fn nudge_all(&self, pool: &Pool<H>) {
        let mut events = Vec::new();
        let inner = pool.lock();
        let mut idle = inner.idle.top();
        while let Some(id) = idle {
            let slot = self.slot(id);
            events.push(&raw const slot.event);
            idle = inner.idle.below(slot);
        }
        drop(inner);
        for event in events {
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(event) }.send(&self.host);
        }
        self.settle(pool);
    }

    /// Pools that are or were in use. Pools are reused and never destroyed.
    pub fn pools(&self) -> u32 {
        let mut pools = 0;
        self.for_each_pool(|_| pools += 1);
        pools
    }

    /// Worker threads that exist at this moment.
    pub fn workers(&self) -> u32 {
        let mut workers = 0;
        self.for_each_pool(|pool| workers += pool.state.counts().workers);
        workers
    }
}
