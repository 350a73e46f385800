//! What a stall looks like: who waits, who is in the way, and where that is stuck.

use std::fmt;

use super::text::Nanos;
use super::{Function, WorkerDump, WorkerState};
use crate::host::{Frame, NoStack};

/// Items wait, and nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stall {
    /// When this was so, on the host's clock, in nanoseconds.
    pub at_ns: u64,
    /// For how long no item has started or ended here, as far as the watch has seen it, in nanoseconds.
    pub stalled_ns: u64,
    /// What the items wait for.
    pub wants: Wants,
    /// The queues that they are of.
    pub queues: Vec<String>,
    /// Items that wait to be taken, and those that were taken and wait behind another.
    pub pending: usize,
    /// The pool that they are to run in: its id and its label, which is in its workers' names. None if they
    /// could run in several.
    pub pool: Option<(u32, String)>,
    /// That pool's workers and whoever else runs items of these queues, those that are in the way first.
    pub workers: Vec<StalledWorker>,
    /// Workers that are not listed, beyond [`STALLED_WORKERS_MAX`].
    pub more_workers: usize,
    /// Items that wait for each other, if that is what is wrong: each for the next one, and the last for the
    /// first.
    pub deadlock: Vec<DeadlockedItem>,
    /// If somebody who is in the way sleeps and has not said so, and that is not noticed: why it is not. Then nobody
    /// stands in.
    pub undeclared: Option<String>,
    /// How many workers the pool may have, if it has as many.
    pub workers_max: Option<u32>,
}

/// The most workers that a stall lists.
pub const STALLED_WORKERS_MAX: usize = 32;

/// What the items of a stall wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Wants {
    /// A worker of their pool: as many run as should, or no more can be had.
    Worker,
    /// A place under their queue's `max_active`, all of which are taken. An ordered queue has one.
    Place,
    /// The end of each other: nothing need be pending.
    EachOther,
}

/// A worker, or another thread that runs an item, of a stall.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StalledWorker {
    /// Its thread, as the host names it; 0 if that is not known.
    pub thread: u64,
    /// Whether what waits could start if it went on.
    pub blocks: bool,
    /// What it is at.
    pub worker: WorkerDump,
    /// Its calls, innermost first, if it blocks and the host could tell. Of a few at a time only.
    pub stack: Result<Vec<Frame>, NoCalls>,
}

/// Why the calls of a worker are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum NoCalls {
    /// It was not asked: it is in nobody's way, or enough others are.
    NotAsked,
    /// It did not answer in time.
    NoAnswer,
    /// They cannot be had here.
    Unavailable,
    /// It has begun another item, or none, since it was in the way.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    /// What it waits for.
    pub waits_for: Awaited,
}

/// What an item of a deadlock waits for. The next item of the deadlock is in the way of it, or is it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Awaited {
    /// An item that has not started.
    Pending {
        /// Its address.
        address: usize,
        /// Its function, if it was found.
        function: Option<Function>,
        /// Its queue.
        queue: String,
        /// Whether that one is ordered.
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
            [] => write!(f, "a queue that is gone")?,
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
            (Wants::Place, _) => write!(f, "a place under max_active")?,
            (Wants::Worker, Some((id, label))) => write!(f, "a worker of pool {id} ({label})")?,
            (Wants::Worker, None) => write!(f, "a worker")?,
            (Wants::EachOther, _) => {}
        }
        self.print_parts(f)
    }
}

impl Stall {
    /// Who is in the way, and why nobody helps.
    fn print_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocking: Vec<_> = self.workers.iter().filter(|worker| worker.blocks).collect();
        for (at, worker) in blocking.iter().enumerate() {
            write!(f, "\n  in the way: ")?;
            worker.print(f, self.at_ns)?;
            worker.print_calls(f, &blocking[..at])?;
        }
        if blocking.is_empty() {
            write!(f, "\n  nobody is in the way: there is no worker to be had")?;
        }
        let others = self.workers.iter().filter(|worker| !worker.blocks);
        for worker in others {
            write!(f, "\n  beside: ")?;
            worker.print(f, self.at_ns)?;
        }
        if self.more_workers > 0 {
            write!(f, "\n  and {} more workers", self.more_workers)?;
        }
        for at in 0..self.deadlock.len() {
            let next = &self.deadlock[(at + 1) % self.deadlock.len()];
            write!(f, "\n  deadlock: {}", Step(&self.deadlock[at], next))?;
        }
        if let Some(reason) = &self.undeclared {
            write!(f, "\n  undeclared sleeps are not noticed: {reason}")?;
        }
        if let Some(max) = self.workers_max {
            write!(f, "\n  the pool has {max} workers, as many as it may (pool_workers_max)")?;
        }
        Ok(())
    }
}

impl StalledWorker {
    /// What it is at.
    fn print(&self, f: &mut fmt::Formatter<'_>, now: u64) -> fmt::Result {
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

    /// Its calls, unless one of these who were printed has the same.
    fn print_calls(&self, f: &mut fmt::Formatter<'_>, printed: &[&Self]) -> fmt::Result {
        let frames = match &self.stack {
            Ok(frames) => frames,
            Err(why) => return write!(f, "\n        ({why})"),
        };
        if let Some(same) = printed.iter().find(|other| other.stack == self.stack) {
            return write!(f, "\n        (the same calls as {same})");
        }
        for (number, frame) in frames.iter().enumerate() {
            write!(f, "\n    {number:>3} {frame}")?;
        }
        Ok(())
    }
}

/// Who it is.
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
            NoCalls::NotAsked => "its calls were not asked for: eight threads at a time are asked",
            NoCalls::NoAnswer => "it did not answer within 100 ms",
            NoCalls::Unavailable => "its calls cannot be taken here",
            NoCalls::WentOn => "it has gone on meanwhile",
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
        // The word is the variant's.
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}
