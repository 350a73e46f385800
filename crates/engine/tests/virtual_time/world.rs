//! An engine, queues of every kind, and items that perform random operations on each other.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use uwork_engine::{
    Attrs, CPU_INTENSIVE_THRESH_NS, Cpus, Kind, MAX_ACTIVE_DEFAULT, QueueSpec, Queued,
};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::host::VirtualHost;
use crate::item::Item;
use crate::ledger::{ItemNo, Ledger, Limit, NodeLimits, QueueNo};
use crate::setup::{MS, ON_PURPOSE, US, VirtualEngine, VirtualQueue, attrs, make, spec};

/// The queues, by number. An item waits only for items of a later queue, so that all waits end.
pub(crate) const BOUND: QueueNo = 0;
pub(crate) const PODS: QueueNo = 1;
pub(crate) const WHOLE: QueueNo = 2;
pub(crate) const ORDERED: QueueNo = 3;
/// For CPU-intensive items.
pub(crate) const INTENSIVE: QueueNo = 4;
/// Queues for shared items.
pub(crate) const QUEUES: u64 = 5;
/// The following are for items that are queued once. Items are queued on this one for a CPU: its
/// pods share the limits of nodes.
pub(crate) const NODES: QueueNo = 5;
/// Items of any earlier queue wait for items of these four, even if no thread can be spawned any
/// more: the first two have rescuers, and the others run their items in a context of their own. The
/// items of these four wait for no other item.
pub(crate) const RECLAIM: QueueNo = 6;
pub(crate) const RECLAIM_ORDERED: QueueNo = 7;
/// For a CPU, in the order of queueing. Its items never wait.
pub(crate) const BH: QueueNo = 8;
pub(crate) const DEDICATED: QueueNo = 9;
/// The number of queues.
pub(crate) const ALL: u64 = 10;

/// The queues that run an item on the CPU on which it was queued.
pub(crate) const PER_CPU: [QueueNo; 4] = [BOUND, INTENSIVE, RECLAIM, BH];

/// The number of items shared by all threads, for each queue.
const SHARED: u64 = 3;
/// The number of items without a home.
const NOMADS: u64 = 2;
/// How often items queue themselves or others, in all.
const CHAINED: u32 = 60;

/// A shared item with its number in the ledger.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) no: ItemNo,
    pub(crate) home: Option<QueueNo>,
    pub(crate) item: Arc<Item>,
}

