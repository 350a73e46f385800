//! Pool sets: which queues share pools, and the pools of each set.

use std::ops::Range;
use std::sync::Arc;

use uwork_policy::concurrency::STEAL_CHOICE;
use uwork_policy::cpuset::CpuSet;

use crate::engine::Engine;
use crate::pool::{Pool, PoolSpec, WideSet};
use crate::queue::{Name, QueueError};
use crate::words::host::Host;
use crate::words::sync::{AtomicU32, AtomicU64, Lock, LockGuard, Ordering, Rank};

/// The properties that two queues must have in common to share pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetKey {
    /// All CPUs that the queues could use so far, not only those of the moment (`lifecycle/reach.rs`).
    pub(crate) pods: Vec<CpuSet>,
    /// The CPUs that the queues ask for, whether the process may use them or not.
    pub(crate) wanted: CpuSet,
    pub(crate) nice: i32,
    pub(crate) context: Context,
    /// Pools of CPU-bound queues have a target of one worker, and share work with no other pool.
    pub(crate) bound: bool,
    /// Whether pods neither steal nor share work.
    pub(crate) strict: bool,
    /// Whether each CPU of a pod has a pool of its own.
    pub(crate) sharded: bool,
    /// Whether the pools save wakes (`pool/saving.rs`).
    pub(crate) saves: bool,
}

/// What runs the items of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// As many workers as the work needs.
    Managed,
    /// A single worker, for items that do not wait.
    Bh,
    /// A single worker, for a single queue.
    Dedicated,
}

/// The part of a pod that has a pool: a CPU, or the whole pod.
#[derive(Debug)]
struct Shard {
    cpus: CpuSet,
    /// The position of the pod.
    pod: usize,
}

/// The pools with which one shares work: see [`PoolSpec`].
struct Sharing {
    first: u32,
    neighbours: Vec<u32>,
    wide: Option<WideSet>,
}

impl Sharing {
    /// Of a pool that shares with none.
    fn alone(id: u32) -> Sharing {
        Sharing { first: id, neighbours: Vec::new(), wide: None }
    }
}

/// The pools of one kind: one for each shard.
#[derive(Debug)]
pub(crate) struct PoolSet {
    key: SetKey,
    /// In the order of the pods.
    shards: Vec<Shard>,
    /// The latest round of `Versions::refit_all` that found a worker in each pod. Changed under the lock of
    /// all changes.
    staffed_in: AtomicU64,
    /// Pool ids, in the order of the shards.
    pub(crate) pools: Vec<u32>,
    /// Queues that use the set. Changed under the lock of the list of sets.
    users: AtomicU32,
}

impl SetKey {
    /// Whether the two differ at most in their pods.
    fn is_like(&self, other: &SetKey) -> bool {
        let without_pods = |key: &SetKey| SetKey { pods: Vec::new(), ..key.clone() };
        without_pods(self) == without_pods(other)
    }

    /// Whether the pools of these shards share their work.
    fn share(&self, a: &Shard, b: &Shard) -> bool {
        !self.bound && (!self.strict || a.pod == b.pod)
    }

    fn shards(&self) -> Vec<Shard> {
        let pods = self.pods.iter().enumerate();
        if !self.sharded {
            return pods.map(|(pod, cpus)| Shard { cpus: cpus.clone(), pod }).collect();
        }
        let of_pod = |(pod, cpus): (usize, &CpuSet)| {
            let single = move |cpu| Shard { cpus: CpuSet::single(cpu), pod };
            cpus.iter().map(single).collect::<Vec<_>>()
        };
        pods.flat_map(of_pod).collect()
    }
}

impl PoolSet {
    pub(crate) fn is_for(&self, key: &SetKey) -> bool {
        self.key == *key
    }

    /// The pool of exactly these CPUs.
    fn pool_of_cpus(&self, cpus: &CpuSet) -> Option<u32> {
        self.shards.iter().position(|shard| shard.cpus == *cpus).map(|at| self.pools[at])
    }

    /// The positions of the pools that have a CPU of this mask.
    pub(crate) fn used(&self, mask: &CpuSet) -> Vec<usize> {
        (0..self.shards.len()).filter(|&at| self.shards[at].cpus.intersects(mask)).collect()
    }

    /// The CPUs of the pool at this position.
    pub(crate) fn cpus(&self, at: usize) -> &CpuSet {
        &self.shards[at].cpus
    }

    /// The pools that share work: those of all pods, or of one pod if the queues are strict.
    pub(crate) fn sharers(&self) -> impl Iterator<Item = &[u32]> {
        let mut first = 0;
        self.shards.chunk_by(|a, b| self.key.share(a, b)).map(move |shards| {
            first += shards.len();
            &self.pools[first - shards.len()..first]
        })
    }

