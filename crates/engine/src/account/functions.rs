//! The counters of functions. Each slot has those of the functions that ran there, so workers do
//! not contend; what finds no room there goes to a table of the engine.

use std::cell::Cell;
use std::sync::Arc;

use uwork_policy::histogram::Histogram;

use super::COUNTED;
use crate::engine::Engine;
use crate::slot::Slot;
use crate::words::host::Host;
use crate::words::item::ItemFn;
use crate::words::item::word::RUN_MASK;
use crate::words::sync::{Lock, LockGuard};

/// The parts of a batch that are told apart. Each further one costs a clock.
const PARTS_MAX: usize = 4;
/// The functions that are counted in a slot.
const IN_SLOT_MAX: usize = 8;
/// The functions that are counted in the engine's table.
const IN_ENGINE_MAX: usize = 1_024;

/// The counters of a function, in all queues.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionTimes {
    /// Its address; 0 for all functions that found no room in the table.
    pub address: usize,
    /// Its name, if it gives one.
    pub name: Option<Arc<str>>,
    /// Its runs by their time.
    pub runs: Histogram,
    /// Its runs by the time from their submission to their start.
    pub waits: Histogram,
    /// The identity by which it is found.
    identity: usize,
}

impl FunctionTimes {
    /// Asks the function for its name. The caller holds no lock, and the function has just run, so
    /// its code is loaded.
    fn of(identity: usize) -> FunctionTimes {
        let (mut address, mut name) = (0, None);
        if identity != 0 {
            // SAFETY: an identity other than 0 is that of an item's function.
            let func = unsafe { ItemFn::from_identity(identity) };
            (address, name) = (func.address(), func.name().map(|name| name.to_string().into()));
        }
        let empty = Histogram::default();
        FunctionTimes { address, name, runs: empty, waits: empty, identity }
    }

    fn add(&mut self, part: Part) {
        self.runs.add(part.took_ns, part.ran);
        if let Some(waited) = part.waited_ns {
            self.waits.add_each(waited, part.ran);
        }
    }
}

/// An entry of a table. Entries are never removed.
struct Entry {
    times: FunctionTimes,
    next: Option<Box<Entry>>,
}

/// Counters of functions, up to a bound. The lock is never held across a call of the allocator: a
/// fork takes it, and the forking thread may hold the allocator's locks.
pub(crate) struct Functions(Lock<Option<Box<Entry>>>);

/// A table, locked.
pub(crate) struct HeldFunctions<'a>(
    #[expect(dead_code, reason = "held")] LockGuard<'a, Option<Box<Entry>>>,
);

impl Functions {
    pub(crate) fn new() -> Functions {
        Functions(Lock::new(None))
    }

    /// Locks the table.
    pub(crate) fn hold(&self) -> HeldFunctions<'_> {
        HeldFunctions(self.0.lock())
    }

    /// Counts a part of a batch. Returns false, and does nothing, without room for its function.
    fn add(&self, part: Part, max: usize) -> bool {
        let mut first = self.0.lock();
        let mut entries = 0;
        let mut at = first.as_deref_mut();
        while let Some(entry) = at {
            if entry.times.identity == part.identity {
                entry.times.add(part);
                return true;
            }
            entries += 1;
            at = entry.next.as_deref_mut();
        }
        drop(first);
        if entries >= max {
            return false;
        }
        let mut new = Box::new(Entry { times: FunctionTimes::of(part.identity), next: None });
        new.times.add(part);
        // Other threads may add some meanwhile: then there are a few entries more than the bound, or
        // two for a function, which readers merge.
        let mut first = self.0.lock();
        new.next = first.take();
        *first = Some(new);
        true
    }

    /// A copy of the entry with this number, counted from the oldest.
    fn get(&self, number: usize) -> Option<FunctionTimes> {
        let first = self.0.lock();
        let entries = || std::iter::successors(first.as_deref(), |entry| entry.next.as_deref());
        let newer = entries().count().checked_sub(number + 1)?;
        entries().nth(newer).map(|entry| entry.times.clone())
    }

    fn merge_into(&self, all: &mut Vec<FunctionTimes>) {
        for times in (0..).map_while(|number| self.get(number)) {
            match all.iter_mut().find(|known| known.identity == times.identity) {
                Some(known) => {
                    known.runs.merge(&times.runs);
                    known.waits.merge(&times.waits);
                }
                None => all.push(times),
            }
        }
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        // One by one: nested drops of a long list would need a deep stack.
        let mut entry = self.0.lock().take();
        while let Some(mut owned) = entry {
            entry = owned.next.take();
        }
    }
}

