//! The cache lines of a machine: which CPU has which, and what it takes to get one.
//!
//! A line is known by its address, which differs from run to run, and named by the order of its
//! first use, which does not. `heap` places each block at the begin of a line, and a freed block's
//! lines are forgotten. So nothing here depends on the addresses.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

use uwork_policy::topology::Topology;

use super::{Cost, Costs};

/// The bytes of a line.
pub(super) const LINE_BYTES: usize = 64;

/// Spreads addresses.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Values by address.
pub(super) type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// How an access uses a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// A locked instruction.
    Update,
}

#[derive(Debug)]
struct Line {
    /// The CPU that got it last for itself.
    writer: u32,
    /// Whether that CPU has written since.
    is_dirty: bool,
    /// Whether it has ever moved.
    is_shared: bool,
    /// Whether the last transfer is for a store that its CPU does not wait for.
    is_stored: bool,
    /// The CPUs that have a copy; the writer among them. A bit for each.
    holders: Vec<u64>,
    /// How many they are.
    count: u32,
    /// When the last transfer ends, in nanoseconds.
    free_at: u64,
    /// The CPU that the line leaves, which has it to itself until then. Its accesses need no transfer
    /// while the request of the next CPU is on its way.
    leaves: (u32, u64),
}

/// What the accesses of a place in the engine's source took, over all lines.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    /// The place.
    pub here: &'static Location<'static>,
    /// How often a line moved for an access.
    pub transfers: u64,
    /// The time of the transfers and of the waits for earlier ones, in picoseconds. A store's count
    /// too, although its CPU does not wait for them.
    pub ps: u64,
}

impl Hot {
    fn add(&mut self, transfers: u64, ps: u64) {
        self.transfers += transfers;
        self.ps += ps;
    }
}

/// The lines and the distances.
#[derive(Debug)]
pub(super) struct Lines {
    places: Vec<Place>,
    names: ByAddress<u32>,
    lines: Vec<Line>,
    /// The most names at once.
    names_max: usize,
    /// By the address of the place.
    hot: ByAddress<Hot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    core: u32,
    llc: u32,
    node: u32,
}

/// What the transfer of a line takes.
pub(crate) struct Transfer {
    /// How long earlier transfers of the line still take, in nanoseconds.
    pub(crate) wait_ns: u64,
    /// The transfer itself, in picoseconds.
    pub(crate) ps: u64,
}

impl Lines {
    pub(super) fn new(machine: &Topology) -> Lines {
        let last = machine.cpus().iter().map(|cpu| cpu.id as usize).max().unwrap_or(0);
        let mut places = vec![Place::default(); last + 1];
        for cpu in machine.cpus() {
            places[cpu.id as usize] = Place { core: cpu.core, llc: cpu.llc, node: cpu.node };
        }
        let (names, hot) = (ByAddress::default(), ByAddress::default());
        Lines { places, names, lines: Vec::new(), names_max: 0, hot }
    }

    /// The name of the line at this address.
    pub(super) fn name(&mut self, address: usize, cpu: u32) -> u32 {
        let next = self.lines.len() as u32;
        let name = *self.names.entry(address / LINE_BYTES).or_insert(next);
        if name == next {
            let mut holders = vec![0; self.places.len().div_ceil(64)];
            holders[cpu as usize / 64] |= 1 << (cpu % 64);
            self.names_max = self.names_max.max(self.names.len());
            self.lines.push(Line {
                writer: cpu,
                is_dirty: true,
                is_shared: false,
                is_stored: false,
                holders,
                count: 1,
                free_at: 0,
                leaves: (cpu, 0),
            });
        }
        name
    }

    /// Forgets the lines of a block that was freed.
    #[cfg(feature = "costs")]
    pub(super) fn forget(&mut self, address: usize, size: usize) {
        let lines = address / LINE_BYTES..(address + size).div_ceil(LINE_BYTES);
        if lines.len() < self.names.len() {
            lines.for_each(|line| {
                self.names.remove(&line);
            });
        } else {
            self.names.retain(|line, _| !lines.contains(line));
        }
    }

    /// Whether the line has moved between CPUs. Then the order of accesses counts.
    pub(super) fn is_shared(&self, name: u32) -> bool {
        self.lines[name as usize].is_shared
    }

    /// Whether an access by this CPU at this time needs no transfer.
    pub(super) fn hits(&mut self, name: u32, cpu: u32, how: Use, now: u64) -> bool {
        let line = &mut self.lines[name as usize];
        if line.leaves.0 == cpu && now < line.leaves.1 {
            return true;
        }
        let has = line.holders[cpu as usize / 64] >> (cpu % 64) & 1 == 1;
        let hits = has && (how == Use::Read || line.count == 1);
        line.is_dirty |= hits && how != Use::Read;
        hits
    }

