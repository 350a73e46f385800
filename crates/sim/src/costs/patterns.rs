//! Small programs that use shared lines, locks and wakes, to compare the costs with a real machine.
//!
//! A pattern is written once and runs on any [`Ground`]: on the simulated machine, where it pays
//! what the engine pays, and on the CPUs of this one. All threads of a pattern are pinned to CPUs
//! of their own and begin together.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uwork_engine::host::Host;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::Topology;

use super::bill::{Bill, Use};
use super::load::settled_time;
use super::{Cost, Costs, Recording};
use crate::chance::Chaos;
use crate::host::{Event, VirtualHost};
use crate::machine::Machine;
use crate::setup::{MS, SEC};
use crate::simulation;

/// The run is stopped at this virtual time: a pattern takes milliseconds.
const BOUND_NS: u64 = 10 * SEC;
/// The limit on dispatches: a polling thread needs one for each look.
const DISPATCHES_MAX: u64 = 100_000_000;
/// All simulated threads begin at this virtual time.
const START_NS: u64 = MS;
/// How long a thread gets to fall asleep.
const ASLEEP_AFTER_NS: u64 = 300_000;

/// A word in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Word(pub AtomicU64);

impl Word {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Where a pattern runs.
pub trait Ground {
    /// A lock whose waiters spin for a time, then sleep.
    type Lock: Default + Send + Sync;
    /// What one thread sleeps on.
    type Bed: Default + Send + Sync;

    /// Reads a word.
    fn load(&self, word: &Word) -> u64;
    /// Writes a word with a plain store.
    fn store(&self, word: &Word, value: u64);
    /// Adds one with a locked instruction.
    fn add(&self, word: &Word);
    /// Replaces a value, if it is there.
    fn exchange(&self, word: &Word, from: u64, to: u64) -> bool;
    /// Increments the word under the lock.
    fn add_locked(&self, lock: &Self::Lock, word: &Word);
    /// A polling thread has seen no change.
    fn relax(&self);
    /// Sleeps until a wake; may return early.
    fn park(&self, bed: &Self::Bed);
    /// Wakes the thread that sleeps here.
    fn wake(&self, bed: &Self::Bed);
    /// Sleeps for a time.
    fn rest(&self, ns: u64);
    /// The time, in nanoseconds.
    fn now(&self) -> u64;
}

/// What the threads of a pattern share.
#[derive(Debug)]
pub struct Shared<G: Ground> {
    word: Word,
    guarded: Word,
    answers: Vec<Word>,
    lock: G::Lock,
    bed: G::Bed,
}

impl<G: Ground> Shared<G> {
    /// For so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Shared<G> {
        Shared {
            word: Word::default(),
            guarded: Word::default(),
            answers: (0..threads).map(|_| Word::default()).collect(),
            lock: G::Lock::default(),
            bed: G::Bed::default(),
        }
    }
}

/// A pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One thread adds to its own word.
    AddAlone,
    /// All threads add to one word.
    Add,
    /// All threads add to one word with compare and exchange.
    Exchange,
    /// One thread stores to a word, the other polls it.
    Watched,
    /// Two threads answer each other through one word.
    Flag,
    /// One thread stores to a word, all others read it and answer on words of their own.
    Broadcast,
    /// All threads increment a word under a spinlock.
    Spinlock,
    /// All threads increment a word under a lock whose waiters sleep.
    Lock,
    /// One thread wakes another, which sleeps on an idle CPU.
    Wake,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 9] = [
        Pattern::AddAlone,
        Pattern::Add,
        Pattern::Exchange,
        Pattern::Watched,
        Pattern::Flag,
        Pattern::Broadcast,
        Pattern::Spinlock,
        Pattern::Lock,
        Pattern::Wake,
    ];

    /// What an operation is.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Pattern::AddAlone => "an addition to an own word",
            Pattern::Add => "an addition to a shared word",
            Pattern::Exchange => "an addition by compare and exchange",
            Pattern::Watched => "a store to a word that another polls",
            Pattern::Flag => "a flag, from store to sight",
            Pattern::Broadcast => "a store, until all others answer",
            Pattern::Spinlock => "a section under a spinlock",
            Pattern::Lock => "a section under a sleeping lock",
            Pattern::Wake => "a wake, until the thread runs",
        }
    }

    /// How many threads it has on so many CPUs. `None`: they do not suffice.
    #[must_use]
    pub fn threads(self, cpus: usize) -> Option<usize> {
        let (least, most) = match self {
            Pattern::AddAlone => (1, 1),
            Pattern::Watched | Pattern::Flag | Pattern::Wake => (2, 2),
            _ => (2, usize::MAX),
        };
        (cpus >= least).then_some(cpus.min(most))
    }

    /// How many operations it makes, if each thread makes so many rounds.
    #[must_use]
    pub fn operations(self, threads: usize, rounds: u64) -> u64 {
        match self {
            Pattern::AddAlone | Pattern::Watched | Pattern::Broadcast | Pattern::Wake => rounds,
            Pattern::Flag => 2 * rounds,
            _ => threads as u64 * rounds,
        }
    }

    /// The part of the thread of this number. Returns the time that counts; the pattern's time is
    /// the longest.
    pub fn play<G: Ground>(self, g: &G, shared: &Shared<G>, at: usize, rounds: u64) -> u64 {
        let Shared { word, guarded, answers, lock, bed } = shared;
        let poll = |word: &Word, value: u64| {
            while g.load(word) < value {
                g.relax();
            }
        };
        let (began, first) = (g.now(), at == 0);
        match self {
            Pattern::AddAlone | Pattern::Add => (0..rounds).for_each(|_| g.add(word)),
            Pattern::Exchange => (0..rounds).for_each(|_| {
                let mut value = g.load(word);
                while !g.exchange(word, value, value + 1) {
                    value = g.load(word);
                }
            }),
            Pattern::Watched if first => (1..=rounds).for_each(|value| g.store(word, value)),
            // The writer's time counts.
            Pattern::Watched => {
                poll(word, rounds);
                return 0;
            }
            Pattern::Flag => (0..rounds).for_each(|round| {
                if first {
                    g.store(word, 2 * round + 1);
                    poll(word, 2 * round + 2);
                } else {
                    poll(word, 2 * round + 1);
                    g.store(word, 2 * round + 2);
                }
            }),
            Pattern::Broadcast => (1..=rounds).for_each(|round| {
                if first {
                    g.store(word, round);
                    answers[1..].iter().for_each(|answer| poll(answer, round));
                } else {
                    poll(word, round);
                    g.store(&answers[at], round);
                }
            }),
            Pattern::Spinlock => (0..rounds).for_each(|_| {
                while !g.exchange(word, 0, 1) {
                    while g.load(word) != 0 {
                        g.relax();
                    }
                }
                g.store(guarded, g.load(guarded) + 1);
                g.store(word, 0);
            }),
            Pattern::Lock => (0..rounds).for_each(|_| g.add_locked(lock, guarded)),
            Pattern::Wake if first => {
                let wake = |round| {
                    g.rest(ASLEEP_AFTER_NS);
                    let began = g.now();
                    g.store(word, 2 * round + 1);
                    g.wake(bed);
                    poll(word, 2 * round + 2);
                    g.now() - began
                };
                return (0..rounds).map(wake).sum();
            }
            Pattern::Wake => {
                for round in 0..rounds {
                    while g.load(word) < 2 * round + 1 {
                        g.park(bed);
                    }
                    g.store(word, 2 * round + 2);
                }
                return 0;
            }
        }
        g.now() - began
    }
}

