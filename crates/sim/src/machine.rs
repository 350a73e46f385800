//! A computer as plain state: CPUs, a clock, and threads.
//!
//! Instructions take no time, unless the machine has a bill (`paying`). Time passes only when every
//! thread that could run has been run, and then jumps to the next event. A thread that burns CPU
//! time queues for a CPU like one that has instructions to execute, and then holds it to the end,
//! unless `Chaos::slice_ns` gives the CPUs time slices. `schedule` has the scheduler, with its idle
//! class.

mod counts;
mod holders;
mod observe;
mod paying;
mod record;
mod reports;
mod schedule;

pub use counts::Counts;
use holders::Holders;
pub use schedule::IDLE_YIELD_NS;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicPtr, Ordering};

use uwork_policy::cpuset::CpuSet;

use crate::chance::{Chance, Chaos};
use crate::conservation::Conservation;
use crate::costs::bill::Bill;
use crate::oracle::{Oracle, Stance};
use crate::simulation::Anchor;
use crate::tape::{Tape, What};

/// A thread's number, from 0 in the order of creation.
pub type ThreadId = usize;
/// The main function of a thread.
pub type Main = Box<dyn FnOnce() + Send>;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waits for a CPU.
    Ready,
    /// Executes instructions.
    Running,
    /// Holds a CPU until a time.
    Burning,
    /// Off the CPU until a time.
    Dozing,
    /// Off the CPU until a time, preempted.
    Preempted,
    /// Off the CPU until woken or, perhaps, until a time.
    Parked,
    /// Off the CPU until a time: woken or created, and not competing for a CPU yet.
    Starting,
    /// Has ended.
    Gone,
}

struct Thread {
    name: String,
    cpus: CpuSet,
    /// The CPU on which it runs or ran last.
    cpu: u32,
    doing: Doing,
    /// Counts pauses: an event of an earlier pause is void.
    pause: u64,
    /// The CPU time that it burns before its next instruction.
    burn: u64,
    /// The CPU time that it has used, including the whole burn in progress.
    burnt: u64,
    /// Since when it waits for a CPU, if it does, and how long it has done so before.
    ready_since: Option<u64>,
    delayed: u64,
    /// Since when and until when it burns, if it does.
    burns_since: u64,
    burns_until: u64,
    /// Whether it keeps its CPU when its burn ends.
    keeps_cpu: bool,
    /// Whether it has had no CPU since it was created or woke.
    is_woken: bool,
    /// Whether there is an event for the end of its time slice.
    is_sliced: bool,
    /// The CPU that the engine was told last, and those told since [`Machine::begin_cpu_reports`].
    reported_cpu: u32,
    told: CpuSet,
    /// How often it has parked or dozed.
    waits: u64,
    /// Whether it has run an item since its last park.
    has_run: bool,
    /// How often it has dozed, woken from that, or lost its CPU.
    switches: u64,
    /// Since when it dozes, if it does.
    asleep_since: Option<u64>,
    /// When its last doze began, and how long it lasted.
    slept: Option<(u64, u64)>,
    main: Option<Main>,
    /// The anchor on the thread's stack, while it executes.
    anchor: AtomicPtr<Anchor>,
    /// The thread must not be preempted while this is not zero.
    shields: u32,
    /// Whether it has a CPU only while no normal thread is ready there.
    is_idle_class: bool,
    /// Whether it says that it has a real-time policy.
    is_real_time: bool,
}

/// The longest delay of a late wake.
const LATE_NS_MAX: u64 = 1_000_000;
/// The longest jump of the clock.
const JUMP_NS_MAX: u64 = 5_000_000;
/// The limit on dispatches of a machine, unless another is set.
const DISPATCHES_MAX: u64 = 500_000;

/// The next step of the simulation.
pub enum Next {
    /// Execute this thread until it pauses.
    Run(ThreadId),
    /// Every thread has ended.
    Done,
    /// No thread can run, and no event will change that.
    Stuck,
    /// The bound of the machine's time is reached.
    Over,
}

