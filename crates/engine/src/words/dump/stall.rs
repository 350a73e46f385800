//! The description of a stall: the items that wait, the threads in the way, and their stacks.

use std::fmt;

use super::text::Nanos;
use super::{Function, WorkerDump, WorkerState};
use crate::words::host::{Frame, NoStack};

/// Items wait, and nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The time of the snapshot on the host's clock, in nanoseconds.
    pub at_ns: u64,
    /// For how long no item has started or ended here, as far as the watcher has seen, in
    /// nanoseconds.
    pub stalled_ns: u64,
    /// What the items wait for.
    pub wants: Wants,
    /// The queues of these items.
    pub queues: Vec<String>,
    /// Items that no worker has taken, and items that a worker took and that wait behind another.
    pub pending: usize,
    /// The pool that they are to run in: its id and its label, which is in its workers' names. None if they
    /// could run in several.
    pub pool: Option<(u32, String)>,
    /// That pool's workers and other threads that run items of these queues, those in the way
    /// first.
    pub workers: Vec<StalledWorker>,
    /// Workers that are not listed, beyond [`STALLED_WORKERS_MAX`].
    pub more_workers: usize,
    /// Items that wait for each other, if the stall is a deadlock: each for the next one, and the
    /// last for the first.
    pub deadlock: Vec<DeadlockedItem>,
    /// If a thread in the way sleeps undeclared, and sleeps are not detected: why they are not.
    /// Such a thread gets no replacement.
    pub undeclared: Option<String>,
    /// The cap on the pool's workers, if the pool has reached it.
    pub workers_max: Option<u32>,
}

/// The most workers that a stall lists.
pub const STALLED_WORKERS_MAX: usize = 32;

/// What the items of a stall wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// A worker of their pool: as many run as should, or no more can be created.
    Worker,
    /// A permit of their queue's `max_active`; all are in use. An ordered queue has one.
    Permit,
    /// The end of each other; possibly nothing is pending.
    EachOther,
}

/// A worker, or another thread that runs an item, in a stall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalledWorker {
    /// Its thread's number on the host; 0 if unknown.
    pub thread: u64,
    /// Whether it is in the way: the waiting items could start if it went on.
    pub blocks: bool,
    /// Its state.
    pub worker: WorkerDump,
    /// Its stack, innermost frame first, if it blocks and the host could collect it. Only a few
    /// threads are asked at a time.
    pub stack: Result<Vec<Frame>, NoCalls>,
}

/// Why the stack of a worker is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCalls {
    /// It was not asked: it is not in the way, or enough others are.
    NotAsked,
    /// It did not answer in time.
    NoAnswer,
    /// Stacks are not available on this system.
    Unavailable,
    /// It has begun another item, or is in none, since the stall was found.
    WentOn,
}

impl From<NoStack> for NoCalls {
    fn from(why: NoStack) -> NoCalls {
        match why {
            NoStack::NoAnswer => NoCalls::NoAnswer,
            NoStack::Unavailable => NoCalls::Unavailable,
        }
    }
}

/// An item of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockedItem {
    /// The slot that it runs in.
    pub slot: u32,
    /// The number of its run there.
    pub run: u64,
    /// The item's address.
    pub address: usize,
    /// Its function.
    pub function: Function,
    /// Its queue.
    pub queue: String,
    /// The event that it waits for.
    pub waits_for: Awaited,
}

/// What an item of a deadlock waits for. The next item of the deadlock is that, or is in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An item that has not started.
    Pending {
        /// Its address.
        address: usize,
        /// Its function, if it was found.
        function: Option<Function>,
        /// Its queue.
        queue: String,
        /// Whether that queue is ordered.
        ordered: bool,
    },
    /// An item that runs: the next one of the deadlock.
    Running,
    /// All items of a queue.
    Queue(String),
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing has moved for {} in ", Nanos(self.stalled_ns))?;
        match self.queues.as_slice() {
            [] => write!(f, "a destroyed queue")?,
            [one] => write!(f, "queue {one:?}")?,
            several => write!(f, "queues {}", several.join(", "))?,
        }
        if self.wants == Wants::EachOther {
            write!(f, "; {} items wait for each other", self.deadlock.len())?;
            return self.print_parts(f);
        }
        let (items, verb) = if self.pending == 1 { ("item", "waits") } else { ("items", "wait") };
        write!(f, "; {} {items} {verb} for ", self.pending)?;
        match (self.wants, &self.pool) {
            (Wants::Permit, _) => write!(f, "a permit of max_active")?,
            (Wants::Worker, Some((id, label))) => write!(f, "a worker of pool {id} ({label})")?,
            (Wants::Worker, None) => write!(f, "a worker")?,
            (Wants::EachOther, _) => {}
        }
        self.print_parts(f)
    }
}

