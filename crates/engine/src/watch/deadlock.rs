//! Items that wait for each other, as far as the runs have declared their waits.
//!
//! The search reads hints while everything runs, so a cycle that is found is checked again. If it
//! is unknown which event a run waits for, or which run could serve a pending item, the run is
//! taken for one that makes progress: a deadlock may be missed, but none is invented.
//!
//! **When the search runs.** The watchdog checks everything that waits for a worker or for a
//! permit, and so finds a deadlock that holds it up. Items that run and wait for each other may
//! have nothing behind them, and then the watcher sleeps. So a run that begins a wait checks
//! whether it may wait for itself by way of others that have begun theirs before it. Only then it
//! becomes a *suspect*, and calls the watcher. A note outlives its wait by some instants, so one
//! observation proves nothing: the watcher checks suspects until they are cleared, or have made no
//! progress for the threshold.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use uwork_policy::deadlock::{behind, cycle, is_waited_for};

use super::Watch;
use super::stall::function_at;
use super::survey::Survey;
use crate::engine::Engine;
use crate::slot::{Slot, WaitsFor};
use crate::words::dump::{Awaited, DeadlockedItem};
use crate::words::host::Host;
use crate::words::item::Location;
use crate::words::sync::{Ordering, fence};

use super::watchdog::{Backed, Progress};

/// An item that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    slot: u32,
    run: u64,
    item: usize,
    func: usize,
    pwq: u32,
    waits_for: WaitsFor,
}

impl<H: Host> Watch<H> {
    #[cold]
    fn suspect(&self, engine: &Engine<H>, slot: u32) {
        let runs = Survey::of(engine).present_runs();
        let Some(node) = runs.iter().position(|run| run.slot == slot) else { return };
        if is_waited_for(&Survey::of(engine).behind(&runs, node), node) {
            self.hold().suspects.insert(slot);
            self.request_check(engine);
        }
    }

    /// Makes all runs that wait suspects: the watchdog was off when they began.
    pub(super) fn suspect_all(&self, engine: &Engine<H>) {
        let waits = |&id: &u32| engine.slot(id).waits_for() != WaitsFor::Unknown;
        let waiting: Vec<u32> = Survey::of(engine).slots_at_work().filter(waits).collect();
        self.hold().suspects.extend(waiting);
    }
}

impl<H: Host> Slot<H> {
    /// Checks for a deadlock when the run in the caller's slot is about to wait, after it has noted
    /// for what.
    pub(crate) fn check_wait(&self, engine: &Engine<H>) {
        if engine.watchdog_thresh() == 0 {
            return;
        }
        // A Dekker pair; the partner is the same fence of another thread. Each thread notes its own
        // wait (W), and then reads the others' (R). Of two that begin a wait at once, at least one
        // sees the other's note: without the fences both could miss, and neither would be a
        // suspect.
        fence(Ordering::SeqCst);
        let (mut own, mut others) = (None, false);
        for id in Survey::of(engine).slots_at_work() {
            let slot = engine.slot(id);
            if std::ptr::eq(slot, self) {
                own = Some(id);
            } else {
                others |= slot.waits_for() != WaitsFor::Unknown;
            }
        }
        if let (Some(own), true) = (own, others) {
            engine.watch.suspect(engine, own);
        }
    }
}

impl<'a, H: Host> Survey<'a, H> {
    /// The cycle of items that wait for each other, and that one of these slots waits for; empty if
    /// there is none.
    pub(super) fn deadlock_behind(self, slots: &[u32]) -> Vec<DeadlockedItem> {
        let runs = self.present_runs();
        let waits: Vec<Vec<usize>> =
            runs.iter().map(|run| self.ways_out(&runs, run.waits_for)).collect();
        let nodes = slots.iter().filter_map(|slot| runs.iter().position(|run| run.slot == *slot));
        let Some(found) = nodes.filter_map(|node| cycle(&waits, node)).next() else {
            return Vec::new();
        };
        if !self.still_wait(&runs, &found) {
            return Vec::new();
        }
        found.iter().map(|&node| self.deadlocked(&runs[node])).collect()
    }

