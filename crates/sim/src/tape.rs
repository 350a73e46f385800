//! The record of a run: what each thread did, in the order in which it did it.
//!
//! Entries of the same instant are in the order of execution. A call of the engine has two entries,
//! at its begin and at its end; its effect lies between them.

use std::fmt;
use std::hash::{Hash, Hasher};

use uwork_policy::cpuset::CpuSet;

use crate::machine::ThreadId;

/// A call of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Queues an item, on a CPU if one is named.
    Queue(Option<u32>),
    /// Arms an item's timer.
    Arm,
    /// Cancels an item without waiting.
    Cancel,
    /// Cancels an item and waits for its run.
    CancelSync,
    /// Waits for the last queueing of an item.
    Flush,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It begins a call for this item.
    Begins(Call, usize),
    /// The call ends. Whether it has queued, armed or cancelled the item, or has waited.
    Ends(Call, usize, bool),
    /// A run of this item starts.
    Starts(usize),
    /// That run ends.
    Finishes(usize),
    /// A copy of an item is made: its number, and the item's.
    Copies(usize, usize),
    /// It waits in a declared section, or the section ends.
    Declares(bool),
    /// It begins to change the CPUs that the process may use, to these.
    Restricts(CpuSet),
    /// The change has returned. Whether it was made.
    Restricted(bool),
    /// It destroys the queues and the engine, after the last item.
    Retires,
    /// It is created.
    Created,
    /// It has ended.
    Exits,
    /// It gets a CPU for so many nanoseconds.
    Burns(u64),
    /// It loses its CPU to another thread.
    Evicted,
    /// It is off the CPU for a time, by chance.
    Preempted,
    /// It parks.
    Parks,
    /// It sleeps for a time, without the engine's knowledge.
    Sleeps,
    /// Its park ends.
    Unparked,
    /// It wakes this thread, which is parked.
    Wakes(ThreadId),
}

/// What a thread did, and when: a step of the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The time, in nanoseconds.
    pub at: u64,
    /// The thread.
    pub thread: ThreadId,
    /// Its CPU.
    pub cpu: u32,
    /// What it did.
    pub what: What,
}

/// The record; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    entries: Vec<Entry>,
}

impl Tape {
    /// Adds an entry.
    pub fn push(&mut self, at: u64, thread: ThreadId, cpu: u32, what: What) {
        self.entries.push(Entry { at, thread, cpu, what });
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A number that two different records hardly ever have in common, the same on every machine
    /// with 64 bits and this byte order.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest(0);
        self.entries.hash(&mut digest);
        digest.finish()
    }
}

/// Unlike the standard library's hashers, it is the same in every version.
struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { at, thread, cpu, what } in &self.entries {
            let us = (at / 1_000, at % 1_000);
            writeln!(f, "{:>10}.{:03} us  CPU {cpu:<4} thread {thread:<4} {what:?}", us.0, us.1)?;
        }
        Ok(())
    }
}
