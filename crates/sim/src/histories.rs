//! Random histories for the oracle: queues of every kind, items of every kind, and the operations
//! on them.

mod administration;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use uwork_engine::{Queued, Rearmed};

use crate::host::VirtualHost;
use crate::item::Item;
use crate::kinds::{Known, make_queue};
use crate::machine::Machine;
use crate::oracle::{ItemNo, Oracle};
use crate::setup::{MS, SEC, US, VirtualEngine};

/// The number of items of one history, and of their phases that may take long.
const DENSE: (u32, u32) = (200, 6);
/// The same for a history in which items usually take long, and pools are often idle.
const SPARSE: (u32, u32) = (40, 15);
/// How many recent items a submitter keeps for further operations.
const KEPT: usize = 4;
/// One in this many operations moves an item's timer. The timer may expire in a run of the item,
/// and then the oracle loses track of it.
const MOVES: u64 = 31;
/// After this time all items must have ended.
const OVER_NS: u64 = 300 * SEC;

/// A history; see the module.
pub struct History {
    /// The engine under test.
    pub engine: Arc<VirtualEngine>,
    queues: Vec<Known>,
    is_sparse: bool,
    items_left: AtomicU32,
    long_left: AtomicU32,
    /// The time that destructors have taken.
    in_destructors: AtomicU64,
    /// Whether CPUs are taken away.
    takes_cpus: AtomicBool,
    /// Items that were armed, except deferrable ones: all must run.
    armed: Mutex<Vec<Job>>,
}

/// An item, with its number in the oracle and its queue.
#[derive(Clone)]
struct Job {
    no: ItemNo,
    queue: usize,
    item: Arc<Item>,
    deferrable: bool,
    slack_ns: u64,
}

/// A value that an item captures. When it is dropped and the item has not run, it performs a random
/// operation on the next item.
struct Captured {
    history: Weak<History>,
    next: Job,
    has_run: AtomicBool,
}

impl Drop for Captured {
    fn drop(&mut self) {
        let (has_run, panics) = (*self.has_run.get_mut(), std::thread::panicking());
        if let Some(history) = self.history.upgrade().filter(|_| !has_run && !panics) {
            history.note("destructor before item", self.next.no, 0);
            history.forget(&self.next);
            let (item, engine, began) = (&self.next.item, &history.engine, history.host().time());
            match history.below(4) {
                0 => drop(item.cancel(engine)),
                1 => drop(item.flush(engine)),
                2 => drop(history.queue_new(self.next.queue)),
                _ => drop(item.cancel_sync(engine)),
            }
            let took = history.host().time() - began;
            history.in_destructors.fetch_add(took, Ordering::Relaxed);
        }
    }
}

/// Calls `f` with the oracle of this machine and the machine itself.
pub fn with_oracle<R>(host: &VirtualHost, f: impl FnOnce(&mut Oracle, &Machine) -> R) -> R {
    let mut machine = host.machine();
    let mut oracle = machine.oracle.take().expect("a history has an oracle");
    let result = f(&mut oracle, &machine);
    machine.oracle = Some(oracle);
    result
}

impl History {
    /// A history on this many queues of random kinds.
    pub fn new(engine: &Arc<VirtualEngine>, queues: usize) -> Arc<History> {
        let queues = (0..queues).map(|at| make_queue(engine, at)).collect();
        let is_sparse = engine.host().machine().chance.below(3) == 0;
        let (items, long_phases) = if is_sparse { SPARSE } else { DENSE };
        Arc::new(History {
            engine: engine.clone(),
            queues,
            is_sparse,
            items_left: AtomicU32::new(items),
            long_left: AtomicU32::new(long_phases),
            in_destructors: AtomicU64::new(0),
            takes_cpus: AtomicBool::new(false),
            armed: Mutex::default(),
        })
    }

    fn host(&self) -> &VirtualHost {
        self.engine.host()
    }

    fn below(&self, n: u64) -> u64 {
        self.host().machine().chance.below(n)
    }

    fn note(&self, what: &'static str, item: usize, more: u64) {
        with_oracle(self.host(), |oracle, machine| {
            let thread = machine.current.expect("a thread executes");
            oracle.trace.note(machine.now, thread, what, item, more);
        });
    }