    /// Whether these runs still wait for the same: a run that moved meanwhile was not stuck.
    fn still_wait(self, runs: &[Run], nodes: &[usize]) -> bool {
        nodes.iter().all(|&node| self.run_in(runs[node].slot).as_ref() == Some(&runs[node]))
    }

    fn present_runs(self) -> Vec<Run> {
        self.slots_at_work().filter_map(|slot| self.run_in(slot)).collect()
    }

    fn behind(self, runs: &[Run], node: usize) -> Vec<Vec<usize>> {
        behind(runs.len(), node, |node| self.ways_out(runs, runs[node].waits_for))
    }

    /// The deadlocks that suspects are in, without those that were reported, and whether suspects
    /// are left.
    pub(super) fn find_deadlocks(
        self,
        told: &[Vec<(u32, u64)>],
    ) -> (BTreeMap<Backed, Progress>, bool) {
        // Suspects that other threads add from here on stay.
        let suspects = std::mem::take(&mut self.engine.watch.hold().suspects);
        let (mut found, mut left) = (BTreeMap::new(), Vec::new());
        let runs = if suspects.is_empty() { Vec::new() } else { self.present_runs() };
        for slot in suspects {
            let Some(node) = runs.iter().position(|run| run.slot == slot) else { continue };
            let waits = self.behind(&runs, node);
            if !is_waited_for(&waits, node) {
                continue;
            }
            if let Some(nodes) = cycle(&waits, node) {
                let key: Vec<_> = nodes.iter().map(|&n| (runs[n].slot, runs[n].run)).collect();
                if told.contains(&key) {
                    continue;
                }
                found.insert(Backed::Deadlock(key[0].0), self.progress_in(&runs, &nodes));
            }
            left.push(slot);
        }
        let any = !left.is_empty();
        self.engine.watch.hold().suspects.extend(left);
        (found, any)
    }

    /// Numbers that change when an item of a deadlock makes progress.
    fn progress_in(self, runs: &[Run], nodes: &[usize]) -> Progress {
        let mut waits = DefaultHasher::new();
        nodes.iter().for_each(|&node| runs[node].waits_for.hash(&mut waits));
        let moved = nodes.iter().map(|&node| self.engine.slot(runs[node].slot).progress());
        (waits.finish(), moved.fold(0, u64::wrapping_add))
    }

    /// The progress of the deadlock that this slot is in; zeros if it is in none.
    pub(super) fn progress_of_deadlock(self, slot: u32) -> Progress {
        let runs = self.present_runs();
        let node = runs.iter().position(|run| run.slot == slot);
        let nodes = node.and_then(|node| cycle(&self.behind(&runs, node), node));
        match nodes.filter(|nodes| self.still_wait(&runs, nodes)) {
            Some(nodes) => self.progress_in(&runs, &nodes),
            None => (0, 0),
        }
    }

    fn run_in(self, slot: u32) -> Option<Run> {
        let at = self.engine.slot(slot);
        let run = at.present_run()?;
        let running = at.running()?;
        let (pwq, waits_for) = (at.batch.get().0?, at.waits_for());
        Some(Run { slot, run, item: running.item, func: running.func, pwq, waits_for })
    }

