//! Producers that submit items to a queue, on a machine where instructions take time.
//!
//! The queue is the engine's, or one of the kernel's shape (`kernel`). Each producer is pinned and
//! keeps its items, as `lib/test_workqueue.c` does. Its first batches give the queue the time to
//! start its workers, and do not count. Then the producers meet, rest, and begin the batches that
//! count at the same time.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uwork_engine::host::Host;
use uwork_engine::{Attrs, Config, Engine, Kind};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::Topology;

use super::bill::{Bill, Hot, Use};
use super::kernel::{self, Wake};
use super::{Costs, Recording};
use crate::chance::Chaos;
use crate::host::{Event, VirtualHost};
use crate::item::Item;
use crate::machine::Machine;
use crate::setup::{MS, SEC, make, spec};
use crate::simulation::{self, Failure};

/// The run is stopped at this virtual time: a load takes milliseconds.
const BOUND_NS: u64 = 100 * SEC;
/// The limit on dispatches: a load of 1,024 producers needs millions.
const DISPATCHES_MAX: u64 = 1_000_000_000;

/// The rest of all producers after their first batches.
const REST_NS: u64 = 50 * MS;

/// Which queue takes the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The production engine's, unbound.
    Engine,
    /// The production engine's, per-CPU. The scope does not count.
    EnginePerCpu,
    /// One in the kernel's shape.
    Kernel(Wake),
}

/// What the producers do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Producers.
    pub producers: usize,
    /// How many items a producer submits before it waits for them.
    pub batch: usize,
    /// How many batches of a producer come first, and do not count.
    pub warm_up: usize,
    /// How many batches count.
    pub batches: usize,
    /// What a producer computes for each submission, beside the model's own costs, in nanoseconds.
    pub submit_ns: u64,
    /// What a submission, and the start of an item, compute under the lock of a queue in the kernel's
    /// shape, in nanoseconds.
    pub held_ns: u64,
    /// What an item computes, in nanoseconds.
    pub work_ns: u64,
    /// The scope of the queue.
    pub scope: AffinityScopeChoice,
    /// Whether the engine's workers must not leave their pod.
    pub strict: bool,
    /// Whether producers may run on all CPUs. Else each is pinned, to one CPU after the other.
    pub roams: bool,
}

impl Load {
    /// A producer that submits items without work, each alone, to a queue of this scope.
    #[must_use]
    pub fn new(scope: AffinityScopeChoice) -> Load {
        Load {
            producers: 1,
            batch: 1,
            warm_up: 4,
            batches: 1,
            submit_ns: 0,
            held_ns: 0,
            work_ns: 0,
            scope,
            strict: false,
            roams: false,
        }
    }
}

/// What a load did. Everything except `threads` is of the batches that count.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Items.
    pub items: u64,
    /// From the common start of all producers to the last end.
    pub elapsed_ns: u64,
    /// The sum of the times from that start to each producer's own end.
    pub produced_ns: u64,
    /// The durations of the submissions, in ascending order.
    pub submissions_ns: Vec<u64>,
    /// Wakes of workers and producers.
    pub wakes: u64,
    /// The CPU time of all threads.
    pub busy_ns: u64,
    /// Threads that the engine created, the first batches included.
    pub threads: u64,
    /// The part of the CPU time that was spent spinning for locks.
    pub spun: f64,
    /// The most cache lines with shared state that were in use at once, in bytes.
    pub used_bytes: u64,
    /// The places in the engine whose accesses took the most time, first.
    pub hottest: Vec<Hot>,
}

impl Outcome {
    /// Items a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.items as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The time that an item takes its producer, waits included.
    #[must_use]
    pub fn ns_per_item(&self) -> f64 {
        self.produced_ns as f64 / self.items.max(1) as f64
    }

    /// The CPU time of an item, that of all threads.
    #[must_use]
    pub fn busy_ns_per_item(&self) -> f64 {
        self.busy_ns as f64 / self.items.max(1) as f64
    }

    /// The time of the transfers of lines for an item, with the waits for them.
    #[must_use]
    pub fn lines_ns_per_item(&self) -> f64 {
        let ps: u64 = self.hottest.iter().map(|hot| hot.ps).sum();
        ps as f64 / 1e3 / self.items.max(1) as f64
    }

    /// Wakes of an item.
    #[must_use]
    pub fn wakes_per_item(&self) -> f64 {
        self.wakes as f64 / self.items.max(1) as f64
    }

    /// The duration that this many percent of the submissions do not exceed.
    #[must_use]
    pub fn submission_ns(&self, percent: usize) -> u64 {
        let last = self.submissions_ns.len().saturating_sub(1);
        self.submissions_ns.get(last * percent / 100).copied().unwrap_or(0)
    }
}