impl<H: Host> Engine<H> {
    /// The counters of every function that has run, most run time first. A function that runs in
    /// long batches with others is counted for a part of its runs only.
    pub fn function_times(&self) -> Vec<FunctionTimes> {
        let mut all = Vec::new();
        for slot in (0..).map_while(|id| self.slots.get(id)) {
            slot.functions.merge_into(&mut all);
        }
        self.functions.merge_into(&mut all);
        all.sort_by_key(|times| std::cmp::Reverse(times.runs.sum_ns()));
        all
    }
}

/// Consecutive runs of one function.
#[derive(Clone, Copy, Default)]
struct Part {
    identity: usize,
    ran: u32,
    took_ns: u64,
    waited_ns: Option<u64>,
}

/// Tells the functions of a batch apart. The first parts are measured; from the one on that finds
/// no room, runs are not counted for their functions.
pub(crate) struct Split {
    /// The function of the present part; 0 before the first run.
    identity: Cell<usize>,
    /// When the batch began, and the present part.
    batch_began: u64,
    began: Cell<u64>,
    /// The last run before the present part.
    before: Cell<u64>,
    parts: [Cell<Part>; PARTS_MAX],
    /// How many parts have ended.
    len: Cell<usize>,
}

impl Split {
    /// A batch that begins now, after run `before`.
    #[inline]
    pub(super) fn new(began: u64, before: u64) -> Split {
        Split {
            identity: Cell::new(0),
            batch_began: began,
            began: Cell::new(began),
            before: Cell::new(before),
            parts: [const { Cell::new(Part { identity: 0, ran: 0, took_ns: 0, waited_ns: None }) };
                PARTS_MAX],
            len: Cell::new(0),
        }
    }

    /// Run `run`, of this function, begins.
    #[inline(always)]
    pub(crate) fn note<H: Host>(&self, host: &H, func: ItemFn, run: u64) {
        if COUNTED && func.identity() != self.identity.get() {
            self.change(host, func, run);
        }
    }

    #[cold]
    fn change<H: Host>(&self, host: &H, func: ItemFn, run: u64) {
        if self.len.get() == PARTS_MAX {
            return;
        }
        let before = run.wrapping_sub(1) & RUN_MASK;
        if self.identity.get() != 0 {
            self.end_part(host.now(), before);
        }
        self.identity.set(func.identity());
        self.before.set(before);
    }

    /// The present part ends at `now`, with this run.
    fn end_part(&self, now: u64, last: u64) {
        let ran = (last.wrapping_sub(self.before.get()) & RUN_MASK) as u32;
        let began = self.began.replace(now);
        let part = Part {
            identity: self.identity.get(),
            ran,
            took_ns: now.saturating_sub(began),
            waited_ns: Some(began.saturating_sub(self.batch_began)),
        };
        self.parts[self.len.get()].set(part);
        self.len.set(self.len.get() + 1);
    }

    /// The batch ends: counts its parts. The first item waited as long as `waited_ns` says.
    pub(super) fn end<H: Host>(
        &self,
        engine: &Engine<H>,
        slot: &Slot<H>,
        ended: u64,
        waited_ns: Option<u64>,
    ) {
        if self.len.get() < PARTS_MAX && self.identity.get() != 0 {
            self.end_part(ended, slot.number());
        }
        for part in &self.parts[..self.len.get()] {
            let mut part = part.get();
            part.waited_ns = waited_ns.and_then(|waited| Some(waited + part.waited_ns?));
            if !slot.functions.add(part, IN_SLOT_MAX) && !engine.functions.add(part, IN_ENGINE_MAX)
            {
                engine.functions.add(Part { identity: 0, ..part }, usize::MAX);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn part(identity: usize, ran: u32, took_ns: u64) -> Part {
        Part { identity, ran, took_ns, waited_ns: Some(10) }
    }

    #[test]
    fn counters_of_a_function_are_summed_over_the_tables() {
        let (here, there) = (Functions::new(), Functions::new());
        assert!(here.add(part(0, 2, 200), 1));
        assert!(here.add(part(0, 1, 50), 1), "known");
        assert!(!here.add(part(0x1000, 1, 1), 1), "no room");
        assert!(there.add(part(0x1000, 1, 1), 2));
        assert!(there.add(part(0, 3, 300), 2));
        let mut all = Vec::new();
        here.merge_into(&mut all);
        there.merge_into(&mut all);
        let counted: Vec<_> = all
            .iter()
            .map(|f| (f.address, f.runs.count(), f.runs.sum_ns(), f.waits.sum_ns()))
            .collect();
        assert_eq!(counted, [(0, 6, 550, 60), (0x1000, 1, 1, 10)]);
    }
}
