//! The engine as a whole: the machine it runs on, its tables, and the pools it shares out.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::Scope;
use uwork_policy::topology::Topology;

use crate::host::{Host, Report, WorkerSpec};
use crate::pool::state::WORKERS_MAX;
use crate::pool::{NEVER, Pool, PoolSpec};
use crate::pwq::Pwq;
use crate::queue::QueueError;
use crate::registry::Registry;
use crate::shutdown::Ending;
use crate::slab::Slab;
use crate::slot::Slot;
use crate::sync::{AtomicU32, Lock, Ordering};
use crate::wake::WakeToken;
use crate::watch::{Watch, others_may_help};
use crate::word::{RunId, SLOTS_MAX};
use crate::work::Ticket;
use crate::worker::Worker;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The machine.
    pub topology: Topology,
    /// The CPUs that the process may use.
    pub allowed: CpuSet,
    /// How many CPUs' worth of time the process gets (its CPU quota, rounded up), if it is limited.
    pub cpu_limit: Option<u32>,
    /// The CPUs that unbound queues may use (the kernel's `workqueue/cpumask`).
    pub unbound_cpumask: CpuSet,
    /// The scope of queues that did not choose one.
    pub default_scope: Scope,
    /// Cores in a `cache_shard` pod.
    pub cache_shard_size: u32,
    /// How long an idle worker stays when there are too many, in nanoseconds.
    pub idle_timeout_ns: u64,
}

impl Config {
    /// The defaults for a machine of which the process may use `allowed`.
    pub fn new(topology: Topology, allowed: CpuSet) -> Config {
        let unbound = allowed.and_not(topology.isolated());
        Config {
            unbound_cpumask: if unbound.is_empty() { allowed.clone() } else { unbound },
            topology,
            allowed,
            cpu_limit: None,
            default_scope: Scope::Cache,
            cache_shard_size: 8,
            idle_timeout_ns: 300_000_000_000,
        }
    }
}

/// The greatest number of pools of one engine.
const POOLS_MAX: u32 = 1 << 16;

/// See the module.
pub struct Engine<H: Host> {
    host: H,
    me: Weak<Engine<H>>,
    config: Config,
    slots: Slab<Slot<H>>,
    pwqs: Slab<Pwq<H>>,
    pools: Slab<Pool<H>>,
    /// Pool sets that exist, by what they are for.
    sets: Lock<Vec<Arc<PoolSet>>>,
    /// Names of the queues that exist.
    names: Lock<HashSet<String>>,
    registry: Registry<H>,
    watch: Watch<H>,
    pub(crate) ending: Ending,
}

/// What makes two queues share pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetKey {
    pub(crate) pods: Vec<CpuSet>,
    pub(crate) nice: i32,
    /// Pools of CPU-bound queues run one worker at a time and share with nobody.
    pub(crate) bound: bool,
    /// Whether pods keep to themselves.
    pub(crate) strict: bool,
}

/// The pools of one kind, one for each pod.
#[derive(Debug)]
pub(crate) struct PoolSet {
    key: SetKey,
    /// Pool ids, in the order of the pods.
    pub(crate) pools: Vec<u32>,
    /// Queues that use the set. Changed under the lock of the list of sets.
    users: AtomicU32,
}

impl PoolSet {
    /// The position of the pod that holds this CPU.
    pub(crate) fn pod_of(&self, cpu: u32) -> Option<usize> {
        self.key.pods.iter().position(|pod| pod.contains(cpu))
    }
}

impl<H: Host> Engine<H> {
    /// An engine without threads; pools and their workers come with the queues that need them.
    pub fn new(host: H, config: Config) -> Arc<Engine<H>> {
        Arc::new_cyclic(|me| Engine {
            host,
            me: me.clone(),
            config,
            slots: Slab::new(SLOTS_MAX),
            pwqs: Slab::new(Ticket::PWQS_MAX),
            pools: Slab::new(POOLS_MAX),
            sets: Lock::new(Vec::new()),
            names: Lock::new(HashSet::new()),
            registry: Registry::new(),
            watch: Watch::new(),
            ending: Ending::new(),
        })
    }

    /// The platform.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The setup.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the calling thread is inside a run of this item.
    pub fn runs_item(&self, item: &crate::work::Work) -> bool {
        item.word.snapshot().1.is_some_and(|run| self.runs(run))
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

    /// Whether the calling thread is inside this run.
    pub(crate) fn runs(&self, run: RunId) -> bool {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host.thread() };
        // A slot that this thread runs items in can only be in the run that the thread is in.
        thread.runs_slot(run.slot) && self.slot(run.slot).is_running(run.run)
    }

