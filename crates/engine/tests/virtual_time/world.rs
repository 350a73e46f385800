//! An engine, queues of every kind, and items that do all sorts of things to each other.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use uwork_engine::{Attrs, Cpus, Kind, MAX_ACTIVE_DEFAULT, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::Scope;

use crate::host::VirtualHost;
use crate::item::Item;
use crate::ledger::{ItemNo, Ledger, Limit, NodeLimits, QueueNo};
use crate::setup::{ON_PURPOSE, US, VirtualEngine, VirtualQueue, attrs, make, spec};

/// The queues, by number. An item waits for those of a later queue only, so that waits end.
pub(crate) const BOUND: QueueNo = 0;
pub(crate) const PODS: QueueNo = 1;
pub(crate) const WHOLE: QueueNo = 2;
pub(crate) const ORDERED: QueueNo = 3;
/// One more, per CPU, is for CPU-intensive items.
pub(crate) const QUEUES: u64 = 5;
/// The last one is for items that are queued once, on a CPU. Its pods share the limits of nodes.
pub(crate) const NODES: QueueNo = 5;

/// Items that are shared by all threads, for each queue.
const SHARED: u64 = 3;
/// Items without a home.
const NOMADS: u64 = 2;
/// Times that items queue themselves or others, in all.
const CHAINED: u32 = 60;

/// A shared item with its number in the ledger.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) no: ItemNo,
    pub(crate) home: Option<QueueNo>,
    pub(crate) item: Arc<Item>,
}

/// See the module.
pub(crate) struct World {
    pub(crate) engine: Arc<VirtualEngine>,
    pub(crate) ledger: Ledger,
    pub(crate) queues: Vec<VirtualQueue>,
    pub(crate) shared: Vec<Known>,
    /// Whether items wait for items. A wait needs a thread for what is waited for.
    waits: bool,
    /// Whether CPUs leave and come back.
    pub(crate) moves: bool,
    chained: AtomicU32,
    names: AtomicU32,
}

impl World {
    pub(crate) fn new(engine: &Arc<VirtualEngine>, waits: bool, moves: bool) -> Arc<World> {
        let ledger = Ledger::default();
        let cpus = engine.config().allowed.len();
        let max = 1 + engine.host().machine().chance.below(3) as u32;
        let topology = &engine.config().topology;
        let node_of = topology.cpus().iter().map(|cpu| cpu.node as usize).collect();
        let in_all = |scope| Kind::Unbound(attrs(engine, scope, false));
        let ordered = Kind::Ordered(attrs(engine, Scope::Cpu, false));
        let of = |kind, max_active| QueueSpec { max_active, ..spec("", kind) };
        let specs = [
            (of(Kind::PerCpu, max), Limit::OnEachCpu(max)),
            (of(in_all(Scope::Cache), max), Limit::InAll(max * cpus as u32)),
            (of(in_all(Scope::System), max), Limit::InAll(max)),
            (of(ordered, 1), Limit::InAll(1)),
            (
                QueueSpec { flags: Flags::CPU_INTENSIVE, ..of(Kind::PerCpu, MAX_ACTIVE_DEFAULT) },
                Limit::OnEachCpu(MAX_ACTIVE_DEFAULT),
            ),
            (
                of(in_all(Scope::Cpu), 2 * max),
                Limit::OnEachNode(NodeLimits::new(node_of, 2 * max, 1)),
            ),
        ];
        let mut queues = Vec::new();
        for (index, (spec, limit)) in specs.into_iter().enumerate() {
            let freezable = [PODS, ORDERED, NODES].contains(&index);
            ledger.add_queue(limit, cpus, freezable);
            let freezable = if freezable { Flags::FREEZABLE } else { Flags::empty() };
            let (name, flags) = (format!("q{index}"), spec.flags | freezable);
            queues.push(make(engine, QueueSpec { name, flags, ..spec }));
        }
        queues[NODES].set_min_active(1).expect("it is unbound");
        Arc::new_cyclic(|world| {
            let homes = (0..SHARED * QUEUES).map(|i| Some((i % QUEUES) as QueueNo));
            let homes = homes.chain((0..NOMADS).map(|_| None));
            let shared = homes.map(|home| {
                let no = ledger.add_item(home);
                let world = world.clone();
                Known { no, home, item: Item::new(move || World::enter(&world, no, home)) }
            });
            let shared = shared.collect();
            World {
                engine: engine.clone(),
                ledger,
                queues,
                shared,
                waits,
                moves,
                chained: AtomicU32::new(CHAINED),
                names: AtomicU32::new(0),
            }
        })
    }

    pub(crate) fn host(&self) -> &VirtualHost {
        self.engine.host()
    }

    /// A number below `n`.
    pub(crate) fn below(&self, n: u64) -> u64 {
        self.host().machine().chance.below(n)
    }

    /// Any CPU that is allowed.
    pub(crate) fn any_cpu(&self) -> u32 {
        let allowed = &self.engine.cpus().allowed;
        let at = self.below(allowed.len() as u64) as usize;
        allowed.iter().nth(at).expect("so many CPUs are allowed")
    }

