//! A picture of the engine: what the kernel's `show_all_workqueues` and `wq_dump` print.
//!
//! Plain values. They are collected while everything runs (`collect`): one lock is held at a
//! time, but for a pwq and then a slot, and not for longer than it takes to copy a bounded number of
//! values. So each part is true for an instant, but not all for the same one. Nothing is stopped,
//! nobody is waited for, and an item that is stuck holds nothing up.
//!
//! Addresses are those of items and of their functions. The latter are asked for their names when what
//! shows them has been collected, without the locks (`functions`); [`Dump::name_functions`] is for those that
//! have none to tell, with a resolver of the caller's.

mod collect;
mod functions;
mod running;
mod stall;
mod text;

pub use functions::StandsFor;
pub use stall::{
    Awaited, DeadlockedItem, NoCalls, STALLED_WORKERS_MAX, Stall, StalledWorker, Wants,
};

use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::Scope;

/// The most items that are listed of one list.
pub const ITEMS_MAX: usize = 16;

/// All of it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Dump {
    /// When it was taken, on the host's clock, in nanoseconds; all other times are on the same.
    pub at_ns: u64,
    /// What the engine was told of the machine.
    pub machine: MachineDump,
    /// How undeclared sleeps of workers are noticed.
    pub blocking: BlockingDump,
    /// The pods of every scope.
    pub scopes: Vec<ScopeDump>,
    /// Every pool that was ever put to use, by id.
    pub pools: Vec<PoolDump>,
    /// Threads that run an item which they wait for.
    pub helpers: Vec<WorkerDump>,
    /// Every queue, in the order in which they were made.
    pub queues: Vec<QueueDump>,
}

/// See [`Dump`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MachineDump {
    /// The CPUs that the process may use.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub allowed: CpuSet,
    /// The CPUs that unbound queues may use.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub unbound: CpuSet,
    /// The CPUs that are isolated.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub isolated: CpuSet,
    /// The scope of queues that did not choose one.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub default_scope: Scope,
}

/// See [`Dump`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockingDump {
    /// The way in use.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub tier: Tier,
    /// Why this one: what was asked for, what was refused.
    pub reason: String,
}

/// The pods of one scope.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ScopeDump {
    /// The scope.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub scope: Scope,
    /// How many pods it has.
    pub nr_pods: usize,
    /// The CPUs of each.
    #[cfg_attr(feature = "serde", serde(serialize_with = "all_as_text"))]
    pub pod_cpus: Vec<CpuSet>,
    /// The pod of each possible CPU.
    pub cpu_pod: Vec<(u32, usize)>,
}

/// A pool.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PoolDump {
    /// Its id.
    pub id: u32,
    /// The CPUs of its pod.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub cpus: CpuSet,
    /// Its workers' niceness.
    pub nice: i32,
    /// What they have instead, if the process may not set that one and the host knows.
    pub nice_had: Option<i32>,
    /// Workers that should run while work is pending.
    pub target: u32,
    /// Workers that exist.
    pub nr_workers: u32,
    /// How many it may have.
    pub workers_max: u32,
    /// Workers that are neither idle nor wait, and do not run items of a CPU-intensive queue.
    pub nr_running: u32,
    /// Workers with nothing to do.
    pub nr_idle: u32,
    /// Whether a worker is on its way up.
    pub waking: bool,
    /// Whether no queue uses it: its workers leave.
    pub retired: bool,
    /// Pwqs with something to do.
    pub nr_ready: usize,
    /// Which, up to a bound.
    pub ready: Vec<u32>,
    /// When the next timer expires, in nanoseconds; early if that one was taken back.
    pub next_timer_ns: Option<u64>,
    /// Delayed items that wait for their time.
    pub nr_armed: usize,
    /// Which, up to a bound.
    pub armed: Vec<ArmedItem>,
    /// Its workers.
    pub workers: Vec<WorkerDump>,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum WorkerState {
    /// It has nothing to do.
    Idle,
    /// It is in an item.
    Running,
    /// It is in an item that waits, and has said so.
    Waiting,
    /// It is in an item that was found asleep, or is presumed to sleep as those before it did, and has not
    /// said so.
    Asleep,
    /// It is in an item, and a debugger or a signal has stopped it. Looked for in a stall only.
    Stopped,
    /// It is between two items, or on its way up or down.
    Between,
}

/// A worker, or a thread that helps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WorkerDump {
    /// The name of its thread; empty for a thread that helps.
    pub thread: String,
    /// Its thread, as the host names it, for tools that show threads; 0 if it has none.
    pub thread_id: u64,
    /// Its run slot.
    pub slot: u32,
    /// What it is at.
    pub state: WorkerState,
    /// What it runs, if it is in an item.
    pub running: Option<RunningInfo>,
    /// Items that it took and has not started, next one first.
    pub behind: Items,
    /// Items that wait for the end of the present run, since it is their own last one.
    pub set_aside: Items,
}