    /// A counted reference, unless the engine is going away.
    pub(crate) fn me(&self) -> Option<Arc<Engine<H>>> {
        self.me.upgrade()
    }

    pub(crate) fn watch_state(&self) -> &Watch<H> {
        &self.watch
    }

    pub(crate) fn registry(&self) -> &Registry<H> {
        &self.registry
    }

    /// Visits every pool that has been put to use. Takes no lock: pools never go away.
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

    /// A slot by an id that was given out.
    pub(crate) fn slot(&self, id: u32) -> &Slot<H> {
        self.slots.get(id).expect("a slot id that was given out names a slot")
    }

    /// A pool by an id that was given out.
    pub(crate) fn pool(&self, id: u32) -> &Pool<H> {
        self.pools.get(id).expect("a pool id that was given out names a pool")
    }

    /// Takes a free run slot.
    pub(crate) fn allocate_slot(&self) -> Option<u32> {
        self.slots.allocate(|_| Slot::new()).map(|(id, _)| id)
    }

    /// Registers a queue's name. False if it is taken.
    pub(crate) fn claim_name(&self, name: &str) -> bool {
        self.names.lock().insert(name.to_owned())
    }

    pub(crate) fn release_name(&self, name: &str) {
        self.names.lock().remove(name);
    }

    /// The pools for this key, with a worker each, used by one more queue.
    pub(crate) fn pool_set(&self, key: SetKey) -> Result<Arc<PoolSet>, QueueError> {
        let set = self.find_or_make_set(key)?;
        // Threads are made without the lock. A pool that somebody else is giving its first worker
        // has it claimed.
        for &id in &set.pools {
            // A queue that takes nothing needs nobody.
            let deserted = !self.is_shut_down() && self.pool(id).lock().workers.is_empty();
            if deserted && let Err(error) = self.create_first_worker(self.pool(id)) {
                self.leave_set(&set);
                return Err(error);
            }
        }
        if !self.is_shut_down() && set.pools.iter().any(|&id| others_may_help(self.pool(id))) {
            // Now rather than on the way of the first item that has to wait. A failure is tried
            // again then.
            self.start_watch();
        }
        Ok(set)
    }

    fn find_or_make_set(&self, key: SetKey) -> Result<Arc<PoolSet>, QueueError> {
        let mut sets = self.sets.lock();
        if let Some(set) = sets.iter().find(|set| set.key == key) {
            set.users.fetch_add(1, Ordering::SeqCst);
            // Workers decide to exit under the pool lock: those that are left from now on stay.
            if !self.is_shut_down() {
                set.pools.iter().for_each(|&id| self.pool(id).state.set_retired(false));
            }
            return Ok(set.clone());
        }
        let mut pools = Vec::with_capacity(key.pods.len());
        for _ in &key.pods {
            let (id, _) = self.pools.allocate(Pool::new).ok_or(QueueError::TooManyPools)?;
            pools.push(id);
        }
        for (index, pod) in key.pods.iter().enumerate() {
            let spec = PoolSpec {
                cpus: pod.clone(),
                nice: key.nice,
                label: label(&key, pod),
                confined: key.bound,
                shares: !key.bound && !key.strict && key.pods.len() > 1,
                neighbours: self.neighbours(&key, &pools, index),
            };
            let cpus = (pod.len() as u32).min(self.config.cpu_limit.unwrap_or(u32::MAX));
            let target = if key.bound { 1 } else { cpus };
            self.pool(pools[index]).configure(spec, target);
        }
        let set = Arc::new(PoolSet { key, pools, users: AtomicU32::new(1) });
        sets.push(set.clone());
        Ok(set)
    }

    /// A queue does not use the set any more. The last one sends the workers home, unless there are
    /// timers to be watched: then they stay until the set is used and left again.
    pub(crate) fn leave_set(&self, set: &PoolSet) {
        let sets = self.sets.lock();
        let last = set.users.fetch_sub(1, Ordering::SeqCst) == 1;
        let armed = |&id: &u32| self.pool(id).next_timer.load(Ordering::SeqCst) != NEVER;
        let retire = last && !set.pools.iter().any(armed);
        if retire {
            set.pools.iter().for_each(|&id| self.pool(id).state.set_retired(true));
        }
        drop(sets);
        if retire {
            set.pools.iter().for_each(|&id| self.nudge_all(self.pool(id)));
        }
    }