/// The machine; see the module.
pub struct Machine {
    /// The clock, in nanoseconds.
    pub now: u64,
    /// The source of every random choice.
    pub chance: Chance,
    /// What is random.
    pub chaos: Chaos,
    /// The counters so far.
    pub counts: Counts,
    /// How often each fault has occurred, by its name in a script.
    pub faults: BTreeMap<&'static str, u64>,
    /// The thread that executes instructions.
    pub current: Option<ThreadId>,
    /// Records the run, if present.
    pub tape: Option<Tape>,
    /// The run is stopped at this time.
    pub bound_ns: u64,
    /// The limit on dispatches in all. Beyond it, some thread makes no progress for ever.
    pub dispatches_max: u64,
    /// Checks that no item waits for too long, if present.
    pub oracle: Option<Box<Oracle>>,
    /// Checks that no item waits while a CPU idles, if present.
    pub conservation: Option<Box<Conservation>>,
    /// Has instructions take time, if present.
    pub bill: Option<Box<Bill>>,
    online: CpuSet,
    /// The thread that holds each CPU.
    holders: Holders,
    threads: Vec<Thread>,
    ready: VecDeque<ThreadId>,
    /// No ready thread can get a CPU before this time, unless a thread or a CPU changes first.
    no_choice_until: u64,
    /// Threads that hold a CPU and have instructions to execute.
    continuing: VecDeque<ThreadId>,
    /// Time, order of creation, thread, and the pause that the event ends.
    events: BinaryHeap<Reverse<(u64, u64, ThreadId, u64)>>,
    events_made: u64,
    /// Dispatches since the clock advanced.
    dispatches_now: u64,
    dispatches: u64,
    /// The thread that waits for any of these threads to switch.
    observer: Option<(ThreadId, Vec<ThreadId>)>,
}

impl Machine {
    /// A machine with these CPUs online and without threads.
    pub fn new(online: CpuSet, chaos: Chaos, seed: u64) -> Machine {
        let cpus = online.last().map_or(0, |last| last as usize + 1);
        Machine {
            now: 0,
            chance: Chance::new(seed),
            chaos,
            counts: Counts::default(),
            faults: BTreeMap::new(),
            current: None,
            tape: None,
            bound_ns: u64::MAX,
            dispatches_max: DISPATCHES_MAX,
            oracle: None,
            conservation: None,
            bill: None,
            online,
            holders: Holders::new(cpus),
            threads: Vec::new(),
            ready: VecDeque::new(),
            no_choice_until: 0,
            continuing: VecDeque::new(),
            events: BinaryHeap::new(),
            events_made: 0,
            dispatches_now: 0,
            dispatches: 0,
            observer: None,
        }
    }

    /// A new thread, ready to run. An empty set means all CPUs.
    pub fn add_thread(&mut self, name: &str, cpus: &CpuSet, main: Main) -> ThreadId {
        let cpus = if cpus.is_empty() { self.online.clone() } else { cpus.and(&self.online) };
        let cpu = cpus.first().expect("a thread needs a CPU that is online");
        self.threads.push(Thread {
            name: name.to_owned(),
            cpus,
            cpu,
            doing: Doing::Ready,
            pause: 0,
            burn: 0,
            burnt: 0,
            ready_since: None,
            delayed: 0,
            burns_since: 0,
            burns_until: 0,
            keeps_cpu: false,
            is_woken: true,
            is_sliced: false,
            reported_cpu: cpu,
            told: CpuSet::new(),
            waits: 0,
            has_run: false,
            switches: 0,
            asleep_since: None,
            slept: None,
            main: Some(main),
            anchor: AtomicPtr::new(std::ptr::null_mut()),
            shields: 0,
            is_idle_class: false,
            is_real_time: false,
        });
        let id = self.threads.len() - 1;
        self.push_ready(id);
        self.record(id, What::Created);
        id
    }

    /// As `add_thread`, for a thread that the engine spawns: it starts after the machine's latency.
    pub fn spawn_thread(&mut self, name: &str, cpus: &CpuSet, main: Main) -> ThreadId {
        let id = self.add_thread(name, cpus, main);
        self.counts.spawns += 1;
        if self.chaos.spawn_ns > 0 {
            let _ = self.ready.pop_back();
            self.threads[id].doing = Doing::Starting;
            self.add_event(self.now + self.chaos.spawn_ns, id);
        }
        id
    }

    /// The main function of the thread. Returned once.
    pub fn take_main(&mut self, id: ThreadId) -> Option<Main> {
        self.threads[id].main.take()
    }

    /// Records the anchor of a thread, on its stack.
    pub fn set_anchor(&mut self, id: ThreadId, anchor: *const Anchor) {
        self.threads[id].anchor.store(anchor.cast_mut(), Ordering::Relaxed);
    }

    fn current_thread(&self) -> &Thread {
        let current = self.current.expect("called from outside of the simulation");
        &self.threads[current]
    }

    /// Threads that have not ended.
    pub fn threads(&self) -> usize {
        self.threads.iter().filter(|thread| thread.doing != Doing::Gone).count()
    }

