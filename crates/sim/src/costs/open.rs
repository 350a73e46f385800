//! Open loops of items that must move, on a machine where instructions take time.
//!
//! Each producer is pinned and submits items at planned times. In between it computes, so that its CPU
//! stays busy and every item must find another one. A producer that is behind its plan submits at once.
//! So an item's sojourn begins with its submission, and the perfect queue gets the arrivals as they
//! were.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uwork_engine::{Attrs, Config, Engine, Kind};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::Topology;

use super::load::{settled_time, simulate};
use super::{Cost, Costs};
use crate::chance::Chance;
use crate::host::VirtualHost;
use crate::item::Item;
use crate::machine::Counts;
use crate::plan::{Arrival, Mix, perfect, poisson};
use crate::setup::{VirtualQueue, make, spec};

/// The first items do not count, one in this many: threads start.
const WARM_UP_ONE_IN: usize = 5;

/// What the producers do.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// The CPUs that have a producer. At least one CPU has none.
    pub producers: Vec<u32>,
    /// How long the items compute.
    pub mix: Mix,
    /// The mean time between two items of a producer, in nanoseconds.
    pub gap_ns: u64,
    /// Items of all producers, about.
    pub items: usize,
    /// The scope of the queue.
    pub scope: AffinityScopeChoice,
    /// The seed of the plan.
    pub seed: u64,
}

/// What an open loop did. Everything is of the items that count.
#[derive(Clone, Debug, Default)]
pub struct OpenOutcome {
    /// From the begin of an item's submission to its end, in the order of submission.
    pub sojourns_ns: Vec<u64>,
    /// The same in a perfect queue, whose servers are the CPUs without a producer, and whose idle
    /// servers need [`wake_ns`] to begin.
    pub perfect_ns: Vec<u64>,
    /// The durations of the submissions.
    pub submissions_ns: Vec<u64>,
    /// The part of the producers' time that is.
    pub submitting: f64,
    /// From the first submission to the last.
    pub elapsed_ns: u64,
    /// Wakes of workers.
    pub wakes: u64,
    /// Parks of workers that had run no item since their last park.
    pub futile: u64,
}

/// What a wake takes until the woken thread executes on a CPU that idled.
#[must_use]
pub fn wake_ns(costs: &Costs) -> u64 {
    costs.ns(Cost::Idle) + costs.ns(Cost::Switch)
}

/// An item's way. `arrival` is its submission, as it was.
struct Passage {
    arrival: Arrival,
    submitting_ns: u64,
    ended: u64,
}

struct Noted {
    passages: Vec<Passage>,
    warm_up: usize,
    /// The counters when the first item that counts was submitted, and when the last item ended.
    counts: [Counts; 2],
}

#[derive(Clone)]
struct Notes(Arc<Mutex<Noted>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An item is submitted. Returns its number.
    fn begin(&self, host: &VirtualHost, arrival: Arrival) -> usize {
        let mut noted = self.lock();
        let number = noted.passages.len();
        if number == noted.warm_up {
            noted.counts[0] = host.counts();
        }
        noted.passages.push(Passage { arrival, submitting_ns: 0, ended: 0 });
        number
    }

    /// The submission of this item has taken until now.
    fn submitted(&self, host: &VirtualHost, number: usize) {
        let now = settled_time(host);
        let passage = &mut self.lock().passages[number];
        passage.submitting_ns = now - passage.arrival.at;
    }

    /// This item has ended.
    fn end(&self, host: &VirtualHost, number: usize) {
        let now = settled_time(host);
        let mut noted = self.lock();
        noted.passages[number].ended = now;
        noted.counts[1] = host.counts();
    }
}