    /// Spawns a worker in each pod that has a CPU of this mask and no worker there: one suffices, as it
    /// serves all pools of the pod that are in place. The workers of displaced pools do not.
    ///
    /// In a round of refits all queues with the same set have the same mask: one look at the set suffices. No
    /// worker ends meanwhile without another one in its pod, except if pools of other pods take it, whose
    /// spawns failed; the pod's next item spawns one.
    ///
    /// The set is in use, so that its workers do not exit for good: they decide that under the lock of their
    /// pool. If another thread is spawning a pool's first worker, that thread has claimed the wake.
    pub(crate) fn create_first_workers<H: Host>(
        &self,
        engine: &Engine<H>,
        mask: &CpuSet,
        round: Option<u64>,
    ) -> Result<(), QueueError> {
        // A queue that accepts no items needs no worker.
        if engine.is_shut_down() || round == Some(self.staffed_in.load(Ordering::Relaxed)) {
            return Ok(());
        }
        for pod in self.used(mask).chunk_by(|&a, &b| self.shards[a].pod == self.shards[b].pod) {
            let mut pools = pod.iter().map(|&at| engine.pool(self.pools[at]));
            if pools.all(|pool| pool.lock().workers.is_empty()) {
                engine.pool(self.pools[pod[0]]).create_first_worker(engine)?;
            }
        }
        if let Some(round) = round {
            self.staffed_in.store(round, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// All pool sets, each with the key that it serves.
pub(crate) struct PoolSets(Lock<Vec<Arc<PoolSet>>>);

impl PoolSets {
    pub(crate) fn new() -> PoolSets {
        PoolSets(Lock::ranked(Rank::EngineSets, Vec::new()))
    }

    /// Locks the list.
    pub(crate) fn lock(&self) -> LockGuard<'_, Vec<Arc<PoolSet>>> {
        self.0.lock()
    }

    /// The saving pool at this position, of the sets in use.
    pub(crate) fn saving_pool(&self, at: usize) -> Option<u32> {
        let sets = self.lock();
        let saving =
            sets.iter().filter(|set| set.key.saves && set.users.load(Ordering::SeqCst) > 0);
        saving.flat_map(|set| &set.pools).nth(at).copied()
    }

    /// The pools for this key, each pod with a worker that has a CPU of the mask, and with one more user:
    /// the queue with this name.
    pub(crate) fn use_set<H: Host>(
        &self,
        engine: &Engine<H>,
        key: SetKey,
        (mask, round): (&CpuSet, Option<u64>),
        queue: Name,
    ) -> Result<Arc<PoolSet>, QueueError> {
        let set = self.find_or_make_set(engine, key)?;
        if set.key.context == Context::Dedicated {
            // This queue is the only user of the set.
            set.pools.iter().for_each(|&id| engine.pool(id).lock().queue = queue);
        }
        // Threads are created without the lock.
        if let Err(error) = set.create_first_workers(engine, mask, round) {
            self.leave_set(engine, &set);
            return Err(error);
        }
        // Start the watcher now rather than when it is first needed: then threads may be
        // unavailable.
        if !engine.is_shut_down()
            && let Err(error) = engine.watch.start(engine)
        {
            self.leave_set(engine, &set);
            return Err(QueueError::NoThread(error.0));
        }
        Ok(set)
    }

    fn find_or_make_set<H: Host>(
        &self,
        engine: &Engine<H>,
        key: SetKey,
    ) -> Result<Arc<PoolSet>, QueueError> {
        let mut sets = self.lock();
        let free = |set: &PoolSet| {
            key.context != Context::Dedicated || set.users.load(Ordering::SeqCst) == 0
        };
        let set = match sets.iter().find(|set| set.key == key && free(set)) {
            Some(set) => set.clone(),
            None => {
                let shards = key.shards();
                let pools = self.pools_for(engine, &sets, &key, &shards)?;
                let (staffed_in, users) = (AtomicU64::new(0), AtomicU32::new(0));
                let set = Arc::new(PoolSet { key, shards, staffed_in, pools, users });
                sets.push(set.clone());
                set
            }
        };
        if set.users.fetch_add(1, Ordering::SeqCst) == 0 {
            for &id in &set.pools {
                let pool = engine.pool(id);
                pool.sets_in_use.fetch_add(1, Ordering::SeqCst);
                // Workers decide to exit under the pool lock: workers still present after this
                // stay.
                if !engine.is_shut_down() {
                    pool.state.set_retired(false);
                }
            }
        }
        Ok(set)
    }

    /// A pool for each shard of a new set. A pool of a per-CPU queue is shared by all sets that
    /// contain that CPU and are alike in everything else: its target is one worker, whatever other
    /// CPUs are permitted.
    fn pools_for<H: Host>(
        &self,
        engine: &Engine<H>,
        sets: &[Arc<PoolSet>],
        key: &SetKey,
        shards: &[Shard],
    ) -> Result<Vec<u32>, QueueError> {
        if key.bound {
            let alike = sets.iter().filter(|set| set.key.is_like(key));
            let known = |cpus| alike.clone().find_map(|set| set.pool_of_cpus(cpus));
            let known: Vec<_> = shards.iter().map(|shard| known(&shard.cpus)).collect();
            let missing = known.iter().filter(|id| id.is_none()).count();
            let mut fresh = allocate(engine, missing)?.into_iter();
            let pools = shards.iter().zip(known).map(|(shard, known)| {
                known.unwrap_or_else(|| {
                    let id = fresh.next().expect("one for each that is missing");
                    let own = Arc::new(shard.cpus.clone());
                    self.configure(engine, id, key, shard, Sharing::alone(id), &own);
                    id
                })
            });
            return Ok(pools.collect());
        }
        let pools = allocate(engine, shards.len())?;
        let wanted = Arc::new(key.wanted.clone());
        let mut first = 0;
        for sharers in shards.chunk_by(|a, b| key.share(a, b)) {
            let pools = &pools[first..first + sharers.len()];
            first += sharers.len();
            let wide = (pools.len() > 1 + STEAL_CHOICE).then(|| WideSet::new(pools));
            for (at, shard) in sharers.iter().enumerate() {
                let neighbours = nearest(engine, sharers, at).map(|other| pools[other]).collect();
                let wide = wide.as_ref().map(|set| set.seen_from(at, pod_of(sharers, at)));
                let sharing = Sharing { first: pools[0], neighbours, wide };
                self.configure(engine, pools[at], key, shard, sharing, &wanted);
            }
        }
        pools.iter().for_each(|&id| engine.pool(id).choose_near());
        Ok(pools)
    }

    fn configure<H: Host>(
        &self,
        engine: &Engine<H>,
        id: u32,
        key: &SetKey,
        shard: &Shard,
        Sharing { first, neighbours, wide }: Sharing,
        wanted: &Arc<CpuSet>,
    ) {
        let spec = PoolSpec {
            cpus: shard.cpus.clone(),
            pod: key.pods[shard.pod].clone(),
            wanted: wanted.clone(),
            bound: key.bound,
            nice: key.nice,
            label: label(key, &shard.cpus),
            confined: key.bound || key.context != Context::Managed,
            single: key.context != Context::Managed,
            bh: key.context == Context::Bh,
            shares: !neighbours.is_empty(),
            saves: key.saves,
            first,
            nr_beside: if key.sharded { key.pods[shard.pod].len() - 1 } else { 0 },
            neighbours,
            wide,
        };
        // Under the lock of the list, which a change of the CPUs takes after it has published them.
        engine.pool(id).configure(spec, engine.cpus());
    }

    /// A queue stops using the set. The last user retires the pools that no other set has in use,
    /// unless they have timers. Then the workers stay until the pool is used and abandoned again.
    /// They also wake for deferrable timers, because no new item will wake them.
    ///
    /// No timer is armed there meanwhile: a queue keeps every set that it ever used until it is
    /// destroyed, and a thread that arms an item has the queue.
    pub(crate) fn leave_set<H: Host>(&self, engine: &Engine<H>, set: &PoolSet) {
        let sets = self.lock();
        let mut deserted = Vec::new();
        if set.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            for pool in set.pools.iter().map(|&id| engine.pool(id)) {
                if pool.sets_in_use.fetch_sub(1, Ordering::SeqCst) == 1 {
                    if !pool.has_timers() {
                        pool.state.set_retired(true);
                    }
                    deserted.push(pool);
                }
            }
        }
        drop(sets);
        deserted.into_iter().for_each(|pool| pool.wake_all_parked(engine));
    }
}

/// Allocates this many pools, or none. Their ids follow each other: only the last ones are ever released.
fn allocate<H: Host>(engine: &Engine<H>, count: usize) -> Result<Vec<u32>, QueueError> {
    let mut pools = Vec::with_capacity(count);
    while pools.len() < count {
        let Some((id, _)) = engine.pools.allocate(Pool::new) else {
            // The first one last: it is the next to be allocated.
            pools.into_iter().rev().for_each(|id| engine.pools.release(id));
            return Err(QueueError::TooManyPools);
        };
        pools.push(id);
    }
    Ok(pools)
}

/// The positions of the shards of the same pod.
fn pod_of(shards: &[Shard], at: usize) -> Range<usize> {
    let first = shards.partition_point(|other| other.pod < shards[at].pod);
    first..shards.partition_point(|other| other.pod <= shards[at].pod)
}

/// The positions of the other shards, those of the same pod first, each group by its distance.
fn nearest<H: Host>(
    engine: &Engine<H>,
    shards: &[Shard],
    of: usize,
) -> impl Iterator<Item = usize> {
    let distance = |other: &Shard| match (shards[of].cpus.first(), other.cpus.first()) {
        (Some(a), Some(b)) => (engine.config.topology.distance(a, b), a.abs_diff(b)),
        _ => (u32::MAX, 0),
    };
    let mut others: Vec<usize> = (0..shards.len()).filter(|&other| other != of).collect();
    others.sort_by_cached_key(|&other| {
        (shards[other].pod != shards[of].pod, distance(&shards[other]))
    });
    others.into_iter()
}

fn label(key: &SetKey, cpus: &CpuSet) -> String {
    let kind = match key.context {
        Context::Managed if key.bound => "",
        Context::Managed if key.saves => "p",
        Context::Managed => "u",
        Context::Bh => "bh",
        Context::Dedicated => "k",
    };
    let nice = if key.nice < 0 { "H" } else { "" };
    format!("{kind}{cpus}{nice}")
}
