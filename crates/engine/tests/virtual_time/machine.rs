//! A computer as plain state: CPUs, a clock, and threads.
//!
//! Instructions take no time. Time passes only when every thread that could run has been run, and
//! then jumps to the next event. A thread that burns CPU time queues for a CPU like one that has
//! instructions to execute, and then holds it to the end, unless `Chaos::slice_ns` gives the CPUs
//! time slices.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicPtr, Ordering};

use uwork_policy::cpuset::CpuSet;

use crate::oracle::{Oracle, Stance};
use crate::random_source::{Chance, Chaos};
use crate::simulation::Anchor;

/// A thread's number, from 0 in the order of creation.
pub(crate) type ThreadId = usize;
/// The main function of a thread.
pub(crate) type Main = Box<dyn FnOnce() + Send>;

/// The limit on dispatches at one instant. Beyond it, the threads run in a livelock.
const DISPATCHES_AT_ONE_TIME_MAX: u64 = 100_000;
/// The limit on dispatches in all. Beyond it, some thread makes no progress for ever.
const DISPATCHES_MAX: u64 = 500_000;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
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
    /// Since when and until when it burns, if it does.
    burns_since: u64,
    burns_until: u64,
    /// Whether there is an event for the end of its time slice.
    is_sliced: bool,
    /// The CPU that the engine was told last, and those told since [`Machine::begin_cpu_reports`].
    reported_cpu: u32,
    told: CpuSet,
    /// How often it has parked or dozed.
    waits: u64,
    /// Since when it dozes, if it does.
    asleep_since: Option<u64>,
    /// When its last doze began, and how long it lasted.
    slept: Option<(u64, u64)>,
    main: Option<Main>,
    /// The anchor on the thread's stack, while it executes.
    anchor: AtomicPtr<Anchor>,
    /// The thread must not be preempted while this is not zero.
    shields: u32,
}

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls of `wake`, except those that end a park of the watcher.
    pub(crate) wakes: u64,
    /// Parks that ended, by a wake or by their deadline, after the thread had slept. Excludes the
    /// watcher.
    pub(crate) wake_ups: u64,
    /// The same for the watcher.
    pub(crate) looks: u64,
    /// Threads that the engine spawned.
    pub(crate) spawns: u64,
}

impl Counts {
    /// The counters without the watcher's, which may check the CPUs at any time.
    pub(crate) fn without_scans(self) -> Counts {
        Counts { looks: 0, ..self }
    }
}

/// The next step of the simulation.
pub(crate) enum Next {
    /// Execute this thread until it pauses.
    Run(ThreadId),
    /// Every thread has ended.
    Done,
    /// No thread can run, and no event will change that.
    Stuck,
}

/// The machine; see the module.
pub(crate) struct Machine {
    pub(crate) now: u64,
    pub(crate) chance: Chance,
    pub(crate) chaos: Chaos,
    pub(crate) counts: Counts,
    pub(crate) current: Option<ThreadId>,
    /// Checks that no item waits for too long, if present.
    pub(crate) oracle: Option<Box<Oracle>>,
    online: CpuSet,
    /// The thread that holds each CPU.
    cpus: Vec<Option<ThreadId>>,
    threads: Vec<Thread>,
    ready: VecDeque<ThreadId>,
    /// Time, order of creation, thread, and the pause that the event ends.
    events: BinaryHeap<Reverse<(u64, u64, ThreadId, u64)>>,
    events_made: u64,
    /// Dispatches since the clock advanced.
    dispatches_now: u64,
    dispatches: u64,
    /// The thread that waits for any of these threads to go to sleep or to wake up.
    observer: Option<(ThreadId, Vec<ThreadId>)>,
}

impl Machine {
    pub(crate) fn new(online: CpuSet, chaos: Chaos, seed: u64) -> Machine {
        let cpus = online.last().map_or(0, |last| last as usize + 1);
        Machine {
            now: 0,
            chance: Chance::new(seed),
            chaos,
            counts: Counts::default(),
            current: None,
            oracle: None,
            online,
            cpus: vec![None; cpus],
            threads: Vec::new(),
            ready: VecDeque::new(),
            events: BinaryHeap::new(),
            events_made: 0,
            dispatches_now: 0,
            dispatches: 0,
            observer: None,
        }
    }

