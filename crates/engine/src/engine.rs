//! The engine as a whole: its configuration, its tables, and the pools that queues share.

use std::sync::{Arc, Weak};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, DEFAULT_SHARD_SIZE};
use uwork_policy::topology::Topology;

use crate::account::Functions;
use crate::lifecycle::cpus::Versions;
use crate::lifecycle::disposal::Disposal;
use crate::lifecycle::fork::ForkState;
use crate::lifecycle::freeze::Freeze;
use crate::lifecycle::housekeeping::{Fit, Housekeeping};
use crate::lifecycle::shutdown::ShutdownState;
use crate::pool::Pool;
use crate::pool::PoolSets;
use crate::pool::cap::Cap;
use crate::queue::pwq::Pwq;
use crate::queue::registry::Registry;
use crate::queue::{NICE_HIGHPRI, Names, Wq};
use crate::slot::{Slot, SpareSlots};
use crate::timer::grace::Grace;
use crate::watch::Hogs;
use crate::watch::Watch;
use crate::watch::reports::PendingReports;
use crate::watch::standby::Standbys;
use crate::words::host::{Cpus, Host, WorkerSpec};
use crate::words::inbox::Inbox;
use crate::words::item::word::SLOTS_MAX;
use crate::words::item::{Ticket, Work};
use crate::words::slab::Slab;
use crate::words::wake::WakeToken;
use crate::worker::Caller;

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
    /// The affinity scope of queues that chose none, at first. [`Engine::housekeeping`] gives the
    /// present one, and those of the next two.
    pub default_scope: AffinityScope,
    /// Cores in a `cache_shard` pod, at first.
    pub cache_shard_size: u32,
    /// Whether power-efficient queues save power at first.
    pub power_efficient: bool,
    /// How long a surplus idle worker stays before it retires, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// How many more threads the process may create, if that is limited.
    pub threads_max: Option<u64>,
    /// The niceness of the process. Queues that chose none have it, and threads that run no items.
    pub nice: i32,
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
            default_scope: AffinityScope::Cache,
            cache_shard_size: DEFAULT_SHARD_SIZE,
            power_efficient: false,
            idle_timeout_ns: 300_000_000_000,
            threads_max: None,
            nice: 0,
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
    pub(crate) versions: Versions,
    pub(crate) slots: Slab<Slot<H>>,
    pub(crate) spare_slots: SpareSlots,
    pub(crate) pwqs: Slab<Pwq<H>>,
    pub(crate) pools: Slab<Pool<H>>,
    pub(crate) sets: PoolSets,
    pub(crate) names: Names,
    pub(crate) registry: Registry<H>,
    pub(crate) watch: Watch<H>,
    pub(crate) standbys: Standbys<H>,
    pub(crate) hogs: Hogs,
    /// The counters of functions that found no room in their slots.
    pub(crate) functions: Functions,
    pub(crate) cap: Cap,
    pub(crate) freeze: Freeze<H>,
    pub(crate) grace: Grace<H>,
    pub(crate) disposal: Disposal<H>,
    pub(crate) reports: PendingReports,
    pub(crate) shutdown_state: ShutdownState,
    pub(crate) fork: ForkState,
    /// Queues whose last reference was held by a fork, until they are released.
    pub(crate) left: Inbox<Wq<H>>,
}