/// The world; see the module.
pub(crate) struct World {
    pub(crate) engine: Arc<VirtualEngine>,
    pub(crate) ledger: Ledger,
    pub(crate) queues: Vec<VirtualQueue>,
    pub(crate) shared: Vec<Known>,
    /// Whether items wait for items. A wait needs a thread for the awaited item.
    waits: bool,
    /// Whether CPUs go offline and come back.
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
        let ordered = || Kind::Ordered(attrs(engine, AffinityScope::Cpu, false));
        let dedicated = Kind::Dedicated(attrs(engine, AffinityScope::System, false));
        let of = |kind, max_active| QueueSpec { max_active, ..spec("", kind) };
        let with = |flags, spec| QueueSpec { flags, ..spec };
        let specs = [
            (of(Kind::PerCpu, max), Limit::OnEachCpu(max)),
            (of(in_all(AffinityScope::Cache), max), Limit::InAll(max * cpus as u32)),
            (of(in_all(AffinityScope::System), max), Limit::InAll(max)),
            (of(ordered(), 1), Limit::InAll(1)),
            (
                QueueSpec { flags: Flags::CPU_INTENSIVE, ..of(Kind::PerCpu, MAX_ACTIVE_DEFAULT) },
                Limit::OnEachCpu(MAX_ACTIVE_DEFAULT),
            ),
            (
                of(in_all(AffinityScope::Cpu), 2 * max),
                Limit::OnEachNode(NodeLimits::new(node_of, 2 * max, 1)),
            ),
            (with(Flags::MEM_RECLAIM, of(Kind::PerCpu, max)), Limit::OnEachCpu(max)),
            (with(Flags::MEM_RECLAIM, of(ordered(), 1)), Limit::InAll(1)),
            (
                with(Flags::BH | Flags::PERCPU, of(Kind::PerCpu, MAX_ACTIVE_DEFAULT)),
                Limit::OnEachCpu(1),
            ),
            (of(dedicated, MAX_ACTIVE_DEFAULT), Limit::InAll(1)),
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
        if !moves {
            ledger.expect_one_thread(DEDICATED);
        }
        let thresholds = [CPU_INTENSIVE_THRESH_NS, MS, 200 * US, 0];
        let threshold = *engine.host().machine().chance.pick(&thresholds);
        engine.set_cpu_intensive_thresh(threshold);
        Arc::new_cyclic(|world| {
            let homes = (0..SHARED * QUEUES).map(|i| Some((i % QUEUES) as QueueNo));
            let homes = homes.chain((0..NOMADS).map(|_| None));
            let shared = homes.map(|home| {
                let no = ledger.add_item(home);
                let world = world.clone();
                let item = Item::new(move || World::enter(&world, no, home));
                ledger.watch_releases(no, &item);
                Known { no, home, item }
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

    /// A random allowed CPU.
    pub(crate) fn any_cpu(&self) -> u32 {
        let allowed = &self.engine.cpus().allowed;
        let at = self.below(allowed.len() as u64) as usize;
        allowed.iter().nth(at).expect("so many CPUs are allowed")
    }

    /// Takes some CPUs offline, and brings others back.
    pub(crate) fn move_cpus(&self) {
        let all = &self.engine.config().allowed;
        let mut allowed: CpuSet = all.iter().filter(|_| self.below(2) == 0).collect();
        if allowed.is_empty() {
            allowed = all.clone();
        }
        let cpu_limit = (self.below(3) == 0).then(|| 1 + self.below(3) as u32);
        let unbound_cpumask = CpuSet::single(allowed.first().expect("not empty"));
        let unbound_cpumask = if self.below(3) == 0 { unbound_cpumask } else { allowed.clone() };
        // Items queued before run on in the previous pods, each with its own limit.
        self.ledger.raise_limit(PODS, MAX_ACTIVE_DEFAULT);
        self.ledger.raise_limit(WHOLE, MAX_ACTIVE_DEFAULT);
        self.ledger.allow(&allowed);
        let cpus = Cpus { allowed, unbound_cpumask, cpu_limit };
        let _ = self.host().unpreempted(|| self.engine.set_cpus(cpus));
    }

    /// A random shared item.
    pub(crate) fn any(&self) -> Known {
        self.shared[self.below(self.shared.len() as u64) as usize].clone()
    }

    /// A random scope and strictness.
    pub(crate) fn any_attrs(&self) -> Attrs {
        let scope = AffinityScope::ALL[self.below(AffinityScope::ALL.len() as u64) as usize];
        attrs(&self.engine, scope, self.below(2) == 0)
    }

    /// A queue name that is not in use.
    pub(crate) fn fresh_name(&self) -> String {
        format!("t{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a shared item on its home queue, or on a random one.
    pub(crate) fn queue(&self, known: &Known) -> Queued {
        let home = known.home.unwrap_or_else(|| self.below(QUEUES) as QueueNo);
        let queue = &self.queues[home];
        self.ledger.queue(known.no, || match self.below(3) {
            0 => known.item.queue_on(queue, self.any_cpu()),
            _ => known.item.queue(queue),
        })
    }

    /// A new item for one run, which may use CPU time or wait.
    pub(crate) fn once(self: &Arc<Self>, home: QueueNo, cpu: Option<u32>) -> Known {
        let no = self.ledger.add_once(home, cpu);
        let world = Arc::downgrade(self);
        let item = Item::new(move || {
            let world = world.upgrade().expect("the world outlives its items");
            world.ledger.run(no, world.host(), || world.pass_time(home));
        });
        self.ledger.watch_releases(no, &item);
        Known { no, home: Some(home), item }
    }

    /// As `once`, on one of the world's queues. Some queues take items for one CPU.
    pub(crate) fn once_on(self: &Arc<Self>, home: QueueNo) -> (Known, Queued) {
        let cpu = [BOUND, NODES, RECLAIM, BH].contains(&home).then(|| self.any_cpu());
        let (once, queue) = (self.once(home, cpu), &self.queues[home]);
        let queued = self.ledger.queue(once.no, || match cpu {
            Some(cpu) => once.item.queue_on(queue, cpu),
            None => once.item.queue(queue),
        });
        (once, queued)
    }

    /// Does nothing, burns, or declares a wait; occasionally uses more CPU time than an item
    /// should.
    pub(crate) fn pass_time(&self, home: QueueNo) {
        let ns = 1 + self.below(300) * US;
        match self.below(20) {
            0..8 => {}
            8..15 => self.host().burn(ns),
            15 if self.below(4) == 0 => self.hog(home),
            _ if home == BH => {}
            _ => self.engine.blocking(|| self.host().doze(ns)),
        }
    }

    /// Computes for long, with short waits in between.
    fn hog(&self, home: QueueNo) {
        for _ in 0..self.below(25) {
            self.host().burn(1 + self.below(MS));
            if home != BH && self.below(8) == 0 {
                self.engine.blocking(|| self.host().doze(self.below(300 * US)));
            }
        }
    }

    /// The function of a shared item.
    fn enter(world: &Weak<World>, no: ItemNo, home: Option<QueueNo>) {
        let world = world.upgrade().expect("the world outlives its items");
        let mut panics = false;
        world.ledger.run(no, world.host(), || {
            world.check_inside(no);
            world.pass_time(BOUND);
            match world.below(8) {
                0 => panics = true,
                1..3 => world.chain(no),
                3..5 if world.waits => world.wait_for_later(home),
                5 => world.wait_for_a_reclaiming_queue(),
                _ => {}
            }
            world.pass_time(BOUND);
            world.check_inside(no);
        });
        if panics {
            resume_unwind(Box::new(ON_PURPOSE));
        }
    }

    /// Queues itself or another item, unless the total of such queueings is used up.
    fn chain(&self, no: ItemNo) {
        let left = self.chained.load(Ordering::Relaxed);
        if left > 0 {
            self.chained.store(left - 1, Ordering::Relaxed);
            let other = self.any();
            let known = if self.below(2) == 0 { &other } else { &self.shared[no] };
            let _ = self.queue(known);
        }
    }

    /// Waits for an item, or all items, of a later queue.
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

    /// Waits for items of a queue that makes progress whatever happens to the others.
    fn wait_for_a_reclaiming_queue(self: &Arc<Self>) {
        let home = RECLAIM + self.below(4) as QueueNo;
        for _ in 0..1 + self.below(3) {
            let (once, queued) = self.once_on(home);
            if queued == Queued::Yes && self.below(3) == 0 {
                self.flush_item(&once);
            }
        }
        if self.below(3) > 0 {
            self.flush(home);
        }
    }

    /// Checks that the engine knows which item the caller is in.
    fn check_inside(&self, no: ItemNo) {
        let item = &self.shared[no].item;
        assert!(item.busy(&self.engine).running, "item {no} runs");
        let current = self.engine.current_work().expect("inside of an item");
        assert_eq!(current.item, Arc::as_ptr(item).addr());
    }

    pub(crate) fn flush(&self, queue: QueueNo) {
        let before = self.ledger.queued_on(queue);
        self.queues[queue].flush().expect("not from an item of the queue");
        self.ledger.check_over(&before, "a flush");
    }

    /// A flush that may give up, but not before its deadline.
    pub(crate) fn flush_in(&self, queue: QueueNo, ns: u64) {
        let (before, until) = (self.ledger.queued_on(queue), self.host().time() + ns);
        if self.queues[queue].flush_until(until).expect("not from an item of the queue") {
            self.ledger.check_over(&before, "a flush in time");
        } else {
            assert!(self.host().time() >= until, "a flush gave up early");
        }
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