/// Runs an open loop on this machine.
///
/// # Errors
/// Each CPU has a producer, or the run did not end.
pub fn run(machine: &Topology, costs: &Costs, load: &OpenLoop) -> Result<OpenOutcome, String> {
    let servers = machine.online().len().saturating_sub(load.producers.len());
    if servers == 0 {
        return Err("each CPU has a producer, so no item can move".to_owned());
    }
    let each = load.items.div_ceil(load.producers.len().max(1));
    let mut chance = Chance::new(load.seed);
    let cpus = load.producers.iter();
    let plans: Vec<(u32, Vec<Arrival>)> =
        cpus.map(|&cpu| (cpu, poisson(&mut chance, load.mix, (0, load.gap_ns), each))).collect();
    let items = each * plans.len();
    let notes = Notes(Arc::new(Mutex::new(Noted {
        passages: Vec::with_capacity(items),
        warm_up: items / WARM_UP_ONE_IN,
        counts: [Counts::default(); 2],
    })));
    let (theirs, topology, scope) = (notes.clone(), machine.clone(), load.scope);
    simulate(machine, costs, move |host| on_engine(host, topology, scope, plans, &theirs))?;
    let noted = notes.lock();
    let (warm_up, [before, after]) = (noted.warm_up, noted.counts);
    let arrivals: Vec<Arrival> = noted.passages.iter().map(|passage| passage.arrival).collect();
    let counted = &noted.passages[warm_up..];
    let sojourn = |passage: &Passage| passage.ended - passage.arrival.at;
    let at = |passage: Option<&Passage>| passage.map_or(0, |passage| passage.arrival.at);
    let elapsed_ns = at(counted.last()) - at(counted.first());
    let submissions_ns: Vec<u64> = counted.iter().map(|passage| passage.submitting_ns).collect();
    let produced_ns = (elapsed_ns * load.producers.len() as u64).max(1);
    Ok(OpenOutcome {
        sojourns_ns: counted.iter().map(sojourn).collect(),
        perfect_ns: perfect(&arrivals, servers, wake_ns(costs)).split_off(warm_up),
        submitting: submissions_ns.iter().sum::<u64>() as f64 / produced_ns as f64,
        submissions_ns,
        elapsed_ns,
        wakes: after.wakes - before.wakes,
        futile: after.futile - before.futile,
    })
}

fn on_engine(
    host: &VirtualHost,
    machine: Topology,
    scope: AffinityScopeChoice,
    plans: Vec<(u32, Vec<Arrival>)>,
    notes: &Notes,
) {
    let cpumask = machine.online().clone();
    let engine = Engine::new(host.clone(), Config::new(machine, cpumask.clone()));
    let attrs = Attrs { nice: 0, cpumask, scope, strict: false };
    let queue = Arc::new(make(&engine, spec("open", Kind::Unbound(attrs))));
    let start = settled_time(host);
    let producer = |(cpu, plan): (u32, Vec<Arrival>)| {
        let (host_of, queue, notes) = (host.clone(), queue.clone(), notes.clone());
        host.start(&CpuSet::single(cpu), move || produce(&host_of, &queue, &notes, &plan, start))
    };
    let producers: Vec<_> = plans.into_iter().map(producer).collect();
    producers.into_iter().for_each(|producer| producer.join(host));
    queue.flush().expect("not inside of an item");
    engine.retire();
}

/// Submits each item at its time, which is since `start`.
fn produce(host: &VirtualHost, queue: &VirtualQueue, notes: &Notes, plan: &[Arrival], start: u64) {
    for &Arrival { at, run_ns, doze_ns } in plan {
        let early_ns = (start + at).saturating_sub(settled_time(host));
        if early_ns > 0 {
            host.burn(early_ns);
        }
        let begun = settled_time(host);
        let number = notes.begin(host, Arrival { at: begun, run_ns, doze_ns });
        let (clock, theirs) = (host.clone(), notes.clone());
        let item = Item::new(move || {
            clock.burn(run_ns);
            theirs.end(&clock, number);
        });
        let _ = item.queue(queue);
        notes.submitted(host, number);
    }
}
