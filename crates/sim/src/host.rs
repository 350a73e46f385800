//! The virtual machine as the engine's platform.
//!
//! **Where a thread may lose the CPU.** `park`, `relax` and `yield_now` switch to another thread by
//! their nature, `burn` and `doze` as well. With chaos, `wake`, `spawn` and `current_cpu` are
//! points where the thread may be preempted for a while. No other point exists: between two of
//! these points, everything that a thread does is one atomic step.
//!
//! **No switch under a lock.** The engine's locks are those of the operating system, to which all
//! virtual threads are one thread. If a virtual thread were suspended with a lock held, the next
//! thread to take that lock would wait for ever (`simulation` detects this). The engine calls these
//! functions without locks held, with one exception: it spawns threads under the locks of a queue
//! that is being created or changed, which tests wrap in [`VirtualHost::unpreempted`]. `now`, the
//! fences and `thread` may be called with locks held and are no such points. `relax` is called with
//! locks held where a thread waits for a slot's owner to leave its section; but no owner is ever
//! suspended inside a section.
//!
//! **The fences do nothing.** Both halves order the memory accesses of one thread as others see
//! them. Here one thread of the operating system makes all accesses, in program order, and every
//! virtual thread sees the earlier ones in that order. The compiler cannot move any access across a
//! switch, which is an opaque call.

mod observer;
mod paying;

pub use observer::Records;