    /// 1 us to half a millisecond.
    fn brief(&self) -> u64 {
        (US << self.below(9)) + self.below(US)
    }

    /// A millisecond to 100 ms.
    fn long(&self) -> u64 {
        (MS << self.below(6)) + self.below(36 * MS)
    }

    fn take_one(counter: &AtomicU32) -> bool {
        let left = counter.load(Ordering::Relaxed);
        counter.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn job(self: &Arc<Self>, queue: usize, may_defer: bool) -> Job {
        let no = with_oracle(self.host(), |oracle, _| oracle.add_item(self.queues[queue].no));
        let history = Arc::downgrade(self);
        let body = move || History::run(&history, no, queue);
        let kind = if may_defer { self.below(6) } else { 2 };
        let slack_ns = if kind == 0 { self.below(3 * MS) } else { 0 };
        let item = match kind {
            0 => Item::with_slack(slack_ns, body),
            1 => Item::deferrable(body),
            _ => Item::new(body),
        };
        Job { no, queue, item, deferrable: kind == 1, slack_ns }
    }

    /// Queues an item whose destructor operates on the next item, and that next item.
    fn queue_pair(self: &Arc<Self>, queue: usize) -> Option<Job> {
        if self.queues[queue].is_bh || self.items_left.load(Ordering::Relaxed) < 2 {
            return None;
        }
        let next = self.job(queue, false);
        let (history, has_run) = (Arc::downgrade(self), AtomicBool::new(false));
        let captured = Captured { history: history.clone(), next: next.clone(), has_run };
        let no = with_oracle(self.host(), |oracle, _| oracle.add_item(self.queues[queue].no));
        let item = Item::new(move || {
            captured.has_run.store(true, Ordering::Relaxed);
            History::run(&history, no, queue);
        });
        let first = Job { no, queue, item, deferrable: false, slack_ns: 0 };
        for job in [first, next.clone()] {
            let _ = History::take_one(&self.items_left);
            self.queue(&job);
        }
        Some(next)
    }

    fn run(history: &Weak<History>, no: ItemNo, queue: usize) {
        let history = history.upgrade();
        let history = history.unwrap_or_else(|| panic!("item {no} outlives its history"));
        let thread = with_oracle(history.host(), |oracle, machine| {
            let thread = machine.current.expect("a thread executes");
            let name = machine.name_of(thread);
            let is_worker = name.starts_with("uw/") && !name.starts_with("uw/R-");
            let cpu = machine.current_cpu();
            oracle.trace.note(machine.now, thread, "start of item, on CPU", no, u64::from(cpu));
            oracle.start(no, (thread, is_worker.then_some(cpu)), |id| machine.reported_cpu(id));
            thread
        });
        for _ in 0..1 + history.below(3) {
            history.phase(no, queue);
        }
        with_oracle(history.host(), |oracle, machine| {
            oracle.trace.note(machine.now, thread, "end of item", no, 0);
            oracle.end(machine.now, no, thread);
        });
    }

    /// One random step of an item.
    fn phase(self: &Arc<Self>, no: ItemNo, queue: usize) {
        let may_wait = !self.queues[queue].is_bh;
        let rarely = if self.is_sparse { 2 } else { 12 };
        let is_long = self.below(rarely) == 0 && History::take_one(&self.long_left);
        let ns = match self.below(12) {
            _ if !is_long => self.brief(),
            0 => self.long() * 20,
            _ => self.long(),
        };
        match self.below(10) {
            0..4 => self.burn(no, ns.min(100 * MS)),
            4..6 if may_wait => self.wait(no, ns.min(2 * SEC)),
            6..8 if may_wait => self.doze(no, ns.min(2 * SEC)),
            8 => {
                let _ = self.queue_new(self.below(self.queues.len() as u64) as usize);
            }
            9 if may_wait && queue + 1 < self.queues.len() => self.join_later(queue),
            _ => {}
        }
    }

    fn burn(&self, no: ItemNo, ns: u64) {
        self.note("burns: item", no, ns);
        self.host().burn(ns);
    }

    fn wait(&self, no: ItemNo, ns: u64) {
        self.note("waits: item", no, ns);
        let declare = |declares| {
            with_oracle(self.host(), |oracle, machine| {
                oracle.declare(machine.current.expect("a thread executes"), declares);
            });
        };
        self.engine.blocking(|| {
            declare(true);
            self.host().doze(ns);
            declare(false);
        });
    }

    fn doze(&self, no: ItemNo, ns: u64) {
        self.note("sleeps: item", no, ns);
        self.host().doze(ns);
    }

    /// Queues an item on a later queue and waits for it.
    fn join_later(self: &Arc<Self>, queue: usize) {
        let later = queue + 1 + self.below((self.queues.len() - queue - 1) as u64) as usize;
        if let Some(job) = self.queue_new(later) {
            if self.below(2) == 0 {
                let _ = job.item.help(&self.engine);
            }
            let _ = job.item.flush(&self.engine);
        }
    }

    fn any_cpu(&self) -> Option<u32> {
        let cpus = self.engine.config().allowed.len() as u64;
        // The engine refuses a CPU that has just been taken away.
        (!self.takes_cpus.load(Ordering::Relaxed) && self.below(2) == 0)
            .then(|| self.below(cpus) as u32)
    }

    /// Queues a new item, if any are left.
    fn queue_new(self: &Arc<Self>, queue: usize) -> Option<Job> {
        if !History::take_one(&self.items_left) {
            return None;
        }
        let job = self.job(queue, false);
        self.queue(&job);
        Some(job)
    }

    fn queue(&self, job: &Job) {
        let cpu = self.any_cpu();
        self.offer(job, cpu);
        let to = &self.queues[job.queue].queue;
        let queued = match cpu {
            Some(cpu) => job.item.queue_on(to, cpu),
            None => job.item.queue(to),
        };
        match queued {
            Queued::Yes => self.accept(job, cpu, None),
            Queued::Refused => self.not_queued(job),
            Queued::AlreadyPending | Queued::Disabled => {}
        }
    }

    fn offer(&self, job: &Job, cpu: Option<u32>) {
        self.host().machine().begin_cpu_reports();
        with_oracle(self.host(), |oracle, machine| {
            oracle.offer(job.no, machine.current.expect("a thread executes"), cpu);
        });
    }

    fn accept(&self, job: &Job, cpu: Option<u32>, due: Option<u64>) {
        with_oracle(self.host(), |oracle, machine| {
            let thread = machine.current.expect("a thread executes");
            // A thread that moved during the call may have queued the item on either CPU.
            let is_given = cpu.is_some();
            let cpu = cpu.unwrap_or_else(|| machine.reported_cpu(thread));
            let what = if due.is_some() { "armed item, until" } else { "queued item, for CPU" };
            let more = due.map_or(u64::from(cpu), |due| due / US);
            oracle.trace.note(machine.now, thread, what, job.no, more);
            if is_given || !machine.has_reported_several_cpus(thread) {
                oracle.accept(machine.now, job.no, cpu, due);
            }
        });
    }

    /// Arms a new item.
    fn arm_new(self: &Arc<Self>, queue: usize) -> Option<Job> {
        if !History::take_one(&self.items_left) {
            return None;
        }
        let job = self.job(queue, true);
        let cpu = self.any_cpu();
        let delay = if self.below(2) == 0 { self.brief() } else { self.long() };
        self.offer(&job, cpu);
        // The clock advances only by preemption, which the oracle allows for.
        match job.item.queue_delayed(&self.queues[queue].queue, cpu, delay) {
            Queued::Yes => self.armed(&job, cpu, delay),
            Queued::Refused => self.not_queued(&job),
            Queued::AlreadyPending | Queued::Disabled => {}
        }
        Some(job)
    }

    fn armed(&self, job: &Job, cpu: Option<u32>, delay: u64) {
        // A deferrable item may wait without a bound.
        if job.deferrable {
            with_oracle(self.host(), |oracle, _| oracle.forget(job.no));
        } else {
            self.armed.lock().expect("no panic under this lock").push(job.clone());
            self.accept(job, cpu, Some(self.host().time() + delay + job.slack_ns));
        }
    }

    fn move_timer(&self, job: &Job) {
        let delay = if self.below(2) == 0 { self.brief() } else { self.long() };
        self.offer(job, None);
        let outcome = job.item.mod_delayed(&self.queues[job.queue].queue, delay);
        if matches!(outcome, Ok(Rearmed::Armed | Rearmed::Moved)) {
            self.armed(job, None, delay);
        }
    }

    fn forget(&self, job: &Job) {
        with_oracle(self.host(), |oracle, _| oracle.forget(job.no));
    }

    /// The queue has refused the item, because it drains.
    fn not_queued(&self, job: &Job) {
        self.forget(job);
        self.taken_back(job);
    }

    fn taken_back(&self, job: &Job) {
        with_oracle(self.host(), |oracle, _| oracle.taken_back(job.no));
    }

    /// A submitter: does everything that the interface permits, until no items are left.
    pub fn submit(self: &Arc<Self>) {
        let mut kept: Vec<Job> = Vec::new();
        // Items that need not expire in time.
        let mut may_stay: Vec<Job> = Vec::new();
        while self.items_left.load(Ordering::Relaxed) > 0 {
            let queue = self.below(self.queues.len() as u64) as usize;
            let job = match self.below(40) {
                0..15 => self.queue_new(queue),
                15 => self.queue_pair(queue),
                16..22 => self.arm_new(queue),
                22..30 => {
                    self.host().doze(self.brief() * 4);
                    None
                }
                30 if self.is_sparse || self.below(4) == 0 => {
                    self.host().doze(self.long());
                    None
                }
                what => {
                    let at = self.below(KEPT as u64) as usize;
                    if let Some(job) = kept.get(at) {
                        self.act_on_next(job, what);
                        may_stay.extend((what == MOVES).then(|| job.clone()));
                    }
                    None
                }
            };
            let Some(job) = job else { continue };
            if job.deferrable {
                may_stay.push(job.clone());
            }
            if kept.len() == KEPT {
                kept[self.below(KEPT as u64) as usize] = job;
            } else {
                kept.push(job);
            }
        }
        for job in may_stay {
            self.forget(&job);
            let _ = job.item.cancel_sync(&self.engine).expect("not that deep");
        }
    }

    /// Does something to an item, or to all.
    fn act_on_next(self: &Arc<Self>, job: &Job, what: u64) {
        let engine = &self.engine;
        match what {
            MOVES => self.move_timer(job),
            32 => {
                self.forget(job);
                let _ = job.item.cancel(engine);
                self.taken_back(job);
            }
            33 => {
                self.forget(job);
                let _ = job.item.cancel_sync(engine).expect("not that deep");
                self.taken_back(job);
            }
            34 => {
                self.forget(job);
                let _ = job.item.disable(engine).expect("not that deep");
                self.taken_back(job);
                self.host().doze(self.brief());
                let _ = job.item.enable(engine).expect("disabled just now");
            }
            35 => {
                let _ = job.item.help(engine);
            }
            36 => {
                self.forget(job);
                let _ = job.item.flush_delayed(engine);
            }
            37 => self.freeze(),
            38 => self.retune(job.queue),
            _ => {
                let _ = engine.dump();
                let until = self.host().time() + self.brief();
                let _ = self.queues[job.queue].queue.flush_until(until).expect("not in an item");
            }
        }
    }

    fn freeze(&self) {
        let freeze = |frozen| with_oracle(self.host(), |oracle, _| oracle.freeze(frozen));
        if with_oracle(self.host(), |oracle, _| oracle.is_frozen()) {
            return;
        }
        freeze(true);
        self.note("freezes", 0, 0);
        self.engine.freeze_begin().expect("it is not frozen");
        self.host().doze(self.brief() * 4);
        self.engine.thaw().expect("frozen by us");
        self.note("thawed", 0, 0);
        freeze(false);
    }

    fn retune(&self, queue: usize) {
        let Known { queue, no, tunable, .. } = &self.queues[queue];
        if *tunable {
            let max = 1 + self.below(4) as u32;
            let limit = |max| with_oracle(self.host(), |oracle, _| oracle.limit(*no, max));
            let before = with_oracle(self.host(), |oracle, _| oracle.max_active(*no));
            limit(before.min(max));
            // The oracle learns of two changes in the order in which they are made.
            self.host().unpreempted(|| {
                queue.set_max_active(max).expect("in range");
                limit(max);
            });
            self.note("limit of queue", *no, u64::from(max));
        }
    }
}
