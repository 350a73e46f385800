//! Per-CPU data of every kind at once, in each mode. Threads migrate between CPUs all the time,
//! access each other's parts, and end with exact counts.
//!
//! The operations of each thread follow from a seed; `UWORK_STRESS_SEED` sets it.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::assert_no_rescues;
use crate::support::child::alone_each;
use crate::support::machine::{cpus, pin};
use crate::support::moved::{fewer, run_moved};
use crate::support::percpu::{MODES, Pair, VARIABLE, add_one};
use crate::support::random::Random;
use crate::support::{queue, watchdog};
use uwork::percpu::{Bundle, Cache, Counter, LockError, PerCpu, PerCpuWork, mode};

const THREADS: usize = 6;
/// Fewer in a build that is not optimized: `ci/stress.sh` builds one that is.
const STEPS: u64 = if cfg!(debug_assertions) { 50_000 } else { 200_000 };
/// Objects that a thread has at a time, at most: more than a magazine.
const OBJECTS: usize = 400;

/// The totals of all threads.
#[derive(Default)]
struct Did {
    locked: AtomicU64,
    added: AtomicU64,
    counted: AtomicU64,
    called: AtomicU64,
}

fn count(of: &AtomicU64, by: u64) {
    of.fetch_add(by, Ordering::Relaxed);
}

struct World {
    cpus: Vec<u32>,
    /// The CPUs that the threads use: fewer than there are threads.
    tight: Vec<u32>,
    pairs: Arc<PerCpu<Pair>>,
    counter: Counter,
    bundle: Bundle<u64>,
    sunk: Arc<AtomicU64>,
    cache: Cache<[u64; 6]>,
    /// Objects in transfer from one thread to another, by their addresses.
    sent: Mutex<Vec<usize>>,
    works: Vec<PerCpuWork>,
    queue: uwork::Queue,
    runs: Arc<AtomicU64>,
    did: Did,
}

