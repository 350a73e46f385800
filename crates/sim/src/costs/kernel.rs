//! A queue in the shape of the kernel's unbound workqueues (kernel/workqueue.c): one lock for each
//! pod, under which items are inserted, taken and completed. A model for comparison: only its lock,
//! its lines and its wakes are the kernel's.
//!
//! The lock is a spinlock: its waiters never sleep, and neither they nor its holder lose their CPU.
//! An insertion wakes the first idle worker, and so does a worker that takes an item and leaves
//! others, as `kick_pool` does.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uwork_engine::host::Host;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_policy::topology::Topology;

use super::bill::Use;
use super::load::{Line, Load, Notes, Producer, produce, start_producers};
use crate::host::{Event, VirtualHost};
use crate::setup::SEC;

/// When the worker that an insertion has picked is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Under the pool's lock.
    Locked,
    /// After the pool's lock is released.
    Deferred,
}

/// The CPUs of a `cache_shard` pod, at most: `WQ_CACHE_SHARD_SIZE`'s default.
const SHARD_CPUS: usize = 8;
/// A spinlock's waiter spins until it has the lock.
const SPIN_NS: u64 = SEC;

/// An item: its word, and the producer that waits for it.
struct Work {
    line: Line,
    producer: Arc<Producer>,
}

struct Worker {
    line: Line,
    event: Event,
}

#[derive(Default)]
struct Lists {
    works: VecDeque<Arc<Work>>,
    idle: Vec<Arc<Worker>>,
}

struct Pool {
    lock: Line,
    /// The line of the lists' heads.
    heads: Line,
    lists: Mutex<Lists>,
    cpus: CpuSet,
    ends: AtomicBool,
}

impl Pool {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn lock(&self, host: &VirtualHost) {
        host.machine().shield(1);
        host.take_lock(self.lock.address(), SPIN_NS, Location::caller());
    }

    #[track_caller]
    fn unlock(&self, host: &VirtualHost) {
        host.release_lock(self.lock.address(), Use::Write, Location::caller());
        host.machine().shield(-1);
    }

    /// The first idle worker, if items wait. It stays in the list until it runs.
    fn pick(&self, host: &VirtualHost) -> Option<Arc<Worker>> {
        let lists = self.lists();
        let worker = lists.idle.last().filter(|_| !lists.works.is_empty()).cloned();
        drop(lists);
        if let Some(worker) = &worker {
            host.use_line(worker.line.address(), Use::Write, Location::caller());
        }
        worker
    }

    /// Ends a critical section, and wakes the picked worker before or after its end.
    fn finish(&self, host: &VirtualHost, picked: Option<Arc<Worker>>, wake: Wake) {
        if wake == Wake::Deferred {
            self.unlock(host);
        }
        if let Some(worker) = &picked {
            // SAFETY: we hold the worker.
            unsafe { host.wake(&raw const worker.event) };
        }
        if wake == Wake::Locked {
            self.unlock(host);
        }
    }

    /// `__queue_work`.
    fn insert(&self, host: &VirtualHost, work: &Arc<Work>, load: Load, wake: Wake) {
        host.use_line(work.line.address(), Use::Update, Location::caller());
        self.lock(host);
        host.use_line(self.heads.address(), Use::Write, Location::caller());
        host.use_line(work.line.address(), Use::Write, Location::caller());
        host.charge_ns(load.held_ns);
        self.lists().works.push_back(work.clone());
        let picked = self.pick(host);
        self.finish(host, picked, wake);
    }

