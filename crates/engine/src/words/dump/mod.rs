//! Snapshots of the engine: what the kernel's `show_all_workqueues` and `wq_dump` print.
//!
//! A dump consists of plain values. They are collected while everything runs (`collect`). The
//! collector holds one lock at a time (or a pwq's and then a slot's), and not for longer than it
//! takes to copy a bounded number of values. So each part is true for an instant, but the parts
//! belong to different instants. The collector stops no thread and waits for none, and a stuck item
//! does not delay it.
//!
//! Addresses are those of items and of their functions. Functions are queried for their names after
//! collection, without the locks (`functions`). [`Dump::name_functions`] names the functions that
//! have no name of their own, with a resolver of the caller's.

mod functions;
mod json;
mod long_runs;
mod shutdown;
mod stall;
mod text;

pub use functions::StandsFor;
pub use long_runs::LongRuns;
pub use shutdown::{Releasing, Shutdown, ShutdownReport, Unfinished};
pub use stall::{
    Awaited, DeadlockedItem, NoCalls, STALLED_WORKERS_MAX, Stall, StalledWorker, Wants,
};

pub use crate::words::host::Frame;

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::histogram::Histogram;
use uwork_policy::scope::AffinityScope;

/// The most items that are listed of one list.
pub const ITEMS_MAX: usize = 16;

/// A snapshot of the whole engine.
#[derive(Clone, Debug)]
pub struct Dump {
    /// When it was taken, on the host's clock, in nanoseconds; all other times are on the same
    /// clock.
    pub at_ns: u64,
    /// The machine, as configured.
    pub machine: MachineDump,
    /// How undeclared sleeps of workers are detected.
    pub blocking: BlockingDump,
    /// The pods of every scope.
    pub scopes: Vec<ScopeDump>,
    /// Every pool that was ever used, by id.
    pub pools: Vec<PoolDump>,
    /// Helpers: threads that run an item which they wait for.
    pub helpers: Vec<WorkerDump>,
    /// Every queue, in the order of creation.
    pub queues: Vec<QueueDump>,
}

/// See [`Dump`].
#[derive(Clone, Debug)]
pub struct MachineDump {
    /// The CPUs that the process may use.
    pub allowed: CpuSet,
    /// The CPUs that unbound queues may use.
    pub unbound: CpuSet,
    /// The CPUs that are isolated.
    pub isolated: CpuSet,
    /// The scope of queues that did not choose a scope.
    pub default_scope: AffinityScope,
}

/// See [`Dump`].
#[derive(Clone, Debug)]
pub struct BlockingDump {
    /// The tier in use.
    pub tier: Tier,
    /// Why this tier: the requested tier, and what the system refused.
    pub reason: String,
}

/// The pods of one scope.
#[derive(Clone, Debug)]
pub struct ScopeDump {
    /// The scope.
    pub scope: AffinityScope,
    /// How many pods it has.
    pub nr_pods: usize,
    /// The CPUs of each.
    pub pod_cpus: Vec<CpuSet>,
    /// The pod of each possible CPU.
    pub cpu_pod: Vec<(u32, usize)>,
    /// The NUMA node of each pod; none for a pod that spans several.
    pub pod_node: Vec<Option<u32>>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolDump {
    /// Its id.
    pub id: u32,
    /// The CPUs of its workers: one of its pod, or all.
    pub cpus: CpuSet,
    /// Its workers' niceness.
    pub nice: i32,
    /// The niceness that the workers have instead, if the process may not set `nice` and the host
    /// knows it.
    pub actual_nice: Option<i32>,
    /// Workers that should run while work is pending.
    pub target: u32,
    /// Workers that exist.
    pub nr_workers: u32,
    /// The most workers that it may have.
    pub workers_max: u32,
    /// Workers that are neither idle nor waiting, and do not run items of a CPU-intensive queue.
    pub nr_running: u32,
    /// Workers with nothing to do.
    pub nr_idle: u32,
    /// Whether a worker is on its way up.
    pub waking: bool,
    /// Whether no queue uses it; its workers retire then.
    pub retired: bool,
    /// Whether the process may use none of its CPUs; its workers run elsewhere then.
    pub displaced: bool,
    /// How many pwqs are ready.
    pub nr_ready: usize,
    /// The ready pwqs, up to a bound.
    pub ready: Vec<u32>,
    /// When the next timer expires, in nanoseconds; too early if that timer was cancelled.
    pub next_timer_ns: Option<u64>,
    /// How many delayed items are armed.
    pub nr_armed: usize,
    /// The armed items, up to a bound.
    pub armed: Vec<ArmedItem>,
    /// Its workers.
    pub workers: Vec<WorkerDump>,
}

/// A worker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It has nothing to do.
    Idle,
    /// It is in an item.
    Running,
    /// It is in an item that waits, and has declared the wait.
    Waiting,
    /// It is in an item that was found asleep, or is presumed to sleep as those before it did,
    /// without having declared it.
    Asleep,
    /// It is in an item, and a debugger or a signal has stopped it. Only the snapshot of a stall
    /// shows this state.
    Stopped,
    /// It is between two items, starting or ending.
    Between,
}