use std::cell::{RefCell, RefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fragile::Fragile;

use uwork_engine::host::{
    Forks, Host, ItemPoint, ItemProbe, Placement, Report, SpawnError, SubmissionProbe, WorkerSpec,
};
use uwork_engine::sync::{Holding, assert_nothing_held, exchange};
use uwork_engine::{Cpus, ThreadState};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;

use crate::costs::Cost;
use crate::costs::bill::Use;
use crate::machine::{Counts, Doing, Machine};
use crate::simulation::Anchor;
use crate::tape::What;

/// The longest time that a preempted thread is off the CPU.
const PREEMPTED_NS_MAX: u64 = 200_000;
/// The longest stall of a worker.
const STALLED_NS_MAX: u64 = 5_000_000;
/// The time that each of the first rounds of `relax` takes.
const RELAX_NS: u64 = 100;

/// The event on which one virtual thread sleeps.
#[derive(Default)]
pub struct Event {
    set: AtomicBool,
    /// The thread that is parked on it, plus one; 0: none.
    sleeper: AtomicUsize,
}

impl uwork_engine::host::Event for Event {}

/// How spawning a thread fails.
#[derive(Clone, Copy, Debug)]
pub struct BrokenSpawn {
    /// How many spawns still succeed.
    pub after: u64,
    /// How long a failing spawn takes.
    pub takes_ns: u64,
    /// How long the spawning thread is off the CPU after a successful spawn.
    pub lags_ns: u64,
}

/// The host; see the module. A handle: all clones are the same machine.
#[derive(Clone)]
pub struct VirtualHost(Arc<Inner>);

struct Inner {
    machine: Fragile<RefCell<Machine>>,
    reports: Mutex<Vec<Report>>,
    changed: Mutex<Option<Cpus>>,
    broken_spawn: Mutex<Option<BrokenSpawn>>,
    /// A thread for reports was refused; then the watcher delivers them.
    has_refused_reporter: AtomicBool,
    detection: Mutex<Detecting>,
    /// The number of the cure, from 1 on; 0: none.
    refuses_moves: AtomicBool,
    /// Runs that the probes saw begin, and end.
    probed: [AtomicUsize; 2],
    /// Whether the machine has a bill.
    pays: AtomicBool,
}

/// How undeclared blocking is detected.
#[derive(Clone, Copy, Debug)]
pub struct Detecting {
    /// The tier that the engine is told.
    pub tier: Tier,
    /// How many threads can be recorded at once.
    pub recorded_max: usize,
    /// How many are recorded now.
    pub recorded: usize,
    /// One in this many samples of records finds that some were lost; 0: none.
    pub lossy: u64,
    samples: u64,
    /// How often the engine asked for the state of a thread.
    pub asked: u64,
    /// How often a thread asked how long it has waited for a CPU.
    pub delays_read: u64,
}

impl VirtualHost {
    /// The platform of an engine on this machine.
    pub fn new(machine: Machine) -> VirtualHost {
        VirtualHost(Arc::new(Inner {
            machine: Fragile::new(RefCell::new(machine)),
            reports: Mutex::new(Vec::new()),
            changed: Mutex::new(None),
            broken_spawn: Mutex::new(None),
            has_refused_reporter: AtomicBool::new(false),
            detection: Mutex::new(Detecting {
                tier: Tier::Declared,
                recorded_max: usize::MAX,
                recorded: 0,
                lossy: 0,
                samples: 0,
                asked: 0,
                delays_read: 0,
            }),
            refuses_moves: AtomicBool::new(false),
            probed: Default::default(),
            pays: AtomicBool::new(false),
        }))
    }

    /// The settings of the detection, to read or to change.
    pub fn detecting(&self) -> MutexGuard<'_, Detecting> {
        self.0.detection.lock().expect("no panic under this lock")
    }

    /// The machine. The reference is never held across a switch.
    ///
    /// # Panics
    /// The caller runs on another thread of the system than the simulation.
    pub fn machine(&self) -> RefMut<'_, Machine> {
        self.0.machine.get().borrow_mut()
    }

    /// Uses the CPU for `ns`.
    pub fn burn(&self, ns: u64) {
        if self.pays() {
            self.record(What::Burns(ns));
            return self.compute(ns);
        }
        self.pause(Doing::Ready, ns, None);
    }

    /// Blocks off the CPU for `ns`.
    pub fn doze(&self, ns: u64) {
        let until = self.machine().now.saturating_add(ns);
        self.pause(Doing::Dozing, 0, Some(until));
    }

    /// The time of the clock.
    pub fn time(&self) -> u64 {
        self.machine().now
    }

    /// The current CPU. Unlike `current_cpu` this is no preemption point.
    pub fn cpu(&self) -> u32 {
        self.machine().current_cpu()
    }

    /// The state of the machine, for failure messages.
    pub fn describe(&self) -> String {
        let machine = self.machine().describe();
        format!("{machine}  reports: {:?}", self.reports())
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.machine().counts
    }

    /// Threads that have not ended.
    pub fn threads(&self) -> usize {
        self.machine().threads()
    }

    /// The engine's reports so far.
    pub fn reports(&self) -> Vec<Report> {
        self.0.reports.lock().expect("no panic under this lock").clone()
    }

    /// How many runs the probes have seen begin, and how many end.
    pub fn probed_runs(&self) -> (usize, usize) {
        let [started, ended] = &self.0.probed;
        (started.load(Ordering::Relaxed), ended.load(Ordering::Relaxed))
    }

    /// Changes the CPUs that the process may use. The engine has to detect the change by itself.
    pub fn change_cpus(&self, cpus: Cpus) {
        *self.0.changed.lock().expect("no panic under this lock") = Some(cpus);
    }

    /// Lets spawns fail from now on, or succeed again.
    pub fn break_spawn(&self, how: Option<BrokenSpawn>) {
        *self.0.broken_spawn.lock().expect("no panic under this lock") = how;
    }

    /// From now on no thread is moved: each stays on the CPUs that it may use now.
    pub fn refuse_moves(&self) {
        self.0.refuses_moves.store(true, Ordering::Relaxed);
    }

    /// Runs `f` without preemption of the calling thread.
    pub fn unpreempted<R>(&self, f: impl FnOnce() -> R) -> R {
        self.machine().shield(1);
        let result = f();
        self.machine().shield(-1);
        result
    }

    /// From now on, the calling thread has a CPU only while no normal thread is ready there.
    pub fn become_standby(&self) -> bool {
        self.machine().join_idle_class();
        self.pause(Doing::Ready, 0, None);
        true
    }

    /// From now on, the calling thread says that it has a real-time policy. It is scheduled as before.
    pub fn claim_real_time(&self) {
        self.machine().claim_real_time();
    }

    /// Starts a thread of the test.
    pub fn start(&self, cpus: &CpuSet, f: impl FnOnce() + Send + 'static) -> Started {
        let done = Arc::new(Event::default());
        let (host, event) = (self.clone(), done.clone());
        let main = move || {
            f();
            // SAFETY: this closure holds the event.
            unsafe { host.wake(Arc::as_ptr(&event)) };
        };
        self.machine().add_thread("test", cpus, Box::new(main));
        Started(done)
    }

    /// Records what the executing thread does, if the run is recorded.
    pub fn record(&self, what: What) {
        self.machine().record_current(what);
    }

    fn pause(&self, doing: Doing, burn: u64, until: Option<u64>) {
        self.settle();
        let mut machine = self.machine();
        let anchor = machine.anchor();
        machine.pause(doing, burn, until);
        drop(machine);
        self.switch(anchor);
    }

    /// Runs other threads until the calling thread is dispatched again.
    fn switch(&self, anchor: *const Anchor) {
        debug_assert!(self.machine().bill.as_ref().is_none_or(|bill| bill.is_settled()));
        // All virtual threads share one thread of the system, and with it the thread-local record
        // of held locks.
        let holding = exchange(Holding::NOTHING);
        // SAFETY: the anchor of the calling thread, on whose stack we are.
        unsafe { Anchor::switch(anchor) };
        exchange(holding);
    }

    /// A point where the calling thread may lose the CPU.
    fn preempt(&self) {
        let mut machine = self.machine();
        let stall_one_in = machine.chaos.stall_one_in;
        if stall_one_in > 0
            && machine.is_worker()
            && !machine.is_shielded()
            && machine.strikes("stall", stall_one_in)
        {
            let until = machine.now + 1 + machine.chance.below(STALLED_NS_MAX);
            drop(machine);
            self.pause(Doing::Preempted, 0, Some(until));
            return;
        }
        let one_in = machine.chaos.preempt_one_in;
        if one_in == 0 || machine.is_shielded() || !machine.strikes("preempt", one_in) {
            return;
        }
        let briefly = machine.chance.one_in(2);
        let until = machine.now + 1 + machine.chance.below(PREEMPTED_NS_MAX);
        drop(machine);
        if briefly {
            self.pause(Doing::Ready, 0, None);
        } else {
            self.pause(Doing::Preempted, 0, Some(until));
        }
    }

    fn spawn_fails(&self) -> bool {
        let mut broken = self.0.broken_spawn.lock().expect("no panic under this lock");
        match &mut *broken {
            Some(BrokenSpawn { after: 0, .. }) => true,
            Some(BrokenSpawn { after, .. }) => {
                *after -= 1;
                false
            }
            None => {
                let mut machine = self.machine();
                let one_in = machine.chaos.spawn_fails_one_in;
                let fails = !machine.is_shielded() && machine.strikes("spawn", one_in);
                drop(machine);
                fails || self.refuses_memory()
            }
        }
    }

    /// Whether a request for memory fails, such as that for a thread's stack.
    fn refuses_memory(&self) -> bool {
        let mut machine = self.machine();
        let one_in = machine.chaos.memory_fails_one_in;
        !machine.is_shielded() && machine.strikes("memory", one_in)
    }
}