impl Stall {
    /// Prints the threads in the way, and why they are not replaced.
    fn print_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocking: Vec<_> = self.workers.iter().filter(|worker| worker.blocks).collect();
        for (at, worker) in blocking.iter().enumerate() {
            write!(f, "\n  in the way: ")?;
            worker.print(f, self.at_ns)?;
            worker.print_calls(f, &blocking[..at])?;
        }
        if blocking.is_empty() {
            write!(f, "\n  no thread is in the way: no worker can be created")?;
        }
        let others = self.workers.iter().filter(|worker| !worker.blocks);
        for worker in others {
            write!(f, "\n  beside: ")?;
            worker.print(f, self.at_ns)?;
        }
        if self.more_workers > 0 {
            write!(f, "\n  and {} more workers", self.more_workers)?;
        }
        self.print_deadlock(f)?;
        if let Some(reason) = &self.undeclared {
            write!(f, "\n  undeclared sleeps are not noticed: {reason}")?;
        }
        if let Some(max) = self.workers_max {
            write!(f, "\n  the pool has {max} workers, as many as it may (pool_workers_max)")?;
        }
        Ok(())
    }
}

impl Stall {
    /// Prints what each item of the deadlock waits for, a line for each.
    pub(super) fn print_deadlock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in 0..self.deadlock.len() {
            let next = &self.deadlock[(at + 1) % self.deadlock.len()];
            write!(f, "\n  deadlock: {}", Step(&self.deadlock[at], next))?;
        }
        Ok(())
    }
}

impl StalledWorker {
    /// Prints its state.
    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>, now: u64) -> fmt::Result {
        write!(f, "{self}, {}", self.worker.state)?;
        if let Some(running) = &self.worker.running {
            if let Some(function) = &running.function {
                write!(f, ", in {function}")?;
            }
            if let Some(queue) = &running.queue {
                write!(f, " of queue {queue:?}")?;
            }
            if let Some(began) = running.batch_began_ns {
                write!(f, ", for at most {}", Nanos(now.saturating_sub(began)))?;
            }
            if let Some(description) = &running.description {
                write!(f, ", {description:?}")?;
            }
        }
        Ok(())
    }

    /// Prints its stack, unless one of those printed already is the same.
    pub(super) fn print_calls(&self, f: &mut fmt::Formatter<'_>, printed: &[&Self]) -> fmt::Result {
        let frames = match &self.stack {
            Ok(frames) => frames,
            Err(why) => return write!(f, "\n        ({why})"),
        };
        if let Some(same) = printed.iter().find(|other| other.stack == self.stack) {
            return write!(f, "\n        (the same stack as {same})");
        }
        for (number, frame) in frames.iter().enumerate() {
            write!(f, "\n    {number:>3} {frame}")?;
        }
        Ok(())
    }
}

/// Its identity.
impl fmt::Display for StalledWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkerDump { thread, slot, .. } = &self.worker;
        match (thread.as_str(), self.thread) {
            ("", 0) => write!(f, "slot {slot}"),
            ("", number) => write!(f, "slot {slot} (thread {number})"),
            (name, 0) => write!(f, "{name} (slot {slot})"),
            (name, number) => write!(f, "{name} (thread {number}, slot {slot})"),
        }
    }
}

impl fmt::Display for NoCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoCalls::NotAsked => {
                "its stack was not collected: at most eight threads are asked at a time"
            }
            NoCalls::NoAnswer => "it did not answer in time: it blocks signals, or gets no CPU",
            NoCalls::Unavailable => "its stack is not available on this system",
            NoCalls::WentOn => "it has moved on meanwhile",
        })
    }
}

/// An item of a deadlock, and the next one.
struct Step<'a>(&'a DeadlockedItem, &'a DeadlockedItem);

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step(item, next) = *self;
        write!(f, "item {item} of queue {:?} waits for ", item.queue)?;
        match &item.waits_for {
            Awaited::Running => write!(f, "item {next} of queue {:?}, which runs", next.queue),
            Awaited::Queue(queue) => {
                write!(f, "all items of queue {queue:?}, of which {next} runs")
            }
            Awaited::Pending { address, function, queue, ordered } => {
                write!(f, "item ")?;
                if let Some(function) = function {
                    write!(f, "{function} ")?;
                }
                let kind = if *ordered { "ordered queue" } else { "queue" };
                write!(f, "{address:#x}, which waits behind {next} in {kind} {queue:?}")
            }
        }
    }
}

impl fmt::Display for DeadlockedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x} (slot {})", self.function, self.address, self.slot)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)?;
        if let Some(symbol) = &self.symbol {
            write!(f, " {symbol}")?;
        }
        match &self.location {
            Some(location) => write!(f, " ({location})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkerState::Idle => "idle",
            WorkerState::Running => "running",
            WorkerState::Waiting => "waiting",
            WorkerState::Asleep => "asleep",
            WorkerState::Stopped => "stopped",
            WorkerState::Between => "between",
        })
    }
}
