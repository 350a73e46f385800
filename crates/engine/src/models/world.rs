//! A small engine for whole-engine models: one pool, the production worker, items that count their
//! runs.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_policy::topology::Topology;

use super::host::{Event, FAR, LoomHost};
use crate::engine::{Config, Engine};
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::queue::{Attrs, Kind, QueueSpec};
use crate::timer::delayed::{Delayed, Rearmed};
use crate::words::host::Report;
use crate::words::item::{Action, Work};
use crate::words::sync::Cell;

/// An engine on a machine of `cpus` CPUs that share everything.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine<LoomHost>>,
}

impl World {
    /// A world whose host can spawn `threads` threads. Nothing is explored until
    /// [`World::explored`].
    pub(crate) fn new(cpus: u32, threads: u32) -> World {
        let host = LoomHost::new(threads);
        host.explore(false);
        let mut config = Config::new(Topology::flat(cpus), CpuSet::first_n(cpus));
        config.idle_timeout_ns = 0;
        World { engine: Engine::new(host, config) }
    }

    /// A queue on the pool of CPU 0, whose target is one running worker.
    pub(crate) fn per_cpu(&self, max_active: u32) -> Queue<LoomHost> {
        self.queue("p", Kind::PerCpu, max_active)
    }

    /// A queue on a pool for each CPU, or, with a limit of one, on one for all: its target is one running
    /// worker per CPU.
    pub(crate) fn unbound(&self, name: &str, max_active: u32) -> Queue<LoomHost> {
        self.queue(name, Kind::Unbound(self.everywhere()), max_active)
    }

    /// A queue on the pool of all CPUs, whose limit is that of its pwq.
    pub(crate) fn with_pod_limits(&self, max_active: u32) -> Queue<LoomHost> {
        let (name, kind) = ("l".to_owned(), Kind::Unbound(self.everywhere()));
        let spec = QueueSpec { name, kind, flags: Flags::POD_LIMITS, max_active };
        Queue::new(&self.engine, spec).unwrap()
    }

    /// An ordered queue on the pool of all CPUs.
    pub(crate) fn ordered(&self, name: &str) -> Queue<LoomHost> {
        self.queue(name, Kind::Ordered(self.everywhere()), 1)
    }

    fn everywhere(&self) -> Attrs {
        let cpumask = self.engine.config().allowed.clone();
        let scope = AffinityScopeChoice::Explicit(AffinityScope::System);
        Attrs { nice: 0, cpumask, scope, strict: false }
    }

    /// Keeps a worker of `queue` inside an item until the returned gate is opened.
    pub(crate) fn hold_a_worker(&self, queue: &Queue<LoomHost>) -> (Arc<Item>, Arc<Event>) {
        let gate = Arc::new(Event::default());
        let closed = gate.clone();
        let held = Item::with(move |_| closed.wait());
        assert_eq!(held.queue(queue), Queued::Yes);
        self.settle();
        (held, gate)
    }

    /// A queue of any kind.
    pub(crate) fn queue(&self, name: &str, kind: Kind, max_active: u32) -> Queue<LoomHost> {
        let name = name.to_owned();
        let spec = QueueSpec { name, kind, flags: Flags::empty(), max_active };
        Queue::new(&self.engine, spec).unwrap()
    }

    /// A per-CPU queue with these flags.
    pub(crate) fn flagged(&self, flags: Flags, max_active: u32) -> Queue<LoomHost> {
        let spec = QueueSpec { name: "f".to_owned(), kind: Kind::PerCpu, flags, max_active };
        Queue::new(&self.engine, spec).unwrap()
    }

    /// An unbound queue with a rescuer. A forked child runs its pending items.
    pub(crate) fn inheriting(&self, name: &str) -> Queue<LoomHost> {
        let flags = Flags::MEM_RECLAIM | Flags::FORK_INHERITED;
        let kind = Kind::Unbound(self.everywhere());
        Queue::new(&self.engine, QueueSpec { name: name.to_owned(), kind, flags, max_active: 1 })
            .unwrap()
    }

    /// Lets every worker run until it parks. Outside of [`World::explored`] only.
    pub(crate) fn settle(&self) {
        for _ in 0..4 {
            loom::thread::yield_now();
        }
    }

    /// Runs the part of the model of which loom explores every interleaving within the bounds.
    pub(crate) fn explored<R>(&self, part: impl FnOnce() -> R) -> R {
        self.engine.host().explore(true);
        let result = part();
        self.engine.host().explore(false);
        result
    }

    /// Ends every worker. The caller has dropped the queues.
    pub(crate) fn end(self) -> Vec<Report> {
        self.engine.retire();
        self.engine.host().join_all();
        assert_eq!(self.engine.workers(), 0, "every worker ends");
        self.engine.host().reports()
    }
}

/// An item that counts its runs without an atomic. loom reports a race if two of its runs overlap,
/// or if a thread reads the count without having waited for the runs.
#[repr(C)]
pub(crate) struct Item {
    work: Work,
    runs: Cell<u32>,
    body: Box<dyn Fn(&Item) + Send + Sync>,
    /// Woken at the end of each run.
    pub(crate) done: Event,
    home: Mutex<Option<Queue<LoomHost>>>,
}