impl World {
    fn new() -> World {
        let (sunk, runs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let pairs = Arc::new(PerCpu::new(|_| (0, 0)));
        let sink = {
            let sunk = sunk.clone();
            move |items: std::vec::Drain<'_, u64>| count(&sunk, items.sum())
        };
        let work = |&cpu: &u32| {
            let (pairs, runs) = (pairs.clone(), runs.clone());
            PerCpuWork::new(cpu, move |cpu| {
                add_one(&mut pairs.lock(cpu).expect("no panic and no recursion"));
                count(&runs, 1);
            })
        };
        World {
            works: cpus().iter().map(work).collect(),
            tight: fewer(&cpus(), THREADS),
            cpus: cpus(),
            pairs,
            counter: Counter::new(),
            bundle: Bundle::new(31, sink),
            sunk,
            cache: Cache::new("stressed"),
            sent: Mutex::default(),
            queue: queue("percpu").per_cpu().build().expect("a queue"),
            runs,
            did: Did::default(),
        }
    }

    fn cpu(&self, random: &mut Random) -> u32 {
        *random.pick(&self.cpus)
    }

    fn lock(&self, random: &mut Random) {
        let cpu = self.cpu(random);
        match random.below(20) {
            0 => add_one(&mut self.pairs.lock(cpu).expect("no panic and no recursion")),
            1 => self.pairs.with(cpu, add_one).expect("no panic and no recursion"),
            2 => match self.pairs.try_lock(cpu) {
                Ok(mut pair) => add_one(&mut pair),
                Err(LockError::Busy) => return,
                Err(error) => panic!("{error}"),
            },
            3..8 => match self.pairs.try_lock_local() {
                Ok(mut pair) => add_one(&mut pair),
                Err(LockError::Busy) => return,
                Err(error) => panic!("{error}"),
            },
            _ => add_one(&mut self.pairs.lock_local().expect("no panic and no recursion")),
        }
        count(&self.did.locked, 1);
    }

    /// Allocates an object, or frees one of its own or of another thread's.
    fn exchange(&self, random: &mut Random, own: &mut Vec<NonNull<[u64; 6]>>) {
        if own.len() < OBJECTS && random.below(2) == 0 {
            let object = self.cache.alloc_raw();
            // SAFETY: this thread owns the object.
            unsafe { object.write([object.addr().get() as u64; 6]) };
            return own.push(object);
        }
        let Some(object) = own.pop() else { return };
        if random.below(4) > 0 {
            return self.free(object);
        }
        let mut sent = self.sent.lock().expect("no panic under it");
        sent.push(object.as_ptr().expose_provenance());
        let number = random.below(sent.len() as u64) as usize;
        let other = sent.swap_remove(number);
        // Some objects stay in the list for later.
        if sent.len() < OBJECTS && random.below(2) == 0 {
            return sent.push(other);
        }
        drop(sent);
        self.free_sent(other);
    }

    fn free_sent(&self, address: usize) {
        let object = std::ptr::with_exposed_provenance_mut(address);
        self.free(NonNull::new(object).expect("an object"));
    }

    fn free(&self, object: NonNull<[u64; 6]>) {
        // SAFETY: allocated, and owned by this thread.
        assert_eq!(unsafe { object.read() }, [object.addr().get() as u64; 6]);
        // SAFETY: as above, once.
        unsafe { self.cache.free_raw(object) };
    }

    fn reach_all(&self, random: &mut Random) {
        match random.below(5) {
            0 => drop(self.cache.flush_all().expect("no recursion")),
            1 => drop(self.cache.shrink().expect("no recursion")),
            2 | 3 => drop(self.bundle.drain_all().expect("not in the sink")),
            _ => {
                self.pairs.for_each(|_, pair| add_one(pair)).expect("no recursion");
                count(&self.did.locked, self.pairs.cpus().len() as u64);
            }
        }
    }

    fn call(&self, random: &mut Random) {
        let work = random.pick(&self.works);
        if work.queue_on(work.cpu(), &self.queue).expect("the CPU is there") {
            count(&self.did.called, 1);
        }
        if random.below(2) == 0 {
            work.flush();
        }
    }

    fn run(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut objects = Vec::new();
        for step in 0..STEPS {
            match random.below(1000) {
                0..4 => self.reach_all(&mut random),
                4..10 => self.call(&mut random),
                10..35 => pin(*random.pick(&self.tight)),
                35..250 => self.lock(&mut random),
                250..450 => {
                    self.counter.add(3);
                    count(&self.did.counted, 3);
                }
                450..700 => {
                    self.bundle.add(step);
                    count(&self.did.added, step);
                }
                _ => self.exchange(&mut random, &mut objects),
            }
        }
        let different: HashSet<_> = objects.iter().collect();
        assert_eq!(different.len(), objects.len());
        objects.into_iter().for_each(|object| self.free(object));
    }

    fn check(self) {
        self.works.iter().for_each(|work| _ = work.flush());
        self.bundle.drain_all().expect("not in the sink");
        let sent = self.sent.lock().expect("no panic under it").split_off(0);
        sent.into_iter().for_each(|address| self.free_sent(address));
        let Did { locked, added, counted, called } = self.did;
        assert_eq!(self.counter.sum() as u64, counted.into_inner());
        assert_eq!(self.sunk.load(Ordering::Relaxed), added.into_inner());
        let runs = self.runs.load(Ordering::Relaxed);
        assert_eq!(runs, called.into_inner());
        assert_eq!(self.cache.stats().out, 0);
        self.cache.close().expect("all objects are back");
        drop(self.works);
        let pairs = Arc::into_inner(self.pairs).expect("no item has it").into_inner();
        assert!(pairs.iter().all(|pair| pair.0 == pair.1));
        assert_eq!(pairs.iter().map(|pair| pair.0).sum::<u64>(), locked.into_inner() + runs);
    }
}

#[test]
fn everything_per_cpu_is_exact_in_a_storm() {
    let seed: u64 = match std::env::var("UWORK_STRESS_SEED") {
        Ok(seed) => seed.parse().expect("UWORK_STRESS_SEED is a number"),
        Err(_) => 1,
    };
    let body = |_: &str| {
        let _watchdog = watchdog();
        let world = World::new();
        run_moved(THREADS, &world.tight, |number| world.run(seed * 1000 + number as u64));
        eprintln!("mode {}, seed {seed}", mode());
        world.check();
        assert_no_rescues();
    };
    alone_each("everything_per_cpu_is_exact_in_a_storm", VARIABLE, MODES, VARIABLE, body);
}
