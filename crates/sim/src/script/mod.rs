//! Histories as text: queues, items with their steps, and the threads that submit them.
//!
//! One declaration a line; `#` starts a comment. [`parse`] reads a script and names the line of an
//! error, [`Display`](std::fmt::Display) writes it. A script that was written reads as the same
//! script.
//!
//! - `machine M`: a name or description; else `core:4`
//! - `seed N`: the seed of all choices; else 0
//! - `bound T`: stops the history; else 300 s
//! - `fault NAME N`: see below
//! - `queue NAME KIND ...`: `percpu`, `unbound`, `ordered`, `bh` or `dedicated`
//! - `item NAME QUEUE: STEPS`: the steps of a run
//! - `thread: STEPS`: the steps of a thread, which starts at time 0 on its own CPU
//!
//! Options of a queue: `highpri` and `intensive` (per-CPU), `reclaim` and `max_active=N` (per-CPU and
//! unbound), `scope=S`, `strict` and `cpus=LIST` (unbound). Steps:
//!
//! - `burn T`: computes
//! - `sleep T`, `doze T`: sleeps, declared or not
//! - `lock NAME T`: computes for T under a lock
//! - `queue ITEM [CPU]`, `arm ITEM T`: queues an item, now or after T
//! - `requeue N`: queues the running item again, N times in all
//! - `fork ITEM N`: queues N copies and waits for them
//! - `flush`, `cancel`, `cancel_sync ITEM`: as the functions of the library
//! - `free`: drops the running item; later steps for it do nothing
//! - `panic`: the item panics
//! - `cpus LIST`, `cpus all`: all other CPUs go offline, these return
//!
//! Times are `250ns`, `5us`, `10ms`, `1s`. `free`, `panic` and `requeue` are for items, `cpus` is for
//! threads. Items of a BH queue must not wait.
//!
//! A fault is off (0) by default. Rates are 2 or more, latencies at most an hour.
//!
//! | fault | meaning |
//! |---|---|
//! | `order 1` | the next thread and its CPU are drawn |
//! | `preempt N`, `stall N` | at one in N points a thread is preempted; a worker stalls for up to 5 ms |
//! | `early N`, `late N` | one in N parks ends early; one in N wakes is up to 1 ms late |
//! | `spawn N` | one in N thread creations fails |
//! | `memory N` | one in N requests for a thread's stack or a queue's counters is refused; other memory never is |
//! | `jump N` | at one in N events the clock jumps by up to 5 ms |
//! | `wake_ns N`, `spawn_ns N` | the latency of a wake, and of a thread's creation |

mod parse;
mod print;

use std::ops::RangeInclusive;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;

pub use parse::{ScriptError, parse};

/// The bound of a history's time, unless the script sets another.
pub const BOUND_NS: u64 = 300_000_000_000;

/// The longest time in a script.
pub(crate) const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// The limit of rates: one in so many.
const RATE_MAX: u64 = 1_000_000_000;

/// A history; see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The machine: a preset or a notation.
    pub machine: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The history is stopped at this time.
    pub bound_ns: u64,
    /// Faults and latencies.
    pub faults: Faults,
    /// The queues.
    pub queues: Vec<QueueLine>,
    /// The items.
    pub items: Vec<ItemLine>,
    /// The steps of each thread, which begin at time 0.
    pub threads: Vec<Vec<Step>>,
}

/// Faults and latencies, by the names that a script has for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<(&'static str, u64)>);

impl Faults {
    /// The names, with what each means. Rates are one in so many; times are nanoseconds.
    pub const NAMES: [(&str, &str); 10] = [
        ("order", "1: threads and CPUs are chosen at random"),
        ("preempt", "a thread is preempted at one in N points"),
        ("stall", "a worker stalls for milliseconds at one in N points"),
        ("early", "one in N parks ends early"),
        ("late", "one in N wakes is late"),
        ("spawn", "one in N thread creations fails"),
        ("memory", "one in N requests for memory that may be refused is refused"),
        ("jump", "the clock jumps at one in N events"),
        ("wake_ns", "the latency of a wake"),
        ("spawn_ns", "the latency of a thread's creation"),
    ];

