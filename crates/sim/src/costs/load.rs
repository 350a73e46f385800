//! Producers that submit items to a queue, on a machine where instructions take time.
//!
//! The queue is the engine's, or one of the kernel's shape (`kernel`). Each producer is pinned and
//! keeps its items, as `lib/test_workqueue.c` does. Its first batches, and a rest after them, give the
//! queue the time to start its workers, and do not count.

use std::sync::{Arc, Mutex, PoisonError};

use uwork_engine::{Attrs, Config, Engine, Kind};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::Topology;

use super::bill::Bill;
use super::kernel::{self, Wake};
use super::{Costs, Recording};
use crate::chance::Chaos;
use crate::host::VirtualHost;
use crate::item::Item;
use crate::machine::Machine;
use crate::setup::{MS, SEC, make, spec};
use crate::simulation::{self, Failure};

/// The run is stopped at this virtual time: a load takes milliseconds.
const BOUND_NS: u64 = 100 * SEC;
/// The limit on dispatches: a load of 1,024 producers needs millions.
const DISPATCHES_MAX: u64 = 1_000_000_000;

/// Batches of a producer that do not count, and its rest after them.
const WARM_UP_BATCHES: usize = 4;
const REST_NS: u64 = 50 * MS;

/// Which queue takes the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The production engine's.
    Engine,
    /// One in the kernel's shape.
    Kernel(Wake),
}

/// What the producers do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Producers, on the machine's first CPUs.
    pub producers: usize,
    /// How many items a producer submits before it waits for them.
    pub batch: usize,
    /// How many batches count.
    pub batches: usize,
    /// What an item computes, in nanoseconds.
    pub work_ns: u64,
    /// The scope of the queue.
    pub scope: AffinityScopeChoice,
}

/// What a load did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Items that count.
    pub items: u64,
    /// From the first submission that counts to the last end.
    pub elapsed_ns: u64,
    /// The durations of the submissions, in ascending order.
    pub submissions_ns: Vec<u64>,
    /// Wakes of workers and producers, all batches included.
    pub wakes: u64,
    /// Threads that the engine created.
    pub threads: u64,
    /// The part of all CPU time that was spent spinning for locks.
    pub spun: f64,
    /// The most cache lines with shared state that were in use at once, in bytes.
    pub used_bytes: u64,
    /// The line that took the most time, as a place in the engine.
    pub hottest: Option<super::bill::Hot>,
}

impl Outcome {
    /// Items a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.items as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The CPU time of an item, if each producer's CPU is busy all the time.
    #[must_use]
    pub fn ns_per_item(&self, producers: usize) -> f64 {
        self.elapsed_ns as f64 * producers as f64 / self.items.max(1) as f64
    }

    /// The duration that this many percent of the submissions do not exceed.
    #[must_use]
    pub fn submission_ns(&self, percent: usize) -> u64 {
        let last = self.submissions_ns.len().saturating_sub(1);
        self.submissions_ns.get(last * percent / 100).copied().unwrap_or(0)
    }
}

/// What the producers have noted.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    began: Option<u64>,
    ended: u64,
    submissions_ns: Vec<u64>,
}

impl Notes {
    /// A producer has ended: its period, and the durations of its submissions.
    pub(super) fn add(&self, began: u64, ended: u64, submissions_ns: &[u64]) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.began = Some(noted.began.map_or(began, |earliest| earliest.min(began)));
        noted.ended = noted.ended.max(ended);
        noted.submissions_ns.extend(submissions_ns);
    }
}

/// The time of the calling thread, with all that it owes.
pub(super) fn settled_time(host: &VirtualHost) -> u64 {
    host.settle();
    host.time()
}

/// A producer's batches. `submit` submits the item of this number, `wait` waits for all of them.
pub(super) fn produce(
    host: &VirtualHost,
    load: Load,
    notes: &Notes,
    submit: impl Fn(usize),
    wait: impl Fn(),
) {
    let mut submissions_ns = Vec::with_capacity(load.batch * load.batches);
    let mut began = 0;
    for batch in 0..WARM_UP_BATCHES + load.batches {
        let counts = batch >= WARM_UP_BATCHES;
        if batch == WARM_UP_BATCHES {
            host.doze(REST_NS);
            began = settled_time(host);
        }
        for item in 0..load.batch {
            let before = settled_time(host);
            submit(item);
            if counts {
                submissions_ns.push(settled_time(host) - before);
            }
        }
        wait();
    }
    notes.add(began, settled_time(host), &submissions_ns);
}