/// A worker, or a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerDump {
    /// The name of its thread; empty for a helper.
    pub thread: String,
    /// Its thread's number on the host, for tools that show threads; 0 if it has none.
    pub thread_id: u64,
    /// Its run slot.
    pub slot: u32,
    /// Its state.
    pub state: WorkerState,
    /// Whether its thread sleeps, as the system says, in an item whose `state` is `Running`. The engine
    /// looks for sleepers only where items wait for a worker. False in the snapshot of a stall, whose
    /// states are the system's, and of one queue.
    pub sleeps: bool,
    /// The item that it runs, if any.
    pub running: Option<RunningInfo>,
    /// Items that it took and has not started, next one first.
    pub scheduled: Items,
    /// Deferred items: they wait for the end of the present run, which is their own previous run.
    pub deferred: Items,
}

/// A running item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningInfo {
    /// The number of the run in its slot.
    pub run: u64,
    /// When its worker took the batch that contains the item, or its helper the item; the run is no
    /// older than that.
    pub batch_began_ns: Option<u64>,
    /// The pwq that the item was taken from.
    pub pwq: Option<u32>,
    /// That pwq's queue, if it still exists.
    pub queue: Option<String>,
    /// The item's address. The item may no longer exist: its function may free it.
    pub item: Option<usize>,
    /// The item's function.
    pub function: Option<Function>,
    /// The item's own description of itself.
    pub description: Option<String>,
}

/// A function, by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub address: usize,
    /// Its name, if known: the type of the items that it runs.
    pub name: Option<String>,
}

/// Items of one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// How many there are.
    pub total: usize,
    /// The first of them, [`ITEMS_MAX`] at most.
    pub first: Vec<ItemDump>,
}

/// A pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemDump {
    /// The item's address.
    pub address: usize,
    /// Its function.
    pub function: Function,
}

/// An armed item.
#[derive(Clone, Debug)]
pub struct ArmedItem {
    /// The item.
    pub item: ItemDump,
    /// When it expires, in nanoseconds.
    pub deadline_ns: u64,
    /// The CPU that it is to be queued on, if one was given.
    pub cpu: Option<u32>,
    /// The queue that it goes to, if it still exists.
    pub queue: Option<String>,
}

/// The submitters from which a queue accepts items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// All.
    Open,
    /// Its own items, while it drains.
    Draining,
    /// Its own items, while it is destroyed; or the items of all queues, while the engine shuts
    /// down.
    Closed,
    /// None.
    Sealed,
}

/// A queue.
#[derive(Clone, Debug)]
pub struct QueueDump {
    /// Its name.
    pub name: String,
    /// Its flags.
    pub flags: Flags,
    /// `per-cpu`, `bh`, `unbound`, `ordered` or `dedicated`.
    pub kind: &'static str,
    /// Its workers' niceness.
    pub nice: i32,
    /// Whether pods share no work.
    pub strict: bool,
    /// The scope, as `affinity_scope` shows it; none for a per-CPU queue.
    pub scope: Option<String>,
    /// The CPUs in use.
    pub cpus: CpuSet,
    /// The most items that run at once on one pool.
    pub max_active: u32,
    /// The least share of an unbound queue's `max_active` for a NUMA node.
    pub min_active: Option<u32>,
    /// The nodes on which several pods share a part of `max_active`.
    pub nodes: Vec<NodeDump>,
    /// Its rescuer, if it is `MEM_RECLAIM`.
    pub rescuer: Option<RescuerDump>,
    /// Whether it takes part in a freeze that is in effect: its items wait for the thaw.
    pub frozen: bool,
    /// Whether it is paused: its items wait for the resume.
    pub paused: bool,
    /// The submitters from which it accepts items.
    pub gate: Gate,
    /// Threads that wait in a flush of it.
    pub flushers: usize,
    /// Its pwqs.
    pub pwqs: Vec<PwqDump>,
    /// The slots that run its items.
    pub slots: Vec<u32>,
}