/// A thread of the test that can be waited for.
pub struct Started(Arc<Event>);

impl Started {
    /// Waits until the thread has ended.
    pub fn join(self, host: &VirtualHost) {
        while !host.park(&self.0, None) {}
    }
}

impl Host for VirtualHost {
    type Event = Event;
    type Observer = VirtualHost;

    fn observer(&self) -> &VirtualHost {
        self
    }

    fn now(&self) -> u64 {
        self.charge(Cost::Clock);
        self.time()
    }

    fn current_cpu(&self) -> u32 {
        self.charge(Cost::Access);
        self.preempt();
        self.machine().report_cpu()
    }

    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
        self.charge(Cost::Spawn);
        self.preempt();
        if self.spawn_fails() {
            self.0.has_refused_reporter.fetch_or(spec.name == "uw/report", Ordering::Relaxed);
            let takes_ns = self.0.broken_spawn.lock().expect("no panic under this lock");
            let takes_ns = takes_ns.map_or(0, |broken| broken.takes_ns);
            if takes_ns > 0 {
                self.doze(takes_ns);
            }
            let mut machine = self.machine();
            let now = machine.now;
            if let Some(oracle) = &mut machine.oracle {
                oracle.starve(now);
            }
            drop(machine);
            return Err(SpawnError("no thread to be had".to_owned()));
        }
        self.machine().spawn_thread(&spec.name, &spec.cpus, main);
        let broken = *self.0.broken_spawn.lock().expect("no panic under this lock");
        match broken {
            Some(BrokenSpawn { lags_ns, .. }) if lags_ns > 0 => {
                let until = self.time() + lags_ns;
                self.pause(Doing::Preempted, 0, Some(until));
            }
            _ => self.preempt(),
        }
        Ok(())
    }

    fn park(&self, event: &Event, deadline: Option<u64>) -> bool {
        self.use_line(std::ptr::from_ref(event).addr(), Use::Update, Location::caller());
        self.charge(Cost::Syscall);
        // The wake must not come between the checks and the sleep.
        self.settle();
        let mut machine = self.machine();
        let one_in = machine.chaos.early_one_in;
        let early = machine.strikes("early", one_in);
        let late = deadline.is_some_and(|at| at <= machine.now);
        let sleeps = !early && !late && !event.set.load(Ordering::Relaxed);
        if sleeps {
            let current = machine.current.expect("called from outside of the simulation");
            event.sleeper.store(current + 1, Ordering::Relaxed);
            machine.note_park();
        }
        drop(machine);
        if sleeps {
            self.pause(Doing::Parked, 0, deadline);
            event.sleeper.store(0, Ordering::Relaxed);
        } else {
            self.pause(Doing::Ready, 0, None);
        }
        event.set.swap(false, Ordering::Relaxed)
    }

    unsafe fn wake(&self, event: *const Event) {
        self.use_line(event.addr(), Use::Update, Location::caller());
        let mut machine = self.machine();
        // SAFETY: live, by this function's contract; its sleeper does not run before this thread
        // switches.
        let sleeper = unsafe {
            (*event).set.store(true, Ordering::Relaxed);
            (*event).sleeper.swap(0, Ordering::Relaxed)
        };
        let to_watch = sleeper > 0 && machine.is_watch(sleeper - 1);
        machine.counts.wakes += u64::from(!to_watch);
        if sleeper > 0 && machine.current.is_some() {
            machine.record_current(What::Wakes(sleeper - 1));
        }
        if sleeper > 0 {
            let cost = machine.wake_cost(sleeper - 1);
            machine.unpark(sleeper - 1);
            drop(machine);
            self.charge(cost);
        } else {
            drop(machine);
        }
        self.preempt();
    }

    fn yield_now(&self) {
        self.charge(Cost::Syscall);
        let ns = self.machine().yield_ns();
        self.pause(Doing::Ready, ns, None);
    }

    /// Takes time, because the thread that is waited for may itself wait for a time.
    fn relax(&self, round: u32) {
        self.pause(Doing::Ready, RELAX_NS << round.min(10), None);
    }

    fn light_fence(&self) {}

    fn heavy_fence(&self) {
        self.charge(Cost::Barrier);
    }

    fn thread(&self) -> *const ThreadState {
        let anchor = self.machine().anchor();
        // SAFETY: the anchor of the calling thread lives as long as it does.
        unsafe { Anchor::state(anchor) }
    }

    fn thread_id(&self) -> u64 {
        self.machine().current.expect("called from outside of the simulation") as u64 + 1
    }

    fn waits(&self) -> Option<u64> {
        Some(self.machine().waits())
    }

    fn probe_submission<'a>(&self, values: impl Fn() -> SubmissionProbe<'a>) {
        let mut machine = self.machine();
        let thread = machine.current.map_or(0, |thread| thread as u64 + 1);
        if let Some(oracle) = &mut machine.conservation {
            let cpu = values().cpu.expect("the queue has a pool for each CPU");
            oracle.offer(thread, cpu);
        }
    }

    fn probe_item(&self, point: ItemPoint, _: impl Fn() -> ItemProbe) {
        let [started, ended] = &self.0.probed;
        match point {
            ItemPoint::Started => started.fetch_add(1, Ordering::Relaxed),
            ItemPoint::Ended => ended.fetch_add(1, Ordering::Relaxed),
            ItemPoint::Activated => return,
        };
        self.machine().note_item();
    }

    fn grants_memory(&self) -> bool {
        !self.refuses_memory()
    }

    fn about_to_park(&self) {
        let park_ns = self.machine().chaos.park_ns;
        if park_ns > 0 {
            self.burn(park_ns);
        }
    }

    fn report(&self, report: Report) {
        assert_nothing_held("a reporter");
        // A reporter may wait for a worker that only the watcher can create.
        let may_stop_watch = self.0.has_refused_reporter.load(Ordering::Relaxed);
        assert!(
            may_stop_watch || !self.machine().is_watch_current(),
            "a reporter stops the watcher"
        );
        self.0.reports.lock().expect("no panic under this lock").push(report);
    }
}

impl Placement for VirtualHost {
    /// A thread that moves itself off its CPU continues when a CPU that it may use is free. The
    /// engine makes this call without locks held.
    fn set_cpus(&self, thread: u64, cpus: &CpuSet) {
        if self.0.refuses_moves.load(Ordering::Relaxed) {
            return;
        }
        let mut machine = self.machine();
        let id = thread as usize - 1;
        machine.place(id, cpus);
        let itself = machine.current == Some(id);
        drop(machine);
        if itself {
            self.pause(Doing::Ready, 0, None);
        }
    }

    fn become_standby(&self) -> bool {
        VirtualHost::become_standby(self)
    }

    fn is_caller_real_time(&self) -> bool {
        self.machine().is_real_time()
    }

    fn rename_thread(&self, _: &str) {}

    fn cpus_changed(&self) -> Option<Cpus> {
        self.0.changed.lock().expect("no panic under this lock").take()
    }
}

/// A simulation does not fork.
impl Forks for VirtualHost {}
