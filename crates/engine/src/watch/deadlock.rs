//! Items that wait for each other: who waits for whom, as far as the runs have said so.
//!
//! Read from hints while everything runs, so a cycle that is found is looked at again. Where it is not known
//! what a run waits for, or who could serve what is pending, the run is taken for one that goes on: a deadlock
//! may be missed, none is invented.

use uwork_policy::deadlock::cycle;

use crate::dump::{Awaited, DeadlockedItem};
use crate::engine::Engine;
use crate::host::Host;
use crate::slot::WaitsFor;
use crate::work::Place;

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

impl<H: Host> Engine<H> {
    /// The items that wait for each other and that one of these slots waits for; none if there are none.
    pub(super) fn deadlock_behind(&self, slots: &[u32]) -> Vec<DeadlockedItem> {
        let runs: Vec<Run> = self.slots_at_work().filter_map(|slot| self.run_in(slot)).collect();
        let waits: Vec<Vec<usize>> =
            runs.iter().map(|run| self.ways_out(&runs, run.waits_for)).collect();
        let nodes = slots.iter().filter_map(|slot| runs.iter().position(|run| run.slot == *slot));
        let Some(found) = nodes.filter_map(|node| cycle(&waits, node)).next() else {
            return Vec::new();
        };
        // Whoever moved meanwhile was not stuck.
        let is_same = |&node: &usize| self.run_in(runs[node].slot).as_ref() == Some(&runs[node]);
        if !found.iter().all(is_same) {
            return Vec::new();
        }
        found.iter().map(|&node| self.deadlocked(&runs[node])).collect()
    }

    fn run_in(&self, slot: u32) -> Option<Run> {
        let at = self.slot(slot);
        let run = at.present_run()?;
        let running = at.running()?;
        let (pwq, waits_for) = (at.batch.get().0?, at.waits_for());
        Some(Run { slot, run, item: running.item, func: running.func, pwq, waits_for })
    }

    /// The runs one of which must end before who waits for this goes on; none if that is not known.
    fn ways_out(&self, runs: &[Run], waits_for: WaitsFor) -> Vec<usize> {
        let those = |is: &dyn Fn(&Run) -> bool| nodes(runs, is);
        match waits_for {
            WaitsFor::Unknown => Vec::new(),
            WaitsFor::Run(id) => those(&|run| (run.slot, run.run) == (id.slot, id.run)),
            WaitsFor::Item { address, pwq } => {
                let Some(pwq) = self.pwqs().get(pwq) else { return Vec::new() };
                match pwq.find(address).map(|found| found.place) {
                    // It has started.
                    None => those(&|run| run.item == address),
                    Some(Place::Scheduled(slot) | Place::Deferred(slot)) => {
                        those(&|run| run.slot == slot)
                    }
                    Some(_) => self.ways_to_start(runs, pwq.id),
                }
            }
            WaitsFor::Queue(wq) => {
                let mut starts = false;
                self.pwqs().for_each(|(_, pwq)| {
                    let waits = |b: crate::pwq::Backlog| b.queued > 0 && !b.saturated;
                    starts |= pwq.wq().addr() == wq && pwq.backlog().is_some_and(waits);
                });
                // What can start now may be what the flush waits for.
                let is_of =
                    |run: &Run| self.pwqs().get(run.pwq).is_some_and(|pwq| pwq.wq().addr() == wq);
                if starts { Vec::new() } else { those(&is_of) }
            }
        }
    }

    /// The runs one of which must end before anything that waits on this pwq can start.
    fn ways_to_start(&self, runs: &[Run], id: u32) -> Vec<usize> {
        let Some(pwq) = self.pwqs().get(id) else { return Vec::new() };
        let Some(backlog) = pwq.backlog() else { return Vec::new() };
        let those = |is: &dyn Fn(&Run) -> bool| nodes(runs, is);
        if !backlog.saturated {
            let home = pwq.home();
            let workers = home.lock().workers.clone();
            // All others bring up another worker.
            return match home.spec().single {
                true => those(&|run| workers.contains(&run.slot)),
                false => Vec::new(),
            };
        }
        let pwqs = match backlog.node {
            None => vec![id],
            Some(node) => self.pwqs_of(super::watchdog::Backed::Node { node, wq: pwq.wq().addr() }),
        };
        let active = |&id: &u32| self.pwqs().get(id)?.backlog().map(|b| b.nr_active as usize);
        let places: usize = pwqs.iter().filter_map(active).sum();
        let holders = those(&|run| pwqs.contains(&run.pwq));
        // Somebody who has a place is between two items.
        if holders.len() < places { Vec::new() } else { holders }
    }

    fn deadlocked(&self, run: &Run) -> DeadlockedItem {
        let name_of = |id: u32| self.pwqs().get(id).map_or(String::new(), |pwq| pwq.queue_name());
        let waits_for = match run.waits_for {
            WaitsFor::Item { address, pwq: id } => {
                let pwq = self.pwqs().get(id);
                match pwq.and_then(|pwq| pwq.find(address)) {
                    None => Awaited::Running,
                    Some(found) => Awaited::Pending {
                        address,
                        function: Some(Self::function_at(found.func)),
                        queue: name_of(id),
                        ordered: pwq.is_some_and(|pwq| pwq.is_ordered()),
                    },
                }
            }
            WaitsFor::Queue(wq) => {
                let mut name = String::new();
                self.pwqs().for_each(|(_, pwq)| {
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
            address: run.item,
            function: Self::function_at(run.func),
            queue: name_of(run.pwq),
            waits_for,
        }
    }
}

/// The runs of which this is so.
fn nodes(runs: &[Run], is: &dyn Fn(&Run) -> bool) -> Vec<usize> {
    (0..runs.len()).filter(|&node| is(&runs[node])).collect()
}
