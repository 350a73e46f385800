//! Per-CPU data in children of a fork, in each of the modes: whatever other threads did at the
//! moment of the fork, the child can use all of it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::child::alone_each;
use crate::support::flag::SetOnDrop;
use crate::support::forked::in_child;
use crate::support::gate::Gate;
use crate::support::machine::cpus;
use crate::support::slow::times;
use crate::support::watchdog;
use uwork::percpu::{Bundle, Cache, Counter, LockError, PerCpu, PerCpuWork, mode};

const VARIABLE: &str = "UWORK_PWLOCKS";
const MODES: &[&str] = &["0", "1", "2"];

/// Threads that use everything while another one forks; one more thread reaches all CPUs.
const STORMERS: usize = 3;
const FORKS: u64 = times(40);
/// Objects that a thread of the storm has at a time: more than a magazine, so that it uses the
/// depot as well.
const OBJECTS: usize = 600;
/// More than moves between a magazine and the depot at once, and no less than a magazine holds.
const MAGAZINE: usize = 256;

/// The number of items that the sink received.
static SUNK: AtomicUsize = AtomicUsize::new(0);

struct Everything {
    cache: Cache<[u64; 8]>,
    bundle: Bundle<u64>,
    counter: Counter,
    /// Two numbers that are equal whenever the lock is free.
    pairs: PerCpu<(u64, u64)>,
    stop: AtomicBool,
}

/// How often a thread has done each counted operation.
#[derive(Default)]
struct Did {
    added: usize,
    locked: u64,
}

impl Everything {
    fn new() -> Everything {
        let sink =
            |items: std::vec::Drain<'_, u64>| _ = SUNK.fetch_add(items.len(), Ordering::Relaxed);
        Everything {
            cache: Cache::new("forked"),
            bundle: Bundle::new(32, sink),
            counter: Counter::new(),
            pairs: PerCpu::new(|_| (0, 0)),
            stop: AtomicBool::new(false),
        }
    }

    fn add(&self, did: &mut Did) {
        self.bundle.add(7);
        self.counter.add(1);
        did.added += 1;
    }

    fn lock(&self, did: &mut Did) {
        let mut pair = self.pairs.lock_local().expect("no panic and no recursion");
        pair.0 += 1;
        // Prevents the compiler from merging the two writes.
        std::hint::black_box(&mut pair.0);
        pair.1 += 1;
        drop(pair);
        did.locked += 1;
    }

    /// Allocates as many objects as this thread may have. All must be different.
    fn allocate(&self, mark: u64) {
        let objects: Vec<_> = (0..OBJECTS).map(|_| self.cache.alloc([mark; 8])).collect();
        let places: HashSet<_> = objects.iter().map(|object| &raw const **object).collect();
        assert_eq!(places.len(), OBJECTS);
        assert!(objects.iter().all(|object| **object == [mark; 8]));
    }

    fn storm(&self, number: usize, did: &mut Did) {
        while !self.stop.load(Ordering::Relaxed) {
            self.allocate(number as u64);
            for _ in 0..200 {
                self.add(did);
                self.lock(did);
            }
        }
    }

    fn reach_all(&self) {
        self.cache.shrink().expect("no lock is held");
        self.bundle.drain_all().expect("no lock is held");
        self.pairs.for_each(|_, pair| assert_eq!(pair.0, pair.1)).expect("no lock is held");
    }

    /// Uses everything in a child that was forked in the storm. Only the holdings of the lost
    /// threads are missing.
    fn use_in_child(&self) {
        let cpus = self.pairs.cpus();
        let bundled: usize = cpus.clone().map(|cpu| self.bundle.len_on(cpu)).sum();
        let (sunk, sum) = (SUNK.load(Ordering::Relaxed), self.counter.sum());
        let out = self.cache.stats().out;
        // The objects of each thread, those in transfer, and the magazines in use: two threads for
        // a CPU, because one may be about to take by force what the other holds.
        let most = (STORMERS + 1) * (OBJECTS + MAGAZINE + MAGAZINE) + cpus.len() * MAGAZINE;
        assert!(out <= most, "{out} objects are lost");
        self.mend_pairs();

        let dids: Vec<Did> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|number| {
                    scope.spawn(move || {
                        let mut did = Did::default();
                        for _ in 0..500 {
                            self.add(&mut did);
                            self.lock(&mut did);
                        }
                        self.allocate(number);
                        did
                    })
                })
                .collect();
            self.reach_all();
            threads.into_iter().map(|thread| thread.join().expect("it returns")).collect()
        });
        self.reach_all();
        let added: usize = dids.iter().map(|did| did.added).sum();
        assert_eq!(self.counter.sum(), sum + added as i64);
        assert_eq!(SUNK.load(Ordering::Relaxed), sunk + bundled + added);
        let stats = self.cache.stats();
        assert_eq!((stats.out, stats.in_magazines), (out, 0));
    }

    /// Parts that a lost thread held are poisoned, and all others are consistent.
    fn mend_pairs(&self) {
        let mut poisoned = 0;
        for cpu in self.pairs.cpus() {
            match self.pairs.lock(cpu) {
                Ok(pair) => assert_eq!(pair.0, pair.1),
                Err(LockError::Poisoned(mut pair)) => {
                    *pair = (0, 0);
                    poisoned += 1;
                }
                Err(error) => panic!("CPU {cpu}: {error}"),
            }
            self.pairs.clear_poison(cpu).expect("not held");
        }
        assert!(poisoned <= STORMERS + 1, "{poisoned} parts of {STORMERS} threads");
    }
}

