//! Plays a script on an engine, and records the run.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use uwork_engine::host::Host;
use uwork_engine::{Attrs, Config, Cpus, Engine, Kind, MAX_ACTIVE_DEFAULT, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::Topology;

use crate::costs::bill::Bill;
use crate::host::{Event, VirtualHost};
use crate::item::Item;
use crate::machine::{Counts, Machine};
use crate::script::{QueueKind, QueueLine, Script, Step};
use crate::setup::{MS, ON_PURPOSE, SEC, VirtualEngine, VirtualQueue, make};
use crate::simulation::{self, Failure};
use crate::tape::{Call, Tape, What};

/// The limit on dispatches of a history.
const DISPATCHES_MAX: u64 = 1_000_000_000;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every thread and every item has ended.
    Complete,
    /// No thread could run any more.
    Deadlocked,
    /// The run had not ended at its bound.
    Unending,
    /// The engine panicked with this message, or threads ran without the clock advancing.
    Panicked(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Complete => write!(f, "complete"),
            Ending::Deadlocked => write!(f, "deadlock: no thread can run, and no event is pending"),
            Ending::Unending => write!(f, "the history has not ended at the bound of its time"),
            Ending::Panicked(message) => write!(f, "panic: {message}"),
        }
    }
}

/// A run of a script.
#[derive(Debug)]
pub struct Run {
    /// What each thread did.
    pub tape: Tape,
    /// How it ended.
    pub ending: Ending,
    /// The time at the end.
    pub ended_at: u64,
    /// The machine's counters.
    pub counts: Counts,
    /// How often each fault has occurred, by its name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Workers that the watcher had to add, for no known reason. A defect if it is not 0.
    pub rescues: u64,
    /// The items that were pending at the end.
    pub pending: Vec<usize>,
    /// The names of the threads.
    pub threads: Vec<String>,
    /// The account of the machine, if instructions took time.
    pub bill: Option<Box<Bill>>,
    /// The CPU time that the threads have used.
    pub busy_ns: u64,
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` without the messages of panics on this thread: items panic on purpose, and an engine
/// that fails is a result here.
fn quietly<R>(f: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let outer = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                outer(info);
            }
        }));
    });
    let was = IS_QUIET.replace(true);
    let result = f();
    IS_QUIET.set(was);
    result
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// Plays a script on this machine.
///
/// # Errors
/// The script asks for CPUs that the machine does not have.
pub fn play(script: &Script, machine: &Topology) -> Result<Run, String> {
    play_on(script, machine, |_| ())
}

/// As [`play`]. `prepare` gets the host before the run; its result is dropped after the run.
///
/// # Errors
/// As [`play`].
pub fn play_on<P>(
    script: &Script,
    machine: &Topology,
    prepare: impl FnOnce(&VirtualHost) -> P,
) -> Result<Run, String> {
    let online = machine.online().clone();
    for queue in &script.queues {
        if queue.cpus.as_ref().is_some_and(|cpus| cpus.and(&online).is_empty()) {
            let name = &queue.name;
            return Err(format!("queue '{name}': the machine has none of its CPUs ({online})"));
        }
    }
    let all = script.items.iter().map(|item| &item.steps).chain(&script.threads).flatten();
    for step in all {
        if let Step::Queue(no, Some(cpu)) = step
            && !machine.possible().contains(*cpu)
        {
            let (name, cpus) = (&script.items[*no].name, machine.possible());
            return Err(format!("step 'queue {name} {cpu}': the machine has the CPUs {cpus}"));
        }
    }
    let mut computer = Machine::new(online.clone(), script.faults.chaos(), script.seed);
    computer.tape = Some(Tape::default());
    computer.bound_ns = script.bound_ns;
    computer.dispatches_max = DISPATCHES_MAX;
    let host = VirtualHost::new(computer);
    let end = Arc::new(Mutex::new((0, Vec::new())));
    let (theirs, place) = (host.clone(), end.clone());
    let config = Config::new(machine.clone(), online.clone());
    let copy = Arc::new(script.clone());
    let first = online.first().expect("a machine has a CPU");
    let _main = host.start(&CpuSet::single(first), move || {
        let engine = Engine::new(theirs, config);
        let pending = Player::start(&engine, copy).finish();
        engine.retire();
        *lock(&place) = (engine.rescues(), pending);
    });
    let prepared = prepare(&host);
    let outcome = quietly(|| simulation::drive(&host, "a script"));
    drop(prepared);
    let ending = match outcome {
        Ok(()) => Ending::Complete,
        Err(Failure::Deadlocked) => Ending::Deadlocked,
        Err(Failure::Unending) => Ending::Unending,
        Err(Failure::Panicked(payload)) => Ending::Panicked(text_of(&*payload)),
    };
    let (rescues, pending) = std::mem::take(&mut *lock(&end));
    let mut computer = host.machine();
    let tape = computer.tape.take().unwrap_or_default();
    let (ended_at, counts, threads) = (computer.now, computer.counts, computer.names());
    let (bill, busy_ns) = (computer.bill.take(), computer.busy_ns());
    let faults = std::mem::take(&mut computer.faults);
    Ok(Run { tape, ending, ended_at, counts, faults, rescues, pending, threads, bill, busy_ns })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An item, or a copy of one.
struct Instance {
    /// Its line in the script.
    line: usize,
    /// `None` once the script has dropped it.
    item: Option<Arc<Item>>,
    requeued: u64,
}

#[derive(Default)]
struct Lock {
    is_held: bool,
    waiters: VecDeque<Arc<Event>>,
}

/// A script being played.
struct Player {
    engine: Arc<VirtualEngine>,
    script: Arc<Script>,
    queues: Vec<VirtualQueue>,
    instances: Mutex<Vec<Instance>>,
    locks: Mutex<BTreeMap<String, Lock>>,
}

/// Records the end of a run, also after a panic.
struct Finishes<'a>(&'a VirtualHost, usize);

impl Drop for Finishes<'_> {
    fn drop(&mut self) {
        self.0.record(What::Finishes(self.1));
    }
}

fn make_queue(engine: &Arc<VirtualEngine>, line: &QueueLine) -> VirtualQueue {
    let allowed = &engine.config().allowed;
    let cpumask = line.cpus.as_ref().map_or_else(|| allowed.clone(), |cpus| cpus.and(allowed));
    let scope = line.scope.map_or(AffinityScopeChoice::Default, AffinityScopeChoice::Explicit);
    let attrs = Attrs { nice: 0, cpumask, scope, strict: line.strict };
    let (kind, flags) = match line.kind {
        QueueKind::PerCpu => (Kind::PerCpu, line.flags),
        QueueKind::Unbound => (Kind::Unbound(attrs), line.flags),
        QueueKind::Ordered => (Kind::Ordered(attrs), line.flags),
        QueueKind::Bh => (Kind::PerCpu, line.flags | Flags::BH | Flags::PERCPU),
        QueueKind::Dedicated => (Kind::Dedicated(attrs), line.flags),
    };
    let max_active = line.max_active.unwrap_or(MAX_ACTIVE_DEFAULT);
    make(engine, QueueSpec { name: line.name.clone(), kind, flags, max_active })
}

impl Player {
    fn start(engine: &Arc<VirtualEngine>, script: Arc<Script>) -> Arc<Player> {
        let player = Arc::new(Player {
            engine: engine.clone(),
            queues: script.queues.iter().map(|line| make_queue(engine, line)).collect(),
            script,
            instances: Mutex::default(),
            locks: Mutex::default(),
        });
        for line in 0..player.script.items.len() {
            player.add(line);
        }
        let cpus: Vec<u32> = engine.config().allowed.iter().collect();
        let threads: Vec<_> = (0..player.script.threads.len())
            .map(|thread| {
                let theirs = player.clone();
                let cpu = CpuSet::single(cpus[thread % cpus.len()]);
                player.host().start(&cpu, move || theirs.run_thread(thread))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join(player.host()));
        player
    }

    /// Waits until every item has ended. Returns those that are pending all the same.
    fn finish(self: Arc<Self>) -> Vec<usize> {
        let mut step = MS;
        while !self.pending().is_empty() || !self.queues.iter().all(|queue| queue.is_idle()) {
            self.host().doze(step);
            step = (2 * step).min(SEC);
        }
        let pending = self.pending();
        self.host().record(What::Retires);
        pending
    }

    fn pending(&self) -> Vec<usize> {
        // The engine may switch threads, so it is not asked under the lock.
        let instances = lock(&self.instances).len();
        let is_pending = |no: &usize| self.item(*no).is_some_and(|item| item.is_pending());
        (0..instances).filter(is_pending).collect()
    }

    fn host(&self) -> &VirtualHost {
        self.engine.host()
    }

    /// A new item for this line. Returns its number.
    fn add(self: &Arc<Self>, line: usize) -> usize {
        let mut instances = lock(&self.instances);
        let (no, player) = (instances.len(), Arc::downgrade(self));
        let item = Item::new(move || Player::run_item(&player, no));
        instances.push(Instance { line, item: Some(item), requeued: 0 });
        no
    }

    fn item(&self, no: usize) -> Option<Arc<Item>> {
        lock(&self.instances)[no].item.clone()
    }

    /// Drops an item, not under the lock.
    fn forget(&self, no: usize) {
        let item = lock(&self.instances)[no].item.take();
        drop(item);
    }

    fn run_thread(self: &Arc<Self>, thread: usize) {
        for step in &self.script.threads[thread] {
            self.step(step, None);
        }
    }

    fn run_item(player: &Weak<Player>, no: usize) {
        let player = player.upgrade().expect("a script lives longer than its items");
        player.host().record(What::Starts(no));
        let _finishes = Finishes(player.host(), no);
        let line = lock(&player.instances)[no].line;
        for step in &player.script.items[line].steps {
            player.step(step, Some(no));
        }
    }

    /// A step of the item of this number, or of a thread.
    fn step(self: &Arc<Self>, step: &Step, running: Option<usize>) {
        match step {
            Step::Burn(ns) => self.host().burn(*ns),
            Step::Sleep(ns) => self.declared(|| self.host().doze(*ns)),
            Step::Doze(ns) => self.host().doze(*ns),
            Step::Lock(name, ns) => self.with_lock(name, || self.host().burn(*ns)),
            Step::Queue(no, cpu) => self.queue(*no, *cpu),
            Step::Arm(no, ns) => self.arm(*no, *ns),
            Step::Requeue(times) => self.requeue(running.expect("a step of items"), *times),
            Step::Fork(line, copies) => self.fork(*line, *copies),
            Step::Flush(no) => {
                self.call(Call::Flush, *no, |item| item.flush(&self.engine));
            }
            Step::Cancel(no) => {
                self.call(Call::Cancel, *no, |item| item.cancel(&self.engine));
            }
            Step::CancelSync(no) => {
                let cancel = |item: &Arc<Item>| item.cancel_sync(&self.engine);
                self.call(Call::CancelSync, *no, |item| cancel(item).expect("not that deep"));
            }
            Step::Free => self.forget(running.expect("a step of items")),
            Step::Panic => panic!("{ON_PURPOSE}"),
            Step::Cpus(cpus) => self.restrict(cpus.as_ref()),
        }
    }

    fn declared(&self, f: impl FnOnce()) {
        self.engine.blocking(|| {
            self.host().record(What::Declares(true));
            f();
            self.host().record(What::Declares(false));
        });
    }

    /// Records a call for an item, unless the script has dropped the item.
    fn call(&self, call: Call, no: usize, f: impl FnOnce(&Arc<Item>) -> bool) {
        let Some(item) = self.item(no) else { return };
        self.host().record(What::Begins(call, no));
        let outcome = f(&item);
        self.host().record(What::Ends(call, no, outcome));
    }

    fn queue_of(&self, no: usize) -> &VirtualQueue {
        let line = lock(&self.instances)[no].line;
        &self.queues[self.script.items[line].queue]
    }

    fn queue(&self, no: usize, cpu: Option<u32>) {
        let queue = self.queue_of(no);
        self.call(Call::Queue(cpu), no, |item| match cpu {
            Some(cpu) => item.try_queue_on(queue, cpu) == Queued::Yes,
            None => item.queue(queue) == Queued::Yes,
        });
    }

    fn arm(&self, no: usize, delay_ns: u64) {
        let queue = self.queue_of(no);
        let arm = |item: &Arc<Item>| item.queue_delayed(queue, None, delay_ns) == Queued::Yes;
        self.call(Call::Arm, no, arm);
    }

    fn requeue(&self, no: usize, times: u64) {
        let requeued = {
            let mut instances = lock(&self.instances);
            instances[no].requeued += 1;
            instances[no].requeued
        };
        if requeued <= times {
            self.queue(no, None);
        }
    }

    fn fork(self: &Arc<Self>, line: usize, copies: u64) {
        let copy = |_| {
            let no = self.add(line);
            self.host().record(What::Copies(no, line));
            no
        };
        let copies: Vec<usize> = (0..copies).map(copy).collect();
        for &no in &copies {
            self.queue(no, None);
        }
        for &no in &copies {
            self.call(Call::Flush, no, |item| item.flush(&self.engine));
            self.forget(no);
        }
    }

    fn with_lock(&self, name: &str, f: impl FnOnce()) {
        while let Err(event) = self.try_lock(name) {
            self.declared(|| while !self.host().park(&event, None) {});
        }
        f();
        let waiter = {
            let mut locks = lock(&self.locks);
            let held = locks.get_mut(name).expect("it is held");
            held.is_held = false;
            held.waiters.pop_front()
        };
        if let Some(event) = waiter {
            // SAFETY: we hold the event.
            unsafe { self.host().wake(Arc::as_ptr(&event)) };
        }
    }

    /// Takes a lock, or returns the event on which to wait for it.
    fn try_lock(&self, name: &str) -> Result<(), Arc<Event>> {
        let mut locks = lock(&self.locks);
        let lock = locks.entry(name.to_owned()).or_default();
        if !lock.is_held {
            lock.is_held = true;
            return Ok(());
        }
        let event = Arc::new(Event::default());
        lock.waiters.push_back(event.clone());
        Err(event)
    }

    fn restrict(&self, cpus: Option<&CpuSet>) {
        let all = &self.engine.config().allowed;
        let allowed = cpus.map_or_else(|| all.clone(), |cpus| cpus.and(all));
        self.host().record(What::Restricts(allowed.clone()));
        let cpus = Cpus { unbound_cpumask: allowed.clone(), allowed, cpu_limit: None };
        // Without any CPU the engine refuses the change.
        let changed = self.host().unpreempted(|| self.engine.set_cpus(cpus));
        self.host().record(What::Restricted(changed));
    }
}
