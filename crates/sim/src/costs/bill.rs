//! What the threads of a machine owe: the time of instructions since they were last on the clock.

use std::panic::Location;

use uwork_policy::topology::Topology;

pub use super::lines::{Hot, Use};
use super::lines::{Lines, Transfer};
use super::locks::Locks;
use super::{Cost, Costs};
use crate::machine::ThreadId;

/// How far a thread may run ahead of the clock, in picoseconds.
const AHEAD_PS: u64 = 200_000;

/// The account of a machine.
#[derive(Debug)]
pub struct Bill {
    costs: Costs,
    lines: Lines,
    pub(crate) locks: Locks,
    /// What the executing thread owes, in picoseconds.
    owed_ps: u64,
    /// The thread that ran last on each CPU.
    last_on: Vec<Option<ThreadId>>,
    /// When each CPU has the lines for all stores that it has made, in nanoseconds.
    stored_at: Vec<u64>,
    /// The time that threads spent waiting for locks on their CPUs, in nanoseconds.
    spun_ns: u64,
    /// How often a thread slept for a lock.
    pub(crate) slept: u64,
}

impl Bill {
    /// An empty account of this machine.
    #[must_use]
    pub fn new(machine: &Topology, costs: Costs) -> Bill {
        let cpus = machine.cpus().iter().map(|cpu| cpu.id as usize + 1).max().unwrap_or(1);
        Bill {
            costs,
            lines: Lines::new(machine),
            locks: Locks::default(),
            owed_ps: 0,
            last_on: vec![None; cpus],
            stored_at: vec![0; cpus],
            spun_ns: 0,
            slept: 0,
        }
    }

    /// Whether the executing thread owes no time that the clock can show. A thread that is
    /// suspended must not: another would pay.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.owed_ps < 1_000
    }

    /// The figures.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Charges a figure to the executing thread.
    pub fn charge(&mut self, cost: Cost) {
        self.owed_ps += self.costs.ps(cost);
    }

    /// Charges time to the executing thread.
    pub fn charge_ns(&mut self, ns: u64) {
        self.owed_ps += ns * 1_000;
    }

    /// The whole nanoseconds that the executing thread owes. The rest stays.
    pub fn settle(&mut self) -> u64 {
        let ns = self.owed_ps / 1_000;
        self.owed_ps %= 1_000;
        ns
    }

    /// Whether the executing thread has to settle before it uses this memory: the order of its
    /// accesses and those of other threads counts, or it is far ahead of the clock.
    pub(crate) fn must_settle(&mut self, address: usize, cpu: u32) -> bool {
        #[cfg(feature = "costs")]
        super::heap::take_freed(|address, size| self.lines.forget(address, size));
        let name = self.lines.name(address, cpu);
        !self.is_settled() && (self.owed_ps > AHEAD_PS || self.lines.is_shared(name))
    }

    /// How long this CPU still waits for the lines of its stores, in nanoseconds.
    pub(crate) fn stores_ns(&self, cpu: u32, now: u64) -> u64 {
        self.stored_at[cpu as usize].saturating_sub(now + self.owed_ps / 1_000)
    }

    /// Whether an access by this CPU has its line. Charges what it costs if so.
    pub(crate) fn hits(&mut self, address: usize, cpu: u32, how: Use, now: u64) -> bool {
        let name = self.lines.name(address, cpu);
        let hit = self.lines.hits(name, cpu, how, now + self.owed_ps / 1_000);
        if hit {
            self.charge_access(how);
        }
        hit
    }

    pub(crate) fn charge_access(&mut self, how: Use) {
        self.charge(Cost::Access);
        if how == Use::Update {
            self.charge(Cost::Locked);
        }
    }

    /// Makes an access at this time. Returns what the thread waits for; a store does not wait.
    pub(crate) fn access(
        &mut self,
        address: usize,
        cpu: u32,
        how: Use,
        here: &'static Location<'static>,
        now: u64,
    ) -> Transfer {
        let name = self.lines.name(address, cpu);
        // The thread may have moved to a CPU that has the line.
        if self.lines.hits(name, cpu, how, now) {
            return Transfer { wait_ns: 0, ps: 0 };
        }
        let transfer = self.lines.transfer(&self.costs, name, cpu, how, here, now);
        if how != Use::Write {
            return transfer;
        }
        let stored_at = &mut self.stored_at[cpu as usize];
        *stored_at = now.saturating_add(transfer.wait_ns + transfer.ps / 1_000).max(*stored_at);
        Transfer { wait_ns: 0, ps: 0 }
    }

    /// A thread gets a CPU. Returns what the switch to it takes, in nanoseconds.
    pub(crate) fn switch_ns(&mut self, cpu: u32, thread: ThreadId) -> u64 {
        let last = self.last_on[cpu as usize].replace(thread);
        if last == Some(thread) { 0 } else { self.costs.ns(Cost::Switch) }
    }

    /// Records that a thread spun for a lock.
    pub(crate) fn spun(&mut self, ns: u64) {
        self.spun_ns += ns;
    }

    /// The time that threads spent spinning for locks, in nanoseconds.
    #[must_use]
    pub fn spun_ns(&self) -> u64 {
        self.spun_ns
    }

    /// How often a thread slept for a lock.
    #[must_use]
    pub fn slept(&self) -> u64 {
        self.slept
    }

    /// Sets the totals to zero. The owners of lines and the debts of threads stay.
    pub fn begin_anew(&mut self) {
        self.lines.begin_anew();
        (self.spun_ns, self.slept) = (0, 0);
    }

    /// The most lines that were in use at once, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lines.used_bytes()
    }

    /// The places in the engine's source whose accesses took the most time, first.
    #[must_use]
    pub fn hottest(&self) -> Vec<Hot> {
        self.lines.hottest()
    }
}