    /// The runs of which at least one must end before the waiter continues; empty if that is not
    /// known.
    fn ways_out(self, runs: &[Run], waits_for: WaitsFor) -> Vec<usize> {
        let those = |is: &dyn Fn(&Run) -> bool| nodes(runs, is);
        match waits_for {
            WaitsFor::Unknown => Vec::new(),
            WaitsFor::Run(id) => those(&|run| (run.slot, run.run) == (id.slot, id.run)),
            WaitsFor::Item { address, pwq } => {
                let Some(pwq) = self.engine.pwqs.get(pwq) else { return Vec::new() };
                match pwq.find(address).map(|found| found.location) {
                    // It is not pending any more: it has started.
                    None => those(&|run| run.item == address),
                    Some(Location::Scheduled(slot) | Location::Deferred(slot)) => {
                        those(&|run| run.slot == slot)
                    }
                    Some(_) => self.ways_to_start(runs, pwq.id),
                }
            }
            WaitsFor::Queue(wq) => {
                let mut starts = false;
                self.engine.pwqs.for_each(|(_, pwq)| {
                    let waits = |b: crate::queue::pwq::Backlog| b.queued > 0 && !b.saturated;
                    starts |= pwq.wq().addr() == wq && pwq.backlog().is_some_and(waits);
                });
                // An item that can start now may be the one that the flush waits for.
                let is_of = |run: &Run| {
                    self.engine.pwqs.get(run.pwq).is_some_and(|pwq| pwq.wq().addr() == wq)
                };
                if starts { Vec::new() } else { those(&is_of) }
            }
        }
    }

    /// The runs of which at least one must end before an item that waits on this pwq can start.
    fn ways_to_start(self, runs: &[Run], id: u32) -> Vec<usize> {
        let Some(pwq) = self.engine.pwqs.get(id) else { return Vec::new() };
        let Some(backlog) = pwq.backlog() else { return Vec::new() };
        let those = |is: &dyn Fn(&Run) -> bool| nodes(runs, is);
        if !backlog.saturated {
            let home = pwq.home();
            let workers = home.list_workers();
            // A pool that may have more workers wakes or creates another.
            return match home.spec().single {
                true => those(&|run| workers.contains(&run.slot)),
                false => Vec::new(),
            };
        }
        let pwqs = match backlog.node {
            None => vec![id],
            Some(node) => self.pwqs_of(Backed::Node { node, wq: pwq.wq().addr() }),
        };
        let active = |&id: &u32| self.engine.pwqs.get(id)?.backlog().map(|b| b.nr_active as usize);
        let permits: usize = pwqs.iter().filter_map(active).sum();
        let holders = those(&|run| pwqs.contains(&run.pwq));
        // If fewer runs than permits were found, some holder is between two items, and makes
        // progress.
        if holders.len() < permits { Vec::new() } else { holders }
    }

    fn deadlocked(self, run: &Run) -> DeadlockedItem {
        let name_of =
            |id: u32| self.engine.pwqs.get(id).map_or(String::new(), |pwq| pwq.queue_name());
        let waits_for = match run.waits_for {
            WaitsFor::Item { address, pwq: id } => {
                let pwq = self.engine.pwqs.get(id);
                match pwq.and_then(|pwq| pwq.find(address)) {
                    None => Awaited::Running,
                    Some(found) => Awaited::Pending {
                        address,
                        function: Some(function_at(found.func)),
                        queue: name_of(id),
                        ordered: pwq.is_some_and(|pwq| pwq.is_ordered()),
                    },
                }
            }
            WaitsFor::Queue(wq) => {
                let mut name = String::new();
                self.engine.pwqs.for_each(|(_, pwq)| {
                    if name.is_empty() && pwq.wq().addr() == wq {
                        name = pwq.queue_name();
                    }
                });
                Awaited::Queue(name)
            }
            WaitsFor::Unknown | WaitsFor::Run(_) => Awaited::Running,
        };
        DeadlockedItem {
            slot: run.slot,
            run: run.run,
            address: run.item,
            function: function_at(run.func),
            queue: name_of(run.pwq),
            waits_for,
        }
    }
}

/// The indices of the runs for which `is` holds.
fn nodes(runs: &[Run], is: &dyn Fn(&Run) -> bool) -> Vec<usize> {
    (0..runs.len()).filter(|&node| is(&runs[node])).collect()
}