impl Ground for VirtualHost {
    type Lock = Word;
    type Bed = Event;

    fn load(&self, word: &Word) -> u64 {
        self.use_line(word.address(), Use::Read, Location::caller());
        word.0.load(Ordering::Relaxed)
    }

    fn store(&self, word: &Word, value: u64) {
        self.use_line(word.address(), Use::Write, Location::caller());
        word.0.store(value, Ordering::Relaxed);
    }

    fn add(&self, word: &Word) {
        self.use_line(word.address(), Use::Update, Location::caller());
        word.0.fetch_add(1, Ordering::Relaxed);
    }

    fn exchange(&self, word: &Word, from: u64, to: u64) -> bool {
        self.use_line(word.address(), Use::Update, Location::caller());
        word.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn add_locked(&self, lock: &Word, word: &Word) {
        self.take_lock(lock.address(), self.figure(Cost::Spin), Location::caller());
        self.store(word, self.load(word) + 1);
        self.release_lock(lock.address(), Use::Update, Location::caller());
    }

    /// Other threads run only while this one is on the clock.
    fn relax(&self) {
        self.charge(Cost::Pause);
        self.settle();
    }

    fn park(&self, bed: &Event) {
        let _ = Host::park(self, bed, None);
    }

    fn wake(&self, bed: &Event) {
        // SAFETY: borrowed from what the threads of the pattern share.
        unsafe { Host::wake(self, bed) };
    }

    fn rest(&self, ns: u64) {
        self.doze(ns);
    }

    fn now(&self) -> u64 {
        settled_time(self)
    }
}

/// The nanoseconds of an operation on the first of these CPUs of a simulated machine.
///
/// # Errors
/// There are too few CPUs, or the run did not end.
pub fn simulate(
    machine: &Topology,
    costs: &Costs,
    pattern: Pattern,
    cpus: &[u32],
    rounds: u64,
) -> Result<f64, String> {
    let threads = pattern.threads(cpus.len()).ok_or("the pattern needs two CPUs")?;
    let mut computer = Machine::new(machine.online().clone(), Chaos::STEADY, 0);
    (computer.bound_ns, computer.dispatches_max) = (BOUND_NS, DISPATCHES_MAX);
    let host = VirtualHost::new(computer);
    let shared = Arc::new(Shared::<VirtualHost>::new(threads));
    let longest = Arc::new(Mutex::new(0));
    for (at, &cpu) in cpus[..threads].iter().enumerate() {
        let (host_of, shared, longest) = (host.clone(), shared.clone(), longest.clone());
        let _thread = host.start(&CpuSet::single(cpu), move || {
            host_of.doze(START_NS.saturating_sub(settled_time(&host_of)));
            let ns = pattern.play(&host_of, &shared, at, rounds);
            let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
            *longest = ns.max(*longest);
        });
    }
    let recording = Recording::start(&host, Bill::new(machine, costs.clone()));
    let driven = simulation::drive(&host, "a pattern");
    drop(recording);
    driven.map_err(|failure| format!("the pattern '{}' failed: {failure:?}", pattern.about()))?;
    let ns = *longest.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(ns as f64 / pattern.operations(threads, rounds) as f64)
}