/// Runs a load on this machine.
///
/// # Errors
/// The machine has fewer CPUs than the load has producers, or the run did not end.
pub fn run(machine: &Topology, costs: &Costs, queue: Queue, load: Load) -> Result<Outcome, String> {
    let online = machine.online().clone();
    if load.producers > online.len() {
        let (producers, cpus) = (load.producers, online.len());
        return Err(format!("{producers} producers, and the machine has {cpus} CPUs"));
    }
    let mut computer = Machine::new(online, Chaos::STEADY, 0);
    computer.bound_ns = BOUND_NS;
    computer.dispatches_max = DISPATCHES_MAX;
    let host = VirtualHost::new(computer);
    let notes = Notes::default();
    let (theirs, noted, topology) = (host.clone(), notes.clone(), machine.clone());
    let first = CpuSet::single(machine.online().first().expect("a machine has a CPU"));
    let _main = host.start(&first, move || match queue {
        Queue::Engine => on_engine(&theirs, topology, load, &noted),
        Queue::Kernel(wake) => kernel::run(&theirs, &topology, load, wake, &noted),
    });
    let recording = Recording::start(&host, Bill::new(machine, costs.clone()));
    let driven = simulation::drive(&host, "a load");
    drop(recording);
    driven.map_err(|failure| match failure {
        Failure::Panicked(_) => "a thread of the simulation panicked".to_owned(),
        Failure::Deadlocked => "deadlock: no thread can run, and no event is pending".to_owned(),
        Failure::Unending => "the load has not ended at the bound of its time".to_owned(),
    })?;
    Ok(outcome(&host, load, &notes))
}

fn outcome(host: &VirtualHost, load: Load, notes: &Notes) -> Outcome {
    let mut noted = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut submissions_ns = std::mem::take(&mut noted.submissions_ns);
    submissions_ns.sort_unstable();
    let computer = host.machine();
    let bill = computer.bill.as_ref().expect("instructions take time");
    Outcome {
        items: (load.producers * load.batch * load.batches) as u64,
        elapsed_ns: noted.ended - noted.began.unwrap_or(noted.ended),
        submissions_ns,
        wakes: computer.counts.wakes,
        threads: computer.counts.spawns,
        spun: bill.spun_ns() as f64 / computer.busy_ns().max(1) as f64,
        used_bytes: bill.used_bytes(),
        hottest: bill.hottest().first().map(|&(_, hot)| hot),
    }
}

/// Starts the producers, each on a CPU of its own, and waits for their ends.
pub(super) fn start_producers(
    host: &VirtualHost,
    machine: &Topology,
    load: Load,
    producer: impl Fn(u32) + Clone + Send + 'static,
) {
    let start = |cpu: u32| {
        let producer = producer.clone();
        host.start(&CpuSet::single(cpu), move || producer(cpu))
    };
    let threads: Vec<_> = machine.online().iter().take(load.producers).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join(host));
}

fn on_engine(host: &VirtualHost, machine: Topology, load: Load, notes: &Notes) {
    let config = Config::new(machine.clone(), machine.online().clone());
    let engine = Engine::new(host.clone(), config);
    let cpumask = machine.online().clone();
    let attrs = Attrs { nice: 0, cpumask, scope: load.scope, strict: false };
    let queue = Arc::new(make(&engine, spec("load", Kind::Unbound(attrs))));
    let (theirs, notes) = (engine.clone(), notes.clone());
    start_producers(host, &machine, load, move |_| {
        let host = theirs.host();
        let item = |_| {
            let host = host.clone();
            Item::new(move || host.burn(load.work_ns))
        };
        let items: Vec<Arc<Item>> = (0..load.batch).map(item).collect();
        let submit = |at: usize| {
            let _ = items[at].queue(&queue);
        };
        let wait = || {
            for item in &items {
                item.flush(&theirs);
            }
        };
        produce(host, load, &notes, submit, wait);
    });
    engine.retire();
}