    /// The values that a script may give to a fault of this name, besides 0. A fault at every point
    /// would leave the threads no step in between.
    #[must_use]
    pub fn values(name: &str) -> Option<RangeInclusive<u64>> {
        let (name, _) = Faults::NAMES.iter().find(|known| known.0 == name)?;
        Some(match *name {
            "order" => 1..=1,
            "wake_ns" | "spawn_ns" => 1..=TIME_NS_MAX,
            _ => 2..=RATE_MAX,
        })
    }

    /// Sets the value of a fault. False if there is no fault of that name.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let Some((name, _)) = Faults::NAMES.iter().find(|known| known.0 == name) else {
            return false;
        };
        self.0.retain(|fault| fault.0 != *name);
        if value > 0 {
            self.0.push((name, value));
        }
        true
    }

    /// The faults that are set.
    #[must_use]
    pub fn all(&self) -> &[(&'static str, u64)] {
        &self.0
    }

    /// The value of a fault; 0 if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|fault| fault.0 == name).map_or(0, |fault| fault.1)
    }

    /// The same for the machine. CPUs have time slices of a millisecond.
    #[must_use]
    pub fn chaos(&self) -> Chaos {
        Chaos {
            drawn_order: self.get("order") > 0,
            preempt_one_in: self.get("preempt"),
            stall_one_in: self.get("stall"),
            early_one_in: self.get("early"),
            late_one_in: self.get("late"),
            spawn_fails_one_in: self.get("spawn"),
            memory_fails_one_in: self.get("memory"),
            jump_one_in: self.get("jump"),
            wake_ns: self.get("wake_ns"),
            spawn_ns: self.get("spawn_ns"),
            slice_ns: 1_000_000,
            ..Chaos::STEADY
        }
    }
}

/// The kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Per-CPU.
    PerCpu,
    /// Unbound.
    Unbound,
    /// Ordered.
    Ordered,
    /// BH.
    Bh,
    /// A thread of its own.
    Dedicated,
}

/// A queue of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueLine {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: QueueKind,
    /// HIGHPRI, CPU_INTENSIVE, MEM_RECLAIM.
    pub flags: Flags,
    /// Its limit, if it is not the default.
    pub max_active: Option<u32>,
    /// The scope of an unbound queue; the default scope if none is given.
    pub scope: Option<AffinityScope>,
    /// Whether the scope is strict.
    pub strict: bool,
    /// The CPUs of an unbound queue, if they are not all.
    pub cpus: Option<CpuSet>,
}

/// An item of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemLine {
    /// Its name.
    pub name: String,
    /// Its queue, by index.
    pub queue: usize,
    /// What it does when it runs.
    pub steps: Vec<Step>,
}

/// A step of an item or of a thread. Items are given by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for so many nanoseconds.
    Burn(u64),
    /// Sleeps in a declared section.
    Sleep(u64),
    /// Sleeps without declaring it.
    Doze(u64),
    /// Takes a lock, by its name, and computes with it held. Waits in a declared section.
    Lock(String, u64),
    /// Queues an item, on a CPU if one is given.
    Queue(usize, Option<u32>),
    /// Queues an item after so many nanoseconds.
    Arm(usize, u64),
    /// Queues the running item again, so many times in all.
    Requeue(u64),
    /// Queues so many copies of an item, and waits for them.
    Fork(usize, u64),
    /// Waits for an item.
    Flush(usize),
    /// Cancels an item.
    Cancel(usize),
    /// Cancels an item and waits for its run.
    CancelSync(usize),
    /// The script drops the item that runs; it is freed at the end of this run.
    Free,
    /// The item panics.
    Panic,
    /// The process may use only these CPUs; all, if none are given.
    Cpus(Option<CpuSet>),
}

impl Step {
    /// The item that the step is about.
    #[must_use]
    pub fn item(&self) -> Option<usize> {
        match *self {
            Step::Queue(item, _)
            | Step::Arm(item, _)
            | Step::Fork(item, _)
            | Step::Flush(item)
            | Step::Cancel(item)
            | Step::CancelSync(item) => Some(item),
            _ => None,
        }
    }

    /// Whether the step may block, which items of BH queues must not.
    #[must_use]
    pub fn may_block(&self) -> bool {
        matches!(
            self,
            Step::Sleep(_)
                | Step::Doze(_)
                | Step::Lock(..)
                | Step::Fork(..)
                | Step::Flush(_)
                | Step::CancelSync(_)
                | Step::Cpus(_)
        )
    }
}