impl<H: Host> Engine<H> {
    /// An engine without threads; queues create the pools and workers that they need.
    pub fn new(host: H, config: Config) -> Arc<Engine<H>> {
        let cpus = Cpus {
            allowed: config.allowed.clone(),
            unbound_cpumask: config.unbound_cpumask.clone(),
            cpu_limit: config.cpu_limit,
        };
        let fit = Fit::new(cpus, Housekeeping::new(&config));
        let spare_slots = SpareSlots::new(config.topology.cpus().len());
        Arc::new_cyclic(|me| Engine {
            host,
            me: me.clone(),
            versions: Versions::new(fit),
            standbys: Standbys::new(config.topology.cpus()),
            config,
            slots: Slab::new(SLOTS_MAX),
            spare_slots,
            pwqs: Slab::new(Ticket::PWQS_MAX),
            pools: Slab::new(POOLS_MAX),
            sets: PoolSets::new(),
            names: Names::new(),
            registry: Registry::new(),
            watch: Watch::new(),
            hogs: Hogs::new(),
            functions: Functions::new(),
            cap: Cap::new(),
            freeze: Freeze::new(),
            grace: Grace::new(),
            disposal: Disposal::new(),
            reports: PendingReports::new(),
            shutdown_state: ShutdownState::new(),
            fork: ForkState::new(),
            left: Inbox::new(),
        })
    }

    /// The platform.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The part of the platform that observes threads.
    #[inline]
    pub(crate) fn observer(&self) -> &H::Observer {
        self.host.observer()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The niceness of a queue with these flags that chose none.
    pub fn default_nice(&self, flags: Flags) -> i32 {
        if flags.contains(Flags::HIGHPRI) { NICE_HIGHPRI } else { self.config.nice }
    }

    /// A thread that runs no items, at the process's niceness.
    pub(crate) fn service(&self, name: impl Into<String>, cpus: CpuSet) -> WorkerSpec {
        WorkerSpec { name: name.into(), cpus, nice: self.config.nice, runner: None }
    }

    /// The calling thread.
    #[inline]
    pub(crate) fn caller(&self) -> Caller<'_, H> {
        Caller::of(self)
    }

    /// Whether the calling thread is inside a run of this item.
    pub fn runs_item(&self, item: &Work) -> bool {
        item.word.snapshot().1.is_some_and(|run| self.caller().runs(run, item))
    }

    /// Whether the calling thread is inside an item of the queue with this identity.
    pub fn runs_queue(&self, identity: *const ()) -> bool {
        self.caller().thread.runs_queue(identity)
    }

    /// A counted reference; None while the engine is being destroyed.
    pub(crate) fn me(&self) -> Option<Arc<Engine<H>>> {
        self.me.upgrade()
    }

    /// How many workers there are.
    pub fn nr_workers(&self) -> u64 {
        let mut workers = 0;
        self.for_each_pool(|pool| workers += u64::from(pool.state.counts().workers));
        workers
    }

    /// Visits every pool that is or was in use. Takes no lock, since pools are never destroyed.
    pub(crate) fn for_each_pool(&self, f: impl FnMut(&Pool<H>)) {
        let pools = (0..POOLS_MAX).map_while(|id| self.pools.get(id));
        pools.take_while(|pool| pool.is_configured()).for_each(f);
    }

    /// The slot with an id that was given out.
    #[track_caller]
    pub(crate) fn slot(&self, id: u32) -> &Slot<H> {
        self.slots.get(id).expect("a slot id that was given out names a slot")
    }

    /// The pool with an id that was given out.
    #[track_caller]
    pub(crate) fn pool(&self, id: u32) -> &Pool<H> {
        self.pools.get(id).expect("a pool id that was given out names a pool")
    }

    /// Asks every worker to exit once it finds no work. Call it when all queues are destroyed or
    /// accept no items.
    pub fn retire(&self) {
        self.for_each_pool(|pool| pool.retire(self));
        self.watch.retire(self);
        self.standbys.retire(self);
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

impl<H: Host> Engine<H> {
    /// Wakes every parked worker and rescuer once: before it parks again it asks
    /// [`Host::hooks_are_due`] or calls [`Host::outside_items`]. A thread that runs items does so
    /// before it parks next. Called without locks.
    pub fn wake_parked_threads(&self) {
        self.slots.for_each(|(_, slot)| {
            // All slots: a worker that begins, and that the wake must not miss, looks like a free one.
            // A later owner of a free slot parks once more.
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(&raw const slot.event) }.send(self.host());
        });
    }
}