    /// A new thread, ready to run. An empty set means all CPUs.
    pub(crate) fn add_thread(&mut self, name: &str, cpus: &CpuSet, main: Main) -> ThreadId {
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
            burns_since: 0,
            burns_until: 0,
            is_sliced: false,
            reported_cpu: cpu,
            told: CpuSet::new(),
            waits: 0,
            asleep_since: None,
            slept: None,
            main: Some(main),
            anchor: AtomicPtr::new(std::ptr::null_mut()),
            shields: 0,
        });
        let id = self.threads.len() - 1;
        self.ready.push_back(id);
        id
    }

    /// As `add_thread`, for a thread that the engine spawns: it starts after the machine's latency.
    pub(crate) fn spawn_thread(&mut self, name: &str, cpus: &CpuSet, main: Main) -> ThreadId {
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
    pub(crate) fn take_main(&mut self, id: ThreadId) -> Option<Main> {
        self.threads[id].main.take()
    }

    pub(crate) fn set_anchor(&mut self, id: ThreadId, anchor: *const Anchor) {
        self.threads[id].anchor.store(anchor.cast_mut(), Ordering::Relaxed);
    }

    fn current_thread(&self) -> &Thread {
        let current = self.current.expect("called from outside of the simulation");
        &self.threads[current]
    }

    /// The CPU time that a thread has used; instructions take none.
    pub(crate) fn cpu_time(&self, id: ThreadId) -> Option<u64> {
        let thread = self.threads.get(id)?;
        if thread.doing != Doing::Burning {
            return Some(thread.burnt);
        }
        // `burnt` already includes the whole burn in progress.
        Some(thread.burnt - (thread.burns_until - self.now))
    }

    /// Threads that have not ended.
    pub(crate) fn threads(&self) -> usize {
        self.threads.iter().filter(|thread| thread.doing != Doing::Gone).count()
    }

    /// The anchor of the executing thread.
    pub(crate) fn anchor(&self) -> *const Anchor {
        self.current_thread().anchor.load(Ordering::Relaxed)
    }

    pub(crate) fn current_cpu(&self) -> u32 {
        self.current_thread().cpu
    }

    /// How often the executing thread has parked or dozed.
    pub(crate) fn waits(&self) -> u64 {
        self.current_thread().waits
    }

    /// Returns the CPU of the executing thread to the engine, and records it.
    pub(crate) fn report_cpu(&mut self) -> u32 {
        let current = self.current.expect("called from outside of the simulation");
        let thread = &mut self.threads[current];
        thread.reported_cpu = thread.cpu;
        thread.told.insert(thread.cpu);
        thread.cpu
    }

    /// The executing thread begins a call. `has_reported_several_cpus` then says whether the engine was told
    /// more than one CPU during it.
    pub(crate) fn begin_cpu_reports(&mut self) {
        let current = self.current.expect("called from outside of the simulation");
        self.threads[current].told = CpuSet::new();
    }

    /// Whether the engine was told different CPUs of this thread since then.
    pub(crate) fn has_reported_several_cpus(&self, id: ThreadId) -> bool {
        self.threads[id].told.len() > 1
    }

    /// The CPU that the engine was told last on this thread.
    pub(crate) fn reported_cpu(&self, id: ThreadId) -> u32 {
        self.threads[id].reported_cpu
    }

    /// The thread's name.
    pub(crate) fn name_of(&self, id: ThreadId) -> &str {
        &self.threads[id].name
    }

    /// Adds to the shields of the executing thread.
    pub(crate) fn shield(&mut self, change: i32) {
        let current = self.current.expect("called from outside of the simulation");
        let shields = &mut self.threads[current].shields;
        *shields = shields.checked_add_signed(change).expect("as many ends as begins");
    }

    pub(crate) fn is_shielded(&self) -> bool {
        self.current_thread().shields > 0
    }

    /// The executing thread pauses: its new state, its CPU time, and until when.
    pub(crate) fn pause(&mut self, doing: Doing, burn: u64, until: Option<u64>) {
        let id = self.current.take().expect("called from outside of the simulation");
        let thread = &mut self.threads[id];
        thread.doing = doing;
        thread.burn = burn;
        thread.pause += 1;
        thread.waits += u64::from(matches!(doing, Doing::Dozing | Doing::Parked));
        self.cpus[thread.cpu as usize] = None;
        if doing == Doing::Dozing {
            thread.asleep_since = Some(self.now);
        }
        if let Some(until) = until {
            self.add_event(until, id);
        }
        match doing {
            Doing::Ready => self.ready.push_back(id),
            Doing::Dozing => self.notify_observer(id),
            _ => {}
        }
    }

    /// The executing thread parks until one of these goes to sleep or wakes up, or until a time.
    pub(crate) fn observe(&mut self, threads: Vec<ThreadId>) {
        let current = self.current.expect("called from outside of the simulation");
        self.observer = Some((current, threads));
    }

    /// The observer is awake.
    pub(crate) fn observe_no_more(&mut self) {
        self.observer = None;
    }

    fn notify_observer(&mut self, id: ThreadId) {
        if let Some((observer, threads)) = &self.observer
            && threads.contains(&id)
        {
            self.unpark(*observer);
        }
    }

    /// Since when a thread sleeps, if it does and is not parked by the engine; and its last
    /// finished sleep.
    pub(crate) fn sleep_of(&self, id: ThreadId) -> (Option<u64>, Option<(u64, u64)>) {
        let thread = &self.threads[id];
        (thread.asleep_since, thread.slept)
    }

    /// Whether a thread has ended.
    pub(crate) fn is_gone(&self, id: ThreadId) -> bool {
        self.threads[id].doing == Doing::Gone
    }

    /// Whether a thread is parked.
    pub(crate) fn is_parked(&self, id: ThreadId) -> bool {
        self.threads[id].doing == Doing::Parked
    }

    /// The executing thread has ended.
    pub(crate) fn end_current(&mut self) {
        let id = self.current.take().expect("a thread ended");
        self.threads[id].doing = Doing::Gone;
        self.cpus[self.threads[id].cpu as usize] = None;
    }

    /// Restricts a thread to these CPUs. A thread that burns elsewhere continues there once a CPU
    /// is free.
    pub(crate) fn place(&mut self, id: ThreadId, cpus: &CpuSet) {
        let thread = &mut self.threads[id];
        assert!(
            thread.doing != Doing::Gone,
            "thread {id} {:?} is moved, and has ended",
            thread.name
        );
        thread.cpus = cpus.and(&self.online);
        assert!(!thread.cpus.is_empty(), "a thread needs a CPU that is online");
        if thread.doing == Doing::Burning && !thread.cpus.contains(thread.cpu) {
            self.evict(id);
        }
    }

    /// Takes the CPU from a burning thread, which continues once a CPU is free.
    fn evict(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id];
        self.cpus[thread.cpu as usize] = None;
        thread.doing = Doing::Ready;
        // The end event of the interrupted burn is void.
        thread.pause += 1;
        thread.burn = thread.burns_until - self.now;
        thread.burnt -= thread.burn;
        self.ready.push_back(id);
    }

    /// Whether this is the engine's watcher.
    pub(crate) fn is_watch(&self, id: ThreadId) -> bool {
        self.threads[id].name == "uw/watch"
    }

    /// Whether the executing thread is one of the engine's.
    pub(crate) fn is_worker(&self) -> bool {
        self.current_thread().name.starts_with("uw/")
    }

    /// Ends a thread's park. False if it is not parked.
    pub(crate) fn unpark(&mut self, id: ThreadId) -> bool {
        if self.threads[id].doing != Doing::Parked {
            return false;
        }
        if self.is_watch(id) {
            self.counts.looks += 1;
        } else {
            self.counts.wake_ups += 1;
        }
        if self.chaos.wake_ns > 0 {
            self.threads[id].doing = Doing::Starting;
            // The deadline event of the park is void.
            self.threads[id].pause += 1;
            self.add_event(self.now + self.chaos.wake_ns, id);
        } else {
            self.threads[id].doing = Doing::Ready;
            self.ready.push_back(id);
        }
        true
    }

    fn add_event(&mut self, at: u64, id: ThreadId) {
        self.events_made += 1;
        self.events.push(Reverse((at, self.events_made, id, self.threads[id].pause)));
    }

    /// The next thread to execute. Advances the clock when no thread can.
    pub(crate) fn dispatch(&mut self) -> Next {
        loop {
            while let Some((at, cpu)) = self.choose().or_else(|| self.choose_by_eviction()) {
                let id = self.ready.remove(at).expect("chosen from the list");
                self.count_dispatch();
                let thread = &mut self.threads[id];
                thread.cpu = cpu;
                self.cpus[cpu as usize] = Some(id);
                let burn = std::mem::take(&mut thread.burn);
                if burn == 0 {
                    thread.doing = Doing::Running;
                    self.current = Some(id);
                    return Next::Run(id);
                }
                thread.doing = Doing::Burning;
                thread.burnt += burn;
                thread.is_sliced = false;
                thread.burns_since = self.now;
                thread.burns_until = self.now + burn;
                self.add_event(self.now + burn, id);
            }
            if !self.advance() {
                let done = self.threads.iter().all(|thread| thread.doing == Doing::Gone);
                return if done { Next::Done } else { Next::Stuck };
            }
        }
    }

    fn count_dispatch(&mut self) {
        self.dispatches += 1;
        self.dispatches_now += 1;
        assert!(
            self.dispatches_now < DISPATCHES_AT_ONE_TIME_MAX,
            "time stands still: the threads only let each other go first"
        );
        assert!(self.dispatches < DISPATCHES_MAX, "no end: a thread polls for ever");
    }

    /// A ready thread, by its index in the list, and a free CPU for it.
    fn choose(&mut self) -> Option<(usize, u32)> {
        let cpus = &self.cpus;
        let free = |thread: &Thread| -> Vec<u32> {
            thread.cpus.iter().filter(|&cpu| cpus[cpu as usize].is_none()).collect()
        };
        let mut startable = self.ready.iter().enumerate().filter_map(|(at, &id)| {
            let thread = &self.threads[id];
            let free = free(thread);
            let first = if free.contains(&thread.cpu) { thread.cpu } else { *free.first()? };
            Some((at, first, free))
        });
        if !self.chaos.drawn_order {
            return startable.next().map(|(at, first, _)| (at, first));
        }
        let startable: Vec<_> = startable.collect();
        if startable.is_empty() {
            return None;
        }
        let (at, _, free) = self.chance.pick(&startable);
        Some((*at, *self.chance.pick(free)))
    }

    /// With time slices: a ready thread, and a CPU taken from a burning thread. A thread that has
    /// instructions to execute gets a CPU at once; a burning thread gets one after a slice.
    fn choose_by_eviction(&mut self) -> Option<(usize, u32)> {
        let slice = self.chaos.slice_ns;
        if slice == 0 {
            return None;
        }
        for at in 0..self.ready.len() {
            let thread = &self.threads[self.ready[at]];
            let burns = thread.burn > 0;
            let holders: Vec<ThreadId> =
                thread.cpus.iter().filter_map(|cpu| self.cpus[cpu as usize]).collect();
            for id in holders {
                let holder = &mut self.threads[id];
                let slice_ends = holder.burns_since + slice;
                if !burns || slice_ends <= self.now {
                    let cpu = holder.cpu;
                    self.evict(id);
                    return Some((at, cpu));
                }
                if !holder.is_sliced && slice_ends < holder.burns_until {
                    holder.is_sliced = true;
                    self.add_event(slice_ends, id);
                }
            }
        }
        None
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

    /// Shows the oracle the current state, which lasts until `until`.
    fn show_oracle(&mut self, until: u64) {
        if let Some(mut oracle) = self.oracle.take() {
            let disturbed = self.threads.iter().any(|thread| thread.doing == Doing::Preempted);
            oracle.pass(self.now, until, disturbed, |id| self.stance(id));
            self.oracle = Some(oracle);
        }
    }

    /// Jumps to the next event and handles all events of that instant.
    fn advance(&mut self) -> bool {
        let Some(at) = self.next_event() else { return false };
        assert!(at >= self.now, "an event in the past");
        if at > self.now {
            self.dispatches_now = 0;
            self.show_oracle(at);
        }
        self.now = at;
        while self.next_event() == Some(at) {
            let Some(Reverse((_, _, id, _))) = self.events.pop() else { break };
            match self.threads[id].doing {
                Doing::Burning if self.threads[id].burns_until > at => {
                    self.threads[id].is_sliced = false;
                }
                Doing::Burning => {
                    // The thread has the CPU already, so it continues before others get the CPU.
                    self.cpus[self.threads[id].cpu as usize] = None;
                    self.threads[id].doing = Doing::Ready;
                    self.ready.push_front(id);
                }
                Doing::Parked => {
                    self.unpark(id);
                }
                _ => {
                    self.threads[id].doing = Doing::Ready;
                    self.ready.push_back(id);
                    if let Some(since) = self.threads[id].asleep_since.take() {
                        self.threads[id].slept = Some((since, at - since));
                        self.notify_observer(id);
                    }
                }
            }
        }
        true
    }

    /// The time of the next event. Drops void events.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
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
    pub(crate) fn describe(&self) -> String {
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