    /// `worker_thread`.
    fn work(&self, host: &VirtualHost, worker: &Arc<Worker>, load: Load, wake: Wake) {
        self.lock(host);
        loop {
            host.use_line(self.heads.address(), Use::Write, Location::caller());
            let next = self.lists().works.pop_front();
            let Some(work) = next else {
                if self.ends.load(Ordering::Relaxed) {
                    return self.unlock(host);
                }
                self.lists().idle.push(worker.clone());
                self.unlock(host);
                let _ = host.park(&worker.event, None);
                self.lock(host);
                self.lists().idle.retain(|idle| !Arc::ptr_eq(idle, worker));
                continue;
            };
            host.use_line(work.line.address(), Use::Update, Location::caller());
            host.charge_ns(load.held_ns);
            let picked = self.pick(host);
            self.finish(host, picked, wake);
            host.burn(load.work_ns);
            work.producer.complete(host);
            self.lock(host);
        }
    }

    /// Ends the workers.
    fn end(&self, host: &VirtualHost) {
        self.ends.store(true, Ordering::Relaxed);
        let idle = self.lists().idle.clone();
        for worker in idle {
            // SAFETY: we hold the worker.
            unsafe { host.wake(&raw const worker.event) };
        }
    }
}

/// The pods of a scope. The default scope is the kernel's: the last-level cache.
fn pods(machine: &Topology, scope: AffinityScopeChoice) -> Vec<CpuSet> {
    let scope = match scope {
        AffinityScopeChoice::Explicit(scope) => scope,
        AffinityScopeChoice::Default => AffinityScope::Cache,
    };
    let mut pods: Vec<(u32, CpuSet)> = Vec::new();
    for cpu in machine.cpus().iter().filter(|cpu| machine.online().contains(cpu.id)) {
        let (key, cpus_max) = match scope {
            AffinityScope::Cpu => (cpu.id, 1),
            AffinityScope::Smt => (cpu.core, usize::MAX),
            AffinityScope::Cluster => (cpu.cluster, usize::MAX),
            AffinityScope::CacheShard => (cpu.llc, SHARD_CPUS),
            AffinityScope::Cache => (cpu.llc, usize::MAX),
            AffinityScope::Numa => (cpu.node, usize::MAX),
            AffinityScope::System => (0, usize::MAX),
        };
        let room = |pod: &&mut (u32, CpuSet)| pod.0 == key && pod.1.len() < cpus_max;
        match pods.iter_mut().rev().find(room) {
            Some((_, cpus)) => {
                cpus.insert(cpu.id);
            }
            None => pods.push((key, CpuSet::single(cpu.id))),
        }
    }
    pods.into_iter().map(|(_, cpus)| cpus).collect()
}

pub(super) fn run(host: &VirtualHost, machine: &Topology, load: Load, wake: Wake, notes: &Notes) {
    let pool = |cpus: CpuSet| {
        let (lock, heads) = (Line::default(), Line::default());
        Arc::new(Pool { lock, heads, lists: Mutex::default(), cpus, ends: AtomicBool::new(false) })
    };
    let pools: Vec<Arc<Pool>> = pods(machine, load.scope).into_iter().map(pool).collect();
    let mut workers = Vec::new();
    for pool in &pools {
        // One worker more than CPUs: the kernel keeps an idle one beside those that run.
        for _ in 0..=pool.cpus.len() {
            let (pool, theirs) = (pool.clone(), host.clone());
            let cpus = pool.cpus.clone();
            let worker = Arc::new(Worker { line: Line::default(), event: Event::default() });
            workers.push(host.start(&cpus, move || {
                pool.work(&theirs, &worker, load, wake);
            }));
        }
    }
    let (theirs, all, notes) = (host.clone(), pools.clone(), notes.clone());
    start_producers(host, machine, load, move |cpu| {
        let pool = all.iter().find(|pool| pool.cpus.contains(cpu)).expect("each CPU has a pod");
        let producer = Arc::new(Producer::default());
        let work = |_| Arc::new(Work { line: Line::default(), producer: producer.clone() });
        let works: Vec<Arc<Work>> = (0..load.batch).map(work).collect();
        let submit = |at: usize| pool.insert(&theirs, &works[at], load, wake);
        produce(&theirs, load, &notes, &producer, submit);
    });
    for pool in &pools {
        pool.end(host);
    }
    workers.into_iter().for_each(|worker| worker.join(host));
}
