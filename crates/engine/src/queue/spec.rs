//! The specification of a queue, and the reasons why it can be refused.

use std::fmt;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::{Flags, FlagsError};
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::words::places::Places;

/// The longest queue name, in bytes (the kernel's `WQ_NAME_LEN`, without the terminator).
pub const NAME_MAX: usize = 31;
/// The greatest `max_active`.
pub const MAX_ACTIVE_LIMIT: u32 = 2048;
/// The `max_active` of queues that did not choose a value.
pub const MAX_ACTIVE_DEFAULT: u32 = 1024;
/// The niceness of high-priority queues.
pub const NICE_HIGHPRI: i32 = -20;

/// Where a queue's items may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On the CPU that queued them.
    PerCpu,
    /// In the pod of the CPU that queued them.
    Unbound(Attrs),
    /// One at a time, in the order in which they were queued.
    Ordered(Attrs),
    /// As `Ordered`, but on one thread that serves this queue alone (the kernel's
    /// `kthread_worker`). The scope and strictness have no effect.
    Dedicated(Attrs),
}

impl Kind {
    /// The attributes, for kinds that have any.
    pub fn attrs(&self) -> Option<&Attrs> {
        match self {
            Kind::PerCpu => None,
            Kind::Unbound(attrs) | Kind::Ordered(attrs) | Kind::Dedicated(attrs) => Some(attrs),
        }
    }
}

/// The attributes of an unbound queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// Niceness of the workers.
    pub nice: i32,
    /// The CPUs to use, as far as the process may use them.
    pub cpumask: CpuSet,
    /// The affinity scope.
    pub scope: AffinityScopeChoice,
    /// Whether pods share no work.
    pub strict: bool,
}

impl Attrs {
    /// Takes each attribute of `after` that differs from `before`.
    pub(super) fn take_changes(&mut self, before: &Attrs, after: Attrs) {
        let Attrs { nice, cpumask, scope, strict } = after;
        if nice != before.nice {
            self.nice = nice;
        }
        if cpumask != before.cpumask {
            self.cpumask = cpumask;
        }
        if scope != before.scope {
            self.scope = scope;
        }
        if strict != before.strict {
            self.strict = strict;
        }
    }
}

/// The specification of a new queue.
#[derive(Clone, Debug)]
pub struct QueueSpec {
    /// Its name, unique among the queues that exist.
    pub name: String,
    /// Where items run.
    pub kind: Kind,
    /// Properties in addition to the kind: `HIGHPRI` (for per-CPU queues; unbound ones have their
    /// niceness in their attributes), `CPU_INTENSIVE`, `MEM_RECLAIM`, `FREEZABLE`, `BH`, `SYSFS`.
    pub flags: Flags,
    /// The most items that run at once on one pool.
    pub max_active: u32,
}