/// What a worker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RunningInfo {
    /// The number of the run in its slot.
    pub run: u64,
    /// When its worker took the batch that the item is of: it has not run for longer than since
    /// then. Not known for a thread that helps.
    pub batch_began_ns: Option<u64>,
    /// The pwq that the item was taken from.
    pub pwq: Option<u32>,
    /// That pwq's queue, if it is still there.
    pub queue: Option<String>,
    /// The item's address. It may be gone: its function may free it.
    pub item: Option<usize>,
    /// The item's function.
    pub function: Option<Function>,
    /// What the item says of itself.
    pub description: Option<String>,
}

/// A function, by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Function {
    /// Where it is.
    pub address: usize,
    /// What it is called, if that is known: the type of the items that it is for.
    pub name: Option<String>,
}

/// Items of one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Items {
    /// How many there are.
    pub total: usize,
    /// The first of them, [`ITEMS_MAX`] at most.
    pub first: Vec<ItemDump>,
}

/// A pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ItemDump {
    /// The item's address.
    pub address: usize,
    /// Its function.
    pub function: Function,
}

/// A delayed item that waits for its time.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ArmedItem {
    /// The item.
    pub item: ItemDump,
    /// When it expires, in nanoseconds.
    pub deadline_ns: u64,
    /// The CPU that it is to be queued on, if one was given.
    pub cpu: Option<u32>,
    /// Its queue, if it is still there.
    pub queue: Option<String>,
}

/// Whom a queue takes items from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Gate {
    /// Everybody.
    Open,
    /// Its own items, while somebody drains it.
    Draining,
    /// Its own items, as it is being destroyed; or those of all queues, as the engine shuts down.
    Closed,
    /// Nobody.
    Sealed,
}

/// A queue.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueueDump {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub flags: Flags,
    /// `per-cpu`, `unbound` or `ordered`.
    pub kind: &'static str,
    /// Its workers' niceness.
    pub nice: i32,
    /// Whether pods keep to themselves.
    pub strict: bool,
    /// The scope, as `affinity_scope` shows it; none for a per-CPU queue.
    pub scope: Option<String>,
    /// The CPUs in use.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub cpus: CpuSet,
    /// Items that run at once on one pool, at most.
    pub max_active: u32,
    /// The least that a NUMA node gets of an unbound queue's `max_active`.
    pub min_active: Option<u32>,
    /// Where several pods of a node share what it gets of that.
    pub nodes: Vec<NodeDump>,
    /// Its rescuer, if it is `MEM_RECLAIM`.
    pub rescuer: Option<RescuerDump>,
    /// Whether it takes part in a freeze that is on: its items wait for the thaw.
    pub frozen: bool,
    /// Whom it takes items from.
    pub gate: Gate,
    /// Threads that wait in a flush of it.
    pub flushers: usize,
    /// Its pwqs.
    pub pwqs: Vec<PwqDump>,
    /// The slots that run its items.
    pub slots: Vec<u32>,
}

impl QueueDump {
    /// Items that were queued and have not run to their end, as far as is known: a worker tells at
    /// the end of its batch.
    pub fn in_flight(&self) -> u64 {
        let all = self.pwqs.iter().flat_map(|pwq| &pwq.in_flight);
        all.map(|&count| u64::from(count)).sum()
    }

    /// Items that wait to be taken by a worker.
    pub fn pending(&self) -> usize {
        self.pwqs.iter().map(|pwq| pwq.pending.total).sum()
    }
}

/// What a queue's pods on one NUMA node share.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeDump {
    /// The node; none for pods that span several.
    pub node: Option<u32>,
    /// Places that are taken, or kept for a pwq that waited.
    pub nr: u32,
    /// Places.
    pub max: u32,
    /// Pwqs that wait for one.
    pub waiting: usize,
}

/// A queue's rescuer.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RescuerDump {
    /// Its slot.
    pub slot: u32,
    /// Its thread, as the host names it; 0 if there is none (in a child after a fork).
    pub thread_id: u64,
    /// What it runs.
    pub running: Option<RunningInfo>,
}

/// One queue's items on one pool.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PwqDump {
    /// Its id.
    pub id: u32,
    /// The pool that it is on.
    pub pool: u32,
    /// Workers that hold items of it.
    pub nr_active: u32,
    /// The most that may.
    pub max_active: u32,
    /// Whether it is on a pool's ready list.
    pub ready: bool,
    /// Whether as many workers hold it as may: what is pending is inactive until one lets go.
    pub saturated: bool,
    /// Items that wait to be taken, next one first.
    pub pending: Items,
    /// Items that were queued and are not known to be done, by flush colour.
    pub in_flight: Vec<u32>,
    /// The colour that items get now.
    pub colour: usize,
    /// Colours that a flush waits for.
    pub awaited: Vec<usize>,
    /// What an item took lately, in nanoseconds.
    pub item_ns: u64,
    /// Items that workers took so far. One that was given back and taken again counts twice.
    pub started: u64,
}

impl Dump {
    /// Says what workers have instead of the niceness that they should have: `had` is asked for that of
    /// each pool.
    pub fn name_niceness(&mut self, had: impl Fn(i32) -> Option<i32>) {
        self.pools.iter_mut().for_each(|pool| pool.nice_had = had(pool.nice));
    }
}

#[cfg(feature = "serde")]
fn as_text<T: std::fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(feature = "serde")]
fn all_as_text<T: std::fmt::Display, S: serde::Serializer>(
    values: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}