    /// Lets some CPUs leave, and others come back.
    pub(crate) fn move_cpus(&self) {
        let all = &self.engine.config().allowed;
        let mut allowed: CpuSet = all.iter().filter(|_| self.below(2) == 0).collect();
        if allowed.is_empty() {
            allowed = all.clone();
        }
        let cpu_limit = (self.below(3) == 0).then(|| 1 + self.below(3) as u32);
        let unbound_cpumask = CpuSet::single(allowed.first().expect("not empty"));
        let unbound_cpumask = if self.below(3) == 0 { unbound_cpumask } else { allowed.clone() };
        // Items of before run on in pods of before, each with its own limit.
        self.ledger.raise_limit(PODS, MAX_ACTIVE_DEFAULT);
        self.ledger.raise_limit(WHOLE, MAX_ACTIVE_DEFAULT);
        self.ledger.allow(&allowed);
        let cpus = Cpus { allowed, unbound_cpumask, cpu_limit };
        let _ = self.host().unpreempted(|| self.engine.set_cpus(cpus));
    }

    /// Any of the shared items.
    pub(crate) fn any(&self) -> Known {
        self.shared[self.below(self.shared.len() as u64) as usize].clone()
    }

    /// Any scope and strictness.
    pub(crate) fn any_attrs(&self) -> Attrs {
        let scope = Scope::ALL[self.below(Scope::ALL.len() as u64) as usize];
        attrs(&self.engine, scope, self.below(2) == 0)
    }

    /// A name that no queue has.
    pub(crate) fn fresh_name(&self) -> String {
        format!("t{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a shared item on its queue, or on any.
    pub(crate) fn queue(&self, known: &Known) -> Queued {
        let home = known.home.unwrap_or_else(|| self.below(QUEUES) as QueueNo);
        let queue = &self.queues[home];
        self.ledger.queue(known.no, || match self.below(3) {
            0 => known.item.queue_on(queue, self.any_cpu()),
            _ => known.item.queue(queue),
        })
    }

    /// A new item for one run that may use CPU time or wait.
    pub(crate) fn once(self: &Arc<Self>, home: QueueNo, cpu: Option<u32>) -> Known {
        let no = self.ledger.add_once(home, cpu);
        let world = Arc::downgrade(self);
        let item = Item::new(move || {
            let world = world.upgrade().expect("the world outlives its items");
            world.ledger.run(no, world.host(), || world.pass_time());
        });
        Known { no, home: Some(home), item }
    }

    /// Nothing, a burn or a declared wait.
    pub(crate) fn pass_time(&self) {
        let ns = 1 + self.below(300) * US;
        match self.below(5) {
            0..2 => {}
            2..4 => self.host().burn(ns),
            _ => self.engine.blocking(|| self.host().doze(ns)),
        }
    }

    /// A shared item's function.
    fn enter(world: &Weak<World>, no: ItemNo, home: Option<QueueNo>) {
        let world = world.upgrade().expect("the world outlives its items");
        let mut panics = false;
        world.ledger.run(no, world.host(), || {
            world.pass_time();
            match world.below(8) {
                0 => panics = true,
                1..3 => world.chain(no),
                3..5 if world.waits => world.wait_for_later(home),
                _ => {}
            }
            world.pass_time();
        });
        if panics {
            resume_unwind(Box::new(ON_PURPOSE));
        }
    }

    /// Queues itself or another, if that has not been done often enough.
    fn chain(&self, no: ItemNo) {
        let left = self.chained.load(Ordering::Relaxed);
        if left > 0 {
            self.chained.store(left - 1, Ordering::Relaxed);
            let other = self.any();
            let known = if self.below(2) == 0 { &other } else { &self.shared[no] };
            let _ = self.queue(known);
        }
    }

    /// Waits for an item, or all, of a later queue.
    fn wait_for_later(&self, home: Option<QueueNo>) {
        let Some(home) = home else { return };
        let other = self.any();
        let Some(queue) = other.home.filter(|&other| other > home) else { return };
        match self.below(3) {
            0 => self.flush(queue),
            1 => self.flush_item(&other),
            _ => self.cancel_sync(&other),
        }
    }

    pub(crate) fn flush(&self, queue: QueueNo) {
        let before = self.ledger.queued_on(queue);
        self.queues[queue].flush().expect("not from an item of the queue");
        self.ledger.check_over(&before, "a flush");
    }

    pub(crate) fn drain(&self, queue: QueueNo) {
        let before = self.ledger.queued_on(queue);
        self.queues[queue].drain().expect("not from an item of the queue");
        self.ledger.check_over(&before, "a drain");
    }

    pub(crate) fn flush_item(&self, known: &Known) {
        self.ledger.flush_item(known.no, &known.item, || known.item.flush(&self.engine));
    }

    pub(crate) fn cancel_sync(&self, known: &Known) {
        let cancel = || known.item.cancel_sync(&self.engine).expect("not that deep");
        let _ = self.ledger.cancel_sync(known.no, cancel);
    }
}