#[test]
fn a_child_forked_in_a_storm_can_use_all_per_cpu_data() {
    let body = |wanted: &str| {
        let _watchdog = watchdog();
        assert_eq!((mode() as u8).to_string(), wanted);
        let all = Everything::new();
        let dids: Vec<Did> = thread::scope(|scope| {
            let all = &all;
            let threads: Vec<_> = (0..STORMERS)
                .map(|number| {
                    scope.spawn(move || {
                        let mut did = Did::default();
                        all.storm(number, &mut did);
                        did
                    })
                })
                .collect();
            scope.spawn(move || {
                while !all.stop.load(Ordering::Relaxed) {
                    all.reach_all();
                }
            });
            let stop = SetOnDrop(&all.stop);
            for _ in 0..FORKS {
                in_child(|| all.use_in_child());
            }
            drop(stop);
            threads.into_iter().map(|thread| thread.join().expect("it returns")).collect()
        });
        // The parent is unaffected.
        all.reach_all();
        let added: usize = dids.iter().map(|did| did.added).sum();
        assert_eq!((all.counter.sum(), SUNK.load(Ordering::Relaxed)), (added as i64, added));
        assert_eq!(all.cache.stats().out, 0);
        all.cache.close().expect("all objects are back");
        let locked: u64 = all.pairs.into_inner().iter().map(|pair| pair.0).sum();
        assert_eq!(locked, dids.iter().map(|did| did.locked).sum::<u64>());
    };
    alone_each(
        "a_child_forked_in_a_storm_can_use_all_per_cpu_data",
        VARIABLE,
        MODES,
        VARIABLE,
        body,
    );
}

#[test]
fn a_lost_threads_lock_is_free_and_poisoned_the_callers_lock_is_kept() {
    let body = |_: &str| {
        let _watchdog = watchdog();
        let (theirs, mine) = (PerCpu::new(|_| 0), PerCpu::new(|_| 0));
        let (is_held, over) = (Gate::new(), Gate::new());
        let held_cpu = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut guard = theirs.lock_local().expect("free");
                *guard = 1;
                held_cpu.store(guard.cpu() as usize, Ordering::Relaxed);
                is_held.open();
                over.wait();
            });
            is_held.wait();
            let lost = held_cpu.load(Ordering::Relaxed) as u32;
            let guard = mine.lock_local().expect("free");
            in_child(|| {
                for cpu in theirs.cpus() {
                    let part = theirs.lock(cpu);
                    assert_eq!(
                        matches!(part, Err(LockError::Poisoned(_))),
                        cpu == lost,
                        "{part:?}"
                    );
                    assert!(cpu == lost || part.is_ok(), "{part:?}");
                }
                theirs.clear_poison(lost).expect("free");
                assert_eq!(*theirs.lock(lost).expect("mended"), 1);
                let own = mine.lock(guard.cpu());
                assert!(matches!(own, Err(LockError::Failed(_))), "{own:?}");
                // A thread that reuses the stack of the lost one is not mistaken for it.
                thread::scope(|scope| {
                    scope.spawn(|| drop(theirs.lock(lost).expect("free")));
                });
            });
            drop(guard);
            over.open();
        });
        for cpu in mine.cpus() {
            drop(mine.lock(cpu).expect("neither held nor poisoned"));
            drop(theirs.lock(cpu).expect("neither held nor poisoned"));
        }
    };
    let name = "a_lost_threads_lock_is_free_and_poisoned_the_callers_lock_is_kept";
    alone_each(name, VARIABLE, MODES, VARIABLE, body);
}

/// The fork may lose a thread that creates the first per-CPU data of the process, and with it
/// chooses the mode.
#[test]
fn a_fork_during_the_choice_of_the_mode() {
    let body = |_: &str| {
        let _watchdog = watchdog();
        uwork::system::dfl();
        let cpu = cpus()[0];
        let chosen = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _chosen = SetOnDrop(&chosen);
                mode();
                PerCpu::new(|_| 0).lock(0).map(drop).expect("free");
                uwork::work_on_cpu(cpu, || ()).expect("an allowed CPU");
            });
            let mut forks = 0;
            while !chosen.load(Ordering::Relaxed) || forks < 3 {
                in_child(|| {
                    PerCpu::new(|_| 0).lock(0).map(drop).expect("free");
                    uwork::work_on_cpu(cpu, || ()).expect("an allowed CPU");
                });
                forks += 1;
            }
        });
    };
    alone_each("a_fork_during_the_choice_of_the_mode", VARIABLE, MODES, VARIABLE, body);
}

/// In modes 1 and 2 the function runs in the call itself.
#[test]
fn a_flush_in_a_child_does_not_wait_for_a_lost_threads_function() {
    let body = |_: &str| {
        let _watchdog = watchdog();
        let queue = uwork::Queue::builder("percpu").per_cpu().build().expect("a queue");
        let (is_in, go, cpu) = (Gate::new(), Gate::new(), cpus()[0]);
        let work = PerCpuWork::new(cpu, {
            let (is_in, go) = (is_in.clone(), go.clone());
            move |_| {
                is_in.open();
                go.wait_blocking();
            }
        });
        thread::scope(|scope| {
            scope.spawn(|| work.queue_on(cpu, &queue).expect("an allowed CPU"));
            is_in.wait();
            in_child(|| {
                // In mode 0 the item belongs to the parent's worker, and the pending item is lost.
                assert!(!work.flush());
            });
            go.open();
        });
        work.flush();
        let this = PerCpuWork::new(cpu, |_| {
            // The flush is for its own function, in which the child still is.
            in_child(|| ());
        });
        assert!(this.queue_on(cpu, &queue).expect("an allowed CPU"));
        this.flush();
    };
    let name = "a_flush_in_a_child_does_not_wait_for_a_lost_threads_function";
    alone_each(name, VARIABLE, MODES, VARIABLE, body);
}