    /// The anchor of the executing thread.
    pub fn anchor(&self) -> *const Anchor {
        self.current_thread().anchor.load(Ordering::Relaxed)
    }

    /// The CPU of the executing thread.
    pub fn current_cpu(&self) -> u32 {
        self.current_thread().cpu
    }

    /// How often the executing thread has parked or dozed.
    pub(crate) fn waits(&self) -> u64 {
        self.current_thread().waits
    }

    /// The thread's name.
    pub fn name_of(&self, id: ThreadId) -> &str {
        &self.threads[id].name
    }

    /// Adds to the shields of the executing thread.
    pub fn shield(&mut self, change: i32) {
        let current = self.current.expect("called from outside of the simulation");
        let shields = &mut self.threads[current].shields;
        *shields = shields.checked_add_signed(change).expect("as many ends as begins");
        self.no_choice_until = 0;
    }

    /// Whether the executing thread must not be preempted.
    pub fn is_shielded(&self) -> bool {
        self.current_thread().shields > 0
    }

    /// The executing thread pauses: its new state, its CPU time, and until when.
    pub fn pause(&mut self, doing: Doing, burn: u64, until: Option<u64>) {
        let id = self.current.take().expect("called from outside of the simulation");
        match doing {
            Doing::Parked => self.record(id, What::Parks),
            Doing::Dozing => self.record(id, What::Sleeps),
            Doing::Preempted => {
                self.threads[id].ready_since = Some(self.now);
                self.record(id, What::Preempted);
            }
            _ => {}
        }
        let thread = &mut self.threads[id];
        thread.doing = doing;
        thread.is_woken = doing != Doing::Ready;
        thread.burn = burn;
        thread.pause += 1;
        thread.waits += u64::from(matches!(doing, Doing::Dozing | Doing::Parked));
        self.holders.clear(thread.cpu);
        self.no_choice_until = 0;
        if doing == Doing::Dozing {
            thread.asleep_since = Some(self.now);
        }
        if let Some(until) = until {
            self.add_event(until, id);
        }
        match doing {
            Doing::Ready => self.push_ready(id),
            Doing::Dozing => self.note_switch(id),
            _ => {}
        }
    }

    /// Whether a thread has ended.
    pub fn is_gone(&self, id: ThreadId) -> bool {
        self.threads[id].doing == Doing::Gone
    }

    /// Whether a thread is parked.
    pub fn is_parked(&self, id: ThreadId) -> bool {
        self.threads[id].doing == Doing::Parked
    }

    /// The executing thread has ended.
    pub fn end_current(&mut self) {
        let id = self.current.take().expect("a thread ended");
        self.record(id, What::Exits);
        self.threads[id].doing = Doing::Gone;
        self.holders.clear(self.threads[id].cpu);
        self.no_choice_until = 0;
    }

    /// Restricts a thread to these CPUs. A thread that burns elsewhere continues there once a CPU
    /// is free.
    pub fn place(&mut self, id: ThreadId, cpus: &CpuSet) {
        let thread = &mut self.threads[id];
        assert!(
            thread.doing != Doing::Gone,
            "thread {id} {:?} is moved, and has ended",
            thread.name
        );
        thread.cpus = cpus.and(&self.online);
        self.no_choice_until = 0;
        assert!(!thread.cpus.is_empty(), "a thread needs a CPU that is online");
        if thread.doing == Doing::Burning && !thread.cpus.contains(thread.cpu) {
            self.evict(id);
        }
    }

    /// Whether this is the engine's watcher.
    pub fn is_watch(&self, id: ThreadId) -> bool {
        self.threads[id].name == "uw/watch"
    }

    /// Whether the executing thread is the engine's watcher.
    pub fn is_watch_current(&self) -> bool {
        self.current.is_some_and(|id| self.is_watch(id))
    }

    /// Whether the executing thread is one of the engine's.
    pub fn is_worker(&self) -> bool {
        self.current_thread().name.starts_with("uw/")
    }

    /// Ends a thread's park. False if it is not parked.
    pub fn unpark(&mut self, id: ThreadId) -> bool {
        if self.threads[id].doing != Doing::Parked {
            return false;
        }
        self.record(id, What::Unparked);
        if self.is_watch(id) {
            self.counts.looks += 1;
        } else {
            self.counts.wake_ups += 1;
        }
        let late = self.strikes("late", self.chaos.late_one_in);
        let late_ns = if late { self.chance.below(LATE_NS_MAX) } else { 0 };
        let wake_ns = self.chaos.wake_ns + late_ns + self.idle_ns(self.threads[id].cpu);
        if wake_ns > 0 {
            self.threads[id].doing = Doing::Starting;
            // The deadline event of the park is void.
            self.threads[id].pause += 1;
            self.add_event(self.now + wake_ns, id);
        } else {
            self.threads[id].doing = Doing::Ready;
            self.push_ready(id);
        }
        true
    }