    fn cost_between(&self, costs: &Costs, a: u32, b: u32) -> u64 {
        let (a, b) = (self.places[a as usize], self.places[b as usize]);
        let cost = if a.core == b.core {
            Cost::Core
        } else if a.llc == b.llc {
            Cost::Cache
        } else if a.node == b.node {
            Cost::Node
        } else {
            Cost::Remote
        };
        costs.ps(cost)
    }

    /// Moves or copies a line to this CPU, behind the transfers that were asked for before.
    ///
    /// A read moves a line that its owner has written, and copies one that it has not: words are
    /// mostly written by a CPU that has just read them.
    pub(super) fn transfer(
        &mut self,
        costs: &Costs,
        name: u32,
        cpu: u32,
        how: Use,
        here: &'static Location<'static>,
        now: u64,
    ) -> Transfer {
        let line = &self.lines[name as usize];
        // A clean line is read from the cache by any number of CPUs at once.
        let queues = how != Use::Read || line.count == 1;
        let ps = match how {
            Use::Read => self.cost_between(costs, cpu, line.writer),
            _ => self.farthest(costs, line, cpu),
        };
        // A reader's request travels while the store waits for the line.
        let ahead_ns = if line.is_stored && how == Use::Read { ps / 2_000 } else { 0 };
        let wait_ns = if queues { line.free_at.saturating_sub(now + ahead_ns) } else { 0 };
        let moves = how != Use::Read || line.count == 1 && line.is_dirty;
        let line = &mut self.lines[name as usize];
        if how == Use::Write {
            // The store is in memory already, so no other CPU may read it for nothing.
            line.leaves = (cpu, 0);
        } else if line.count == 1 && line.writer != cpu {
            // The request reaches the owner halfway through the transfer.
            line.leaves = (line.writer, now + wait_ns + ps / 2_000);
        }
        if moves {
            line.holders.fill(0);
            (line.count, line.writer, line.is_dirty) = (0, cpu, how != Use::Read);
        }
        line.holders[cpu as usize / 64] |= 1 << (cpu % 64);
        line.count += 1;
        line.is_shared = true;
        if queues {
            line.free_at = now + wait_ns + ps / 1_000;
            line.is_stored = how == Use::Write;
        }
        self.note(here, wait_ns * 1_000 + ps);
        Transfer { wait_ns, ps }
    }

    /// A transfer for an access from here took this long, in picoseconds.
    fn note(&mut self, here: &'static Location<'static>, ps: u64) {
        let new = Hot { here, transfers: 0, ps: 0 };
        let hot = self.hot.entry(std::ptr::from_ref(here).addr()).or_insert(new);
        hot.add(1, ps);
    }

    /// The cost of taking the line from all other CPUs: that of the farthest.
    fn farthest(&self, costs: &Costs, line: &Line, cpu: u32) -> u64 {
        let mut most = 0;
        for (at, &word) in line.holders.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let other = at as u32 * 64 + rest.trailing_zeros();
                rest &= rest - 1;
                if other != cpu {
                    most = most.max(self.cost_between(costs, cpu, other));
                }
            }
        }
        most
    }

    /// Sets the totals to zero.
    pub(super) fn begin_anew(&mut self) {
        self.names_max = self.names.len();
        self.hot.clear();
    }

    /// The most lines that were in use at once, in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.names_max * LINE_BYTES) as u64
    }

    /// The places whose accesses took the most time, first.
    pub(super) fn hottest(&self) -> Vec<Hot> {
        let mut all: Vec<Hot> = Vec::new();
        for hot in self.hot.values() {
            // The compiler may have several copies of a place.
            match all.iter_mut().find(|other| other.here == hot.here) {
                Some(same) => same.add(hot.transfers, hot.ps),
                None => all.push(*hot),
            }
        }
        all.sort_by_key(|hot| (Reverse(hot.ps), hot.here));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn place() -> &'static Location<'static> {
        Location::caller()
    }

    /// Two CPUs update this line in turn, for accesses from here.
    fn move_line(lines: &mut Lines, line: usize, times: u64, here: &'static Location<'static>) {
        let (costs, name) = (Costs::default(), lines.name(line * LINE_BYTES, 1));
        for (cpu, turn) in [0, 1].into_iter().cycle().zip(0..times) {
            let _ = lines.transfer(&costs, name, cpu, Use::Update, here, turn * 1_000_000);
        }
    }

    #[test]
    fn a_place_of_many_lines_comes_before_one_hotter_line_of_another() {
        let mut lines = Lines::new(&"core:2".parse().unwrap());
        let (many, single) = (place(), place());
        (0..100).for_each(|line| move_line(&mut lines, line, 1, many));
        move_line(&mut lines, 100, 50, single);
        let found: Vec<_> = lines.hottest().iter().map(|hot| (hot.here, hot.transfers)).collect();
        assert_eq!(found, [(many, 100), (single, 50)]);
        lines.begin_anew();
        assert!(lines.hottest().is_empty());
    }
}