/// Why a queue could not be created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The name is empty or too long.
    BadName(String),
    /// A queue with this name exists.
    NameTaken(String),
    /// `max_active` is out of range.
    BadMaxActive(u32),
    /// The mask has no CPU that the process may use.
    NoCpu {
        /// The mask that was asked for.
        cpumask: CpuSet,
        /// The CPUs that are allowed.
        allowed: CpuSet,
    },
    /// Niceness is out of range.
    BadNice(i32),
    /// Attributes are for unbound and ordered queues; `max_active` of an ordered one is 1.
    NotForThisKind(&'static str),
    /// No worker thread could be created.
    NoThread(String),
    /// Too many pools exist.
    TooManyPools,
    /// Too many queues exist.
    TooManyQueues,
    /// The CPU does not exist or the process may not use it.
    BadCpu {
        /// The CPU that was asked for.
        cpu: u32,
        /// The CPUs that are allowed.
        allowed: CpuSet,
    },
    /// Per-CPU data has no part for this CPU.
    NoPart {
        /// The CPU that was asked for.
        cpu: u32,
        /// The CPUs that have a part.
        there: CpuSet,
    },
    /// The caller would wait for itself.
    WouldDeadlock,
    /// The caller holds the per-CPU lock that it wants.
    HeldAlready,
    /// Another thread holds the per-CPU lock, and the caller does not wait.
    Busy,
    /// A holder of the per-CPU lock has panicked.
    Poisoned,
    /// These flags exclude each other.
    BadFlags(FlagsError),
    /// The queue drains or was destroyed, or the engine was shut down.
    Refused,
    /// The engine was shut down, and makes no more queues.
    ShutDown,
    /// The limit of a wait has passed. The sentence says what has not ended.
    TimedOut(&'static str),
    /// The queue is not paused.
    NotPaused,
    /// The capacity of a bounded queue is 0, or more than 2^40 - 1.
    BadCapacity,
    /// No place is free in a bounded queue with this capacity.
    Full(usize),
    /// All places of the bounded queue are free already.
    NotReserved,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueError::BadName(name) => {
                write!(f, "queue name {name:?} has ")?;
                match name.chars().find(|c| c.is_control()) {
                    Some(c) => write!(f, "the control character {c:?}")?,
                    None => write!(f, "{} bytes", name.len())?,
                }
                write!(f, "; allowed are 1 to {NAME_MAX} bytes, without control characters")
            }
            QueueError::NameTaken(name) => {
                write!(f, "a queue named {name:?} exists; names are unique while a queue lives")
            }
            QueueError::BadMaxActive(n) => {
                write!(f, "max_active {n} is out of range; allowed are 1 to {MAX_ACTIVE_LIMIT}")
            }
            QueueError::NoCpu { cpumask, allowed } if cpumask.is_empty() => {
                write!(f, "the cpumask is empty; this process may use CPUs {allowed}")
            }
            QueueError::NoCpu { cpumask, allowed } => write!(
                f,
                "cpumask {cpumask} has no CPU that this process may use; allowed are {allowed}"
            ),
            QueueError::BadNice(nice) => {
                write!(f, "nice {nice} is out of range; allowed are -20 to 19")
            }
            QueueError::NotForThisKind(what) => f.write_str(what),
            QueueError::NoThread(why) => write!(f, "no worker thread could be created: {why}"),
            QueueError::TooManyPools => f.write_str("too many worker pools exist"),
            QueueError::TooManyQueues => f.write_str("too many queues exist"),
            QueueError::BadCpu { cpu, allowed } => {
                write!(f, "CPU {cpu} cannot be used by this process; allowed are {allowed}")
            }
            QueueError::NoPart { cpu, there } => {
                write!(f, "this data has no part for CPU {cpu}; CPUs with a part: {there}")
            }
            QueueError::HeldAlready => {
                f.write_str("the caller holds this per-CPU lock already and would wait for itself")
            }
            QueueError::Busy => f.write_str("another thread holds the lock of this CPU's part"),
            QueueError::Poisoned => {
                f.write_str("a thread panicked while it held the lock of this CPU's part")
            }
            QueueError::BadFlags(error) => error.fmt(f),
            QueueError::Refused => {
                f.write_str("the queue takes no more items: it drains, was destroyed or shut down")
            }
            QueueError::ShutDown => f.write_str(
                "uwork was shut down in this process: it makes no new queues and takes no more items",
            ),
            QueueError::TimedOut(what) => f.write_str(what),
            QueueError::BadCapacity => {
                write!(f, "the capacity of a bounded queue is 1 to {}", Places::CAPACITY_MAX)
            }
            QueueError::Full(capacity) => {
                write!(f, "the bounded queue is full: {capacity} wait, which is its capacity")
            }
            QueueError::NotReserved => f.write_str(
                "all places of the bounded queue are free; each release needs a reserve",
            ),
            QueueError::NotPaused => {
                f.write_str("the queue is not paused; each resume needs a pause before it")
            }
            QueueError::WouldDeadlock => {
                f.write_str("the caller runs in an item of this queue and would wait for itself")
            }
        }
    }
}

impl std::error::Error for QueueError {}

/// The scope names that a user may give, for error messages.
pub fn scope_names() -> String {
    let names: Vec<&str> = AffinityScope::ALL.iter().map(|scope| scope.name()).collect();
    format!("default, {}", names.join(", "))
}