    /// Adds a thread to the end of those that wait for a CPU.
    fn push_ready(&mut self, id: ThreadId) {
        let _ = self.threads[id].ready_since.get_or_insert(self.now);
        self.ready.push_back(id);
        self.no_choice_until = 0;
    }

    fn add_event(&mut self, at: u64, id: ThreadId) {
        self.events_made += 1;
        self.events.push(Reverse((at, self.events_made, id, self.threads[id].pause)));
    }

    /// The state of a thread, for the oracle.
    fn stance(&self, id: ThreadId) -> Stance {
        match self.threads[id].doing {
            Doing::Burning => Stance::OnCpu,
            Doing::Ready | Doing::Running | Doing::Preempted => Stance::OffCpu,
            Doing::Dozing => Stance::Dozes,
            Doing::Parked | Doing::Starting | Doing::Gone => Stance::Parked,
        }
    }

    /// Shows the oracles the current state, which lasts until `until`.
    fn show_oracles(&mut self, until: u64) {
        if let Some(mut oracle) = self.oracle.take() {
            let disturbed = self.threads.iter().any(|thread| thread.doing == Doing::Preempted);
            oracle.pass(self.now, until, disturbed, |id| self.stance(id));
            self.oracle = Some(oracle);
        }
        if let Some(mut conservation) = self.conservation.take() {
            let idles = conservation.cpus().iter().any(|&cpu| self.is_idle(cpu));
            conservation.pass(self.now, until, idles);
            self.conservation = Some(conservation);
        }
    }

    /// Jumps to the next event and handles all events of that instant. With `jump_one_in`, the clock
    /// jumps over some events, which are then late.
    fn advance(&mut self) -> bool {
        let Some(at) = self.next_event() else { return false };
        let jumps = self.strikes("jump", self.chaos.jump_one_in);
        let at = at.max(self.now) + if jumps { self.chance.below(JUMP_NS_MAX) } else { 0 };
        if at > self.now {
            self.dispatches_now = 0;
            self.show_oracles(at);
        }
        self.now = at;
        while self.next_event().is_some_and(|next| next <= at) {
            let Some(Reverse((_, _, id, _))) = self.events.pop() else { break };
            match self.threads[id].doing {
                Doing::Burning if self.threads[id].burns_until > at => {
                    self.threads[id].is_sliced = false;
                    self.no_choice_until = 0;
                }
                Doing::Burning if self.threads[id].keeps_cpu => {
                    self.threads[id].doing = Doing::Ready;
                    self.continuing.push_back(id);
                }
                Doing::Burning => {
                    // The thread has the CPU already, so it continues before others get the CPU.
                    self.holders.clear(self.threads[id].cpu);
                    self.threads[id].doing = Doing::Ready;
                    self.ready.push_front(id);
                    self.no_choice_until = 0;
                }
                Doing::Parked => {
                    self.unpark(id);
                }
                _ => {
                    self.threads[id].doing = Doing::Ready;
                    self.push_ready(id);
                    if let Some(since) = self.threads[id].asleep_since.take() {
                        self.threads[id].slept = Some((since, at - since));
                        self.note_switch(id);
                    }
                }
            }
        }
        true
    }

    /// The time of the next event. Drops void events.
    pub fn next_event(&mut self) -> Option<u64> {
        while let Some(&Reverse((at, _, id, pause))) = self.events.peek() {
            let thread = &self.threads[id];
            let waits = matches!(
                thread.doing,
                Doing::Burning | Doing::Dozing | Doing::Preempted | Doing::Parked | Doing::Starting
            );
            if waits && thread.pause == pause {
                return Some(at);
            }
            self.events.pop();
        }
        None
    }

    /// For failure messages.
    pub fn describe(&self) -> String {
        let mut text = format!("at {} ns; {:?}\n", self.now, self.counts);
        for (id, thread) in self.threads.iter().enumerate() {
            if thread.doing != Doing::Gone {
                let (name, doing, cpu) = (&thread.name, thread.doing, thread.cpu);
                let _ = writeln!(text, "  thread {id} {name:?}: {doing:?}, CPU {cpu}");
            }
        }
        text
    }
}