impl QueueDump {
    /// Items that were queued and have not run to their end, as far as is known: a worker publishes
    /// its finished items at the end of its batch.
    pub fn in_flight(&self) -> u64 {
        let all = self.pwqs.iter().flat_map(|pwq| &pwq.in_flight);
        all.map(|&count| u64::from(count)).sum()
    }

    /// Items that no worker has taken yet.
    pub fn pending(&self) -> usize {
        self.pwqs.iter().map(|pwq| pwq.pending.total).sum()
    }
}

/// The share of a queue's pods on one NUMA node.
#[derive(Clone, Debug)]
pub struct NodeDump {
    /// The node; none for pods that span several.
    pub node: Option<u32>,
    /// Permits in use, or reserved for a pwq that waited.
    pub nr: u32,
    /// All permits.
    pub max: u32,
    /// Pwqs that wait for a permit.
    pub waiting: usize,
}

/// A queue's rescuer.
#[derive(Clone, Debug)]
pub struct RescuerDump {
    /// Its slot.
    pub slot: u32,
    /// Its thread's number on the host; 0 if the thread does not exist (in a forked child).
    pub thread_id: u64,
    /// The item that it runs.
    pub running: Option<RunningInfo>,
}

/// One queue's items on one pool.
#[derive(Clone, Debug)]
pub struct PwqDump {
    /// Its id.
    pub id: u32,
    /// The pool that it is on.
    pub pool: u32,
    /// Workers that hold items of it.
    pub nr_active: u32,
    /// The most workers that may hold items of it.
    pub max_active: u32,
    /// Whether it is on a pool's ready list.
    pub ready: bool,
    /// Whether all permits are taken: its own, or those of its node if pods share them. Pending items
    /// are inactive until one is released. False while the queue is frozen or paused.
    pub saturated: bool,
    /// Items that wait to be taken, next one first.
    pub pending: Items,
    /// Items that were queued and are not known to be done, by flush colour.
    pub in_flight: Vec<u32>,
    /// The flush colour that items get now.
    pub colour: usize,
    /// Colours that a flush waits for.
    pub awaited: Vec<usize>,
    /// The recent run time of an item, in nanoseconds.
    pub item_ns: u64,
    /// Items that workers took so far. One that was given back and taken again counts twice.
    pub started: u64,
    /// Items that workers have run, and threads that waited for them; counted at the end of each
    /// batch.
    pub ran: u64,
    /// The time of those batches, in nanoseconds.
    pub busy_ns: u64,
    /// The CPU time of those batches, in nanoseconds; the time of short ones counts as CPU time.
    pub cpu_ns: u64,
    /// Batches that used as much CPU time as makes an item CPU-intensive.
    pub hogs: u64,
    /// Workers that left the running count in an item, so that another one could take over.
    pub replaced: u64,
    /// Items that workers of another pool took.
    pub stolen: u64,
    /// Calls of the rescuer.
    pub maydays: u64,
    /// Items that the rescuer ran.
    pub rescued: u64,
    /// Those runs by their time; the runs of a batch count with their mean.
    pub runs: Histogram,
    /// The runs by the time that the first item of their batch had waited for it.
    pub waits: Histogram,
}

impl Dump {
    /// Fills in the niceness that workers have instead of the requested one: `had` returns it for
    /// the requested niceness of a pool.
    pub fn name_niceness(&mut self, had: impl Fn(i32) -> Option<i32>) {
        self.pools.iter_mut().for_each(|pool| pool.actual_nice = had(pool.nice));
    }
}