/// A cache line of its own, known by its address.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Line(
    #[allow(dead_code, reason = "a line without bytes has no address of its own")] u8,
);

impl Line {
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// A producer: it counts the ends of its items, and the last one wakes it if it sleeps.
#[derive(Default)]
pub(super) struct Producer {
    line: Line,
    pending: AtomicUsize,
    /// Whether the producer sleeps, or is about to.
    waits: AtomicBool,
    event: Arc<Event>,
}

impl Producer {
    /// A batch of so many items begins.
    fn begin(&self, host: &VirtualHost, items: usize) {
        host.use_line(self.line.address(), Use::Update, Location::caller());
        self.pending.store(items, Ordering::Relaxed);
    }

    /// An item has ended.
    pub(super) fn complete(&self, host: &VirtualHost) {
        host.use_line(self.line.address(), Use::Update, Location::caller());
        if self.pending.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        host.use_line(self.line.address(), Use::Update, Location::caller());
        if self.waits.swap(false, Ordering::Relaxed) {
            // SAFETY: the producer's items hold the event.
            unsafe { host.wake(Arc::as_ptr(&self.event)) };
        }
    }

    fn wait(&self, host: &VirtualHost) {
        host.use_line(self.line.address(), Use::Read, Location::caller());
        while self.pending.load(Ordering::Relaxed) > 0 {
            host.use_line(self.line.address(), Use::Update, Location::caller());
            self.waits.store(true, Ordering::Relaxed);
            if self.pending.load(Ordering::Relaxed) > 0 {
                let _ = host.park(&self.event, None);
            }
        }
        self.waits.store(false, Ordering::Relaxed);
    }
}

/// What the producers have noted.
#[derive(Clone)]
pub(super) struct Notes(Arc<Mutex<Noted>>);

struct Noted {
    /// Producers that have not yet finished their first batches, and those that have not ended.
    warms_up: usize,
    works: usize,
    /// The common start, once all have finished their first batches.
    start: u64,
    /// The counters at the start.
    before: Option<Counters>,
    outcome: Outcome,
}

/// The machine's counters.
struct Counters {
    wakes: u64,
    busy_ns: u64,
}

impl Counters {
    fn read(computer: &Machine) -> Counters {
        Counters { wakes: computer.counts.wakes, busy_ns: computer.busy_ns() }
    }
}

impl Notes {
    fn new(producers: usize) -> Notes {
        Notes(Arc::new(Mutex::new(Noted {
            warms_up: producers,
            works: producers,
            start: 0,
            before: None,
            outcome: Outcome::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns at the common start, when every producer has finished its first batches. The first
    /// producer that returns has the bill begin anew.
    fn meet(&self, host: &VirtualHost) {
        let now = settled_time(host);
        let mut noted = self.lock();
        noted.warms_up -= 1;
        if noted.warms_up == 0 {
            // Later than the end of each doze below.
            noted.start = now + 2 * REST_NS;
        }
        while noted.warms_up > 0 {
            drop(noted);
            host.doze(REST_NS);
            noted = self.lock();
        }
        let start = noted.start;
        drop(noted);
        host.doze(start - settled_time(host));
        let mut noted = self.lock();
        if noted.before.is_none() {
            let mut computer = host.machine();
            noted.before = Some(Counters::read(&computer));
            computer.bill.as_mut().expect("instructions take time").begin_anew();
        }
    }

    /// A producer has ended. The last one reads the counters.
    fn end(&self, host: &VirtualHost, submissions_ns: &[u64]) {
        let ended = settled_time(host);
        let mut noted = self.lock();
        let elapsed_ns = ended - noted.start;
        noted.works -= 1;
        noted.outcome.produced_ns += elapsed_ns;
        noted.outcome.items += submissions_ns.len() as u64;
        noted.outcome.submissions_ns.extend(submissions_ns);
        if noted.works > 0 {
            return;
        }
        let computer = host.machine();
        let before = noted.before.take().expect("all producers have met");
        let (bill, now) = (computer.bill.as_ref(), Counters::read(&computer));
        let bill = bill.expect("instructions take time");
        let outcome = &mut noted.outcome;
        outcome.elapsed_ns = elapsed_ns;
        outcome.wakes = now.wakes - before.wakes;
        outcome.busy_ns = now.busy_ns - before.busy_ns;
        outcome.spun = bill.spun_ns() as f64 / outcome.busy_ns.max(1) as f64;
        outcome.used_bytes = bill.used_bytes();
        outcome.hottest = bill.hottest();
    }
}

/// The time of the calling thread, with all that it owes.
pub(super) fn settled_time(host: &VirtualHost) -> u64 {
    host.settle();
    host.time()
}

/// A producer's batches. `submit` submits the item of this number.
pub(super) fn produce(
    host: &VirtualHost,
    load: Load,
    notes: &Notes,
    producer: &Producer,
    submit: impl Fn(usize),
) {
    let mut submissions_ns = Vec::with_capacity(load.batch * load.batches);
    for batch in 0..load.warm_up + load.batches {
        let counts = batch >= load.warm_up;
        if batch == load.warm_up {
            notes.meet(host);
        }
        producer.begin(host, load.batch);
        for item in 0..load.batch {
            let before = settled_time(host);
            host.charge_ns(load.submit_ns);
            submit(item);
            if counts {
                submissions_ns.push(settled_time(host) - before);
            }
        }
        producer.wait(host);
    }
    notes.end(host, &submissions_ns);
}

/// Runs a load on this machine.
///
/// # Errors
/// The run did not end.
pub fn run(machine: &Topology, costs: &Costs, queue: Queue, load: Load) -> Result<Outcome, String> {
    let notes = Notes::new(load.producers);
    let (noted, topology) = (notes.clone(), machine.clone());
    let host = simulate(machine, costs, move |host| match queue {
        Queue::Engine | Queue::EnginePerCpu => on_engine(host, topology, queue, load, &noted),
        Queue::Kernel(wake) => kernel::run(host, &topology, load, wake, &noted),
    })?;
    let mut outcome = std::mem::take(&mut notes.lock().outcome);
    outcome.submissions_ns.sort_unstable();
    outcome.threads = host.counts().spawns;
    Ok(outcome)
}

/// Runs a thread on the machine's first CPU, and the threads that it starts, to their ends. Returns
/// the machine's host.
pub(super) fn simulate(
    machine: &Topology,
    costs: &Costs,
    main: impl FnOnce(&VirtualHost) + Send + 'static,
) -> Result<VirtualHost, String> {
    let mut computer = Machine::new(machine.online().clone(), Chaos::STEADY, 0);
    computer.bound_ns = BOUND_NS;
    computer.dispatches_max = DISPATCHES_MAX;
    let host = VirtualHost::new(computer);
    let theirs = host.clone();
    let first = CpuSet::single(machine.online().first().expect("a machine has a CPU"));
    let _main = host.start(&first, move || main(&theirs));
    let recording = Recording::start(&host, Bill::new(machine, costs.clone()));
    let driven = simulation::drive(&host, "a load");
    drop(recording);
    driven.map_err(|failure| match failure {
        Failure::Panicked(_) => "a thread of the simulation panicked".to_owned(),
        Failure::Deadlocked => "deadlock: no thread can run, and no event is pending".to_owned(),
        Failure::Unending => "the load has not ended at the bound of its time".to_owned(),
    })?;
    Ok(host)
}

/// Starts the producers, and waits for their ends.
pub(super) fn start_producers(
    host: &VirtualHost,
    machine: &Topology,
    load: Load,
    producer: impl Fn(u32) + Clone + Send + 'static,
) {
    let start = |cpu: u32| {
        let producer = producer.clone();
        let own = CpuSet::single(cpu);
        host.start(if load.roams { machine.online() } else { &own }, move || producer(cpu))
    };
    let cpus: Vec<u32> = machine.online().iter().collect();
    let cpus = cpus.into_iter().cycle().take(load.producers);
    let threads: Vec<_> = cpus.map(start).collect();
    threads.into_iter().for_each(|thread| thread.join(host));
}

fn on_engine(host: &VirtualHost, machine: Topology, queue: Queue, load: Load, notes: &Notes) {
    let config = Config::new(machine.clone(), machine.online().clone());
    let engine = Engine::new(host.clone(), config);
    let cpumask = machine.online().clone();
    let attrs = Attrs { nice: 0, cpumask, scope: load.scope, strict: load.strict };
    let kind = if queue == Queue::EnginePerCpu { Kind::PerCpu } else { Kind::Unbound(attrs) };
    let queue = Arc::new(make(&engine, spec("load", kind)));
    let (theirs, notes) = (engine.clone(), notes.clone());
    start_producers(host, &machine, load, move |_| {
        let host = theirs.host();
        let producer = Arc::new(Producer::default());
        let item = |_| {
            let (host, producer) = (host.clone(), producer.clone());
            Item::new(move || {
                if load.work_ns > 0 {
                    host.burn(load.work_ns);
                }
                producer.complete(&host);
            })
        };
        let items: Vec<Arc<Item>> = (0..load.batch).map(item).collect();
        let submit = |at: usize| {
            let _ = items[at].queue(&queue);
        };
        produce(host, load, &notes, &producer, submit);
    });
    engine.retire();
}