unsafe fn run(work: NonNull<Work>, action: Action) {
    assert_eq!(action, Action::Run);
    // SAFETY: every item of the models is the first field of an `Item` that outlives its runs.
    let item = unsafe { work.cast::<Item>().as_ref() };
    // SAFETY: an item's runs are ordered. The model checks exactly that.
    unsafe { item.runs.set(item.runs.get() + 1) };
    (item.body)(item);
    item.done.wake();
}

impl Item {
    /// An item that only counts its runs.
    pub(crate) fn new() -> Arc<Item> {
        Item::with(|_| {})
    }

    /// An item with this body.
    pub(crate) fn with(body: impl Fn(&Item) + Send + Sync + 'static) -> Arc<Item> {
        let (runs, done) = (Cell::new(0), Event::default());
        let body = Box::new(body);
        Arc::new(Item { work: Work::new(run), runs, body, done, home: Mutex::new(None) })
    }

    /// The pointer that the engine's own calls take.
    pub(crate) fn work(&self) -> NonNull<Work> {
        NonNull::from(self).cast()
    }

    /// Queues the item.
    pub(crate) fn queue(&self, queue: &Queue<LoomHost>) -> Queued {
        // SAFETY: every model keeps its items until the engine has ended.
        unsafe { queue.queue(self.work()) }
    }

    /// The number of runs. The caller has waited for them.
    pub(crate) fn runs(&self) -> u32 {
        // SAFETY: no run is in progress. The model checks exactly that.
        unsafe { self.runs.get() }
    }

    /// Sets the queue on which the item requeues itself.
    pub(crate) fn set_home(&self, queue: Option<&Queue<LoomHost>>) {
        *self.home.lock().unwrap() = queue.cloned();
    }

    /// Queues the item on the queue set by [`Item::set_home`].
    pub(crate) fn requeue(&self) -> Queued {
        let home = self.home.lock().unwrap();
        self.queue(home.as_ref().unwrap())
    }
}

/// An item with a timer. It counts its runs and releases as [`Item`] counts its runs.
#[repr(C)]
pub(crate) struct Timed {
    delayed: Delayed<LoomHost>,
    runs: Cell<u32>,
    released: Cell<u32>,
}

unsafe fn end_timed(work: NonNull<Work>, action: Action) {
    // SAFETY: every item with this function is the first field of a `Timed` that outlives its runs.
    let item = unsafe { work.cast::<Timed>().as_ref() };
    let count = if action == Action::Run { &item.runs } else { &item.released };
    // SAFETY: the runs and releases of an item are ordered. The model checks exactly that.
    unsafe { count.set(count.get() + 1) };
}

impl Timed {
    pub(crate) fn new() -> Arc<Timed> {
        let (runs, released) = (Cell::new(0), Cell::new(0));
        Arc::new(Timed { delayed: Delayed::new(end_timed), runs, released })
    }

    fn work(&self) -> NonNull<Work> {
        NonNull::from(self).cast()
    }

    /// Queues the item.
    pub(crate) fn queue(&self, queue: &Queue<LoomHost>) -> Queued {
        // SAFETY: every model keeps its items until the engine has ended.
        unsafe { queue.queue(self.work()) }
    }

    /// Arms the item's timer.
    pub(crate) fn arm(&self, queue: &Queue<LoomHost>) -> Queued {
        // SAFETY: as in `queue`.
        unsafe { queue.queue_delayed(None, NonNull::from(self).cast(), 1_000) }.unwrap()
    }

    /// Arms the item's timer again, far from now. Whether it was pending.
    pub(crate) fn put_off(&self, queue: &Queue<LoomHost>) -> bool {
        self.move_to(queue, FAR)
    }

    /// Arms the item's timer again, for the same time. Whether it was pending.
    pub(crate) fn arm_again(&self, queue: &Queue<LoomHost>) -> bool {
        self.move_to(queue, 1_000)
    }

    fn move_to(&self, queue: &Queue<LoomHost>, delay_ns: u64) -> bool {
        // SAFETY: as in `queue`.
        let moved = unsafe { queue.mod_delayed(None, NonNull::from(self).cast(), delay_ns) };
        moved.unwrap() == Rearmed::Moved
    }

    /// The pointer that the wheel has.
    pub(crate) fn armed(&self) -> *mut Delayed<LoomHost> {
        std::ptr::from_ref(&self.delayed).cast_mut()
    }

    /// Cancels the item. Whether it was pending.
    pub(crate) fn cancel(&self, engine: &Engine<LoomHost>) -> bool {
        // SAFETY: as in `queue`.
        unsafe { engine.cancel(self.work()) }
    }

    /// How often the item ran, and how often it was released without a run. The engine has ended.
    pub(crate) fn ends(&self) -> (u32, u32) {
        // SAFETY: the engine has ended, so no other thread touches the item.
        unsafe { (self.runs.get(), self.released.get()) }
    }
}