    fn neighbours(&self, key: &SetKey, pools: &[u32], of: usize) -> Vec<u32> {
        if key.bound || key.strict {
            return Vec::new();
        }
        let distance = |pod: &CpuSet| match (key.pods[of].first(), pod.first()) {
            (Some(a), Some(b)) => (self.config.topology.distance(a, b), a.abs_diff(b)),
            _ => (u32::MAX, 0),
        };
        let mut others: Vec<usize> = (0..pools.len()).filter(|&other| other != of).collect();
        others.sort_by_key(|&other| distance(&key.pods[other]));
        others.into_iter().map(|other| pools[other]).collect()
    }

    /// A pool without any worker could never run an item, so the first must exist before a queue
    /// may use the pool.
    fn create_first_worker(&self, pool: &Pool<H>) -> Result<(), QueueError> {
        if pool.state.begin_wake(1) { self.try_spawn(pool) } else { Ok(()) }
            .map_err(QueueError::NoThread)
    }

    /// Creates a worker for which the wake was claimed. Failing is not fatal: the pool has others.
    pub(crate) fn spawn_worker(&self, pool: &Pool<H>) {
        let Err(reason) = self.try_spawn(pool) else { return };
        // While the claim stood, others left the waking to us, and a worker may have parked. One
        // that parks from here on sees what is ready by itself.
        while pool.looks_ready() && pool.state.begin_wake(pool.target()) {
            if pool.wake_idle(self) || pool.state.counts().idle == 0 {
                break;
            }
        }
        self.host.report(Report::SpawnFailed { reason });
    }

    fn try_spawn(&self, pool: &Pool<H>) -> Result<(), String> {
        let fail = |reason: String| {
            pool.state.abort_wake();
            Err(reason)
        };
        if pool.state.counts().workers >= WORKERS_MAX {
            return fail(format!("a pool has at most {WORKERS_MAX} workers"));
        }
        let Some(slot) = self.allocate_slot() else {
            return fail(format!("an engine has at most {SLOTS_MAX} workers"));
        };
        let Some(engine) = self.me.upgrade() else {
            self.slots.release(slot);
            return fail("the engine is going away".to_owned());
        };
        pool.state.add_worker();
        pool.lock().workers.push(slot);
        let spec = WorkerSpec {
            name: format!("uw/{}", pool.spec().label),
            cpus: pool.spec().cpus.clone(),
            nice: pool.spec().nice,
        };
        let id = pool.id;
        let main = Box::new(move || Worker::new(engine, id, slot).main());
        self.host.spawn(&spec, main).map_err(|error| {
            pool.lock().workers.retain(|&worker| worker != slot);
            pool.state.abort_worker();
            self.slots.release(slot);
            error.0
        })
    }

    /// Asks every worker to exit once it has nothing to do. The queues must be gone, or take nothing.
    pub fn retire(&self) {
        self.retire_pools();
        self.retire_watch();
    }

    pub(crate) fn retire_pools(&self) {
        let sets = self.sets.lock().clone();
        for &id in sets.iter().flat_map(|set| &set.pools) {
            self.pool(id).state.set_retired(true);
            self.nudge_all(self.pool(id));
        }
    }

    /// Lets every parked worker of a pool look around.
    fn nudge_all(&self, pool: &Pool<H>) {
        let mut events = Vec::new();
        let inner = pool.lock();
        let mut idle = inner.idle_top;
        while let Some(id) = idle {
            let slot = self.slot(id);
            events.push(&raw const slot.event);
            idle = slot.idle_below_locked(&inner);
        }
        drop(inner);
        for event in events {
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(event) }.send(&self.host);
        }
    }

    /// Worker threads that exist at this moment.
    pub fn workers(&self) -> u32 {
        let sets = self.sets.lock().clone();
        let pools = sets.iter().flat_map(|set| &set.pools);
        pools.map(|&id| self.pool(id).state.counts().workers).sum()
    }
}

fn label(key: &SetKey, pod: &CpuSet) -> String {
    let (kind, nice) = (if key.bound { "" } else { "u" }, if key.nice < 0 { "H" } else { "" });
    format!("{kind}{pod}{nice}")
}
