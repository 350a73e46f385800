//! CPUs go offline and come back while threads use per-CPU data, in each mode: every count is
//! exact, and the part of an offline CPU can still be accessed.

mod support;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use support::child::{alone_each, alone_with};
use support::machine::{on_cpu, try_pin};
use support::offline::{Offline, bring, removable};
use support::percpu::{MODES, Pair, VARIABLE, add_one};
use support::slow::times;
use support::{queue, until, watchdog};
use uwork::percpu::{Bundle, Cache, Counter, LockError, Mode, PerCpu, PerCpuWork, mode};
use uwork::topology::Machine;
use uwork::{ErrorKind, Queue};

/// Threads that use everything while CPUs go offline and come back.
const USERS: u64 = 6;
/// How often CPUs go offline.
const ROUNDS: u64 = 8 * times(10);
/// Objects that a user has at a time: freed in the order of their allocation, often on another CPU.
const OBJECTS: usize = 300;

/// A test in each mode, with the CPUs that can be taken offline.
fn in_each_mode(test: &str, body: impl Fn(&[u32])) {
    // The parent serialises the children, so each is the only one to change CPUs.
    let Some((cpus, _turn)) = removable(test) else { return };
    alone_each(test, VARIABLE, MODES, VARIABLE, |wanted| {
        let _watchdog = watchdog();
        assert_eq!((mode() as u8).to_string(), wanted, "{}", uwork::percpu::reason());
        body(&cpus);
    });
}

fn bundle_into(sum: &Arc<AtomicU64>) -> Bundle<u64> {
    let sum = sum.clone();
    Bundle::new(15, move |items: std::vec::Drain<'_, u64>| {
        sum.fetch_add(items.sum(), Ordering::Relaxed);
    })
}

/// Waits until the library has detected the change of CPUs. It checks only while items run, and a
/// refused call runs none.
fn until_noticed(cpu: u32, is_there: bool) {
    let noticed = || {
        uwork::on_each_cpu(|_| ()).expect("not from inside of one");
        let outcome = uwork::work_on_cpu(cpu, || ());
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), ErrorKind::BadCpu, "{error}");
        }
        outcome.is_ok() == is_there
    };
    let what = if is_there { "is back" } else { "is gone" };
    until(&format!("it is noticed that CPU {cpu} {what}"), noticed);
}

struct Everything {
    pairs: Arc<PerCpu<Pair>>,
    counter: Counter,
    cache: Cache<[u64; 8]>,
    bundle: Bundle<u64>,
    sunk: Arc<AtomicU64>,
    queue: Queue,
    /// One work for each CPU, which adds to its pair.
    works: Vec<PerCpuWork>,
    worked: Arc<AtomicU64>,
    over: AtomicBool,
}

/// The operations of a thread, which the final counts must match.
#[derive(Default)]
struct Did {
    pairs: u64,
    added: u64,
    works: u64,
    moves: u64,
    /// The counter's sum, as it was seen last.
    sum: i64,
}

impl Everything {
    fn new() -> Everything {
        let (sunk, worked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let pairs = Arc::new(PerCpu::new(|_| (0, 0)));
        let work = |cpu| {
            let (pairs, worked) = (pairs.clone(), worked.clone());
            PerCpuWork::new(cpu, move |cpu| {
                add_one(&mut pairs.lock(cpu).expect("no panic under it"));
                worked.fetch_add(1, Ordering::Relaxed);
            })
        };
        Everything {
            counter: Counter::new(),
            cache: Cache::new("offline"),
            bundle: bundle_into(&sunk),
            sunk,
            queue: queue("offline").per_cpu().build().unwrap(),
            works: pairs.cpus().map(work).collect(),
            worked,
            pairs,
            over: AtomicBool::new(false),
        }
    }

    /// The operations of a user, on the online CPUs. The system moves a user whose CPU goes
    /// offline.
    fn use_it(&self, cpus: &[u32], number: u64) -> Did {
        let mut did = Did::default();
        let mut objects = VecDeque::new();
        for round in number.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            if round % 37 == 0 {
                did.moves += u64::from(try_pin(cpus[(round / 37) as usize % cpus.len()]));
            }
            add_one(&mut self.pairs.lock_local().expect("no panic and no recursion"));
            did.pairs += 1;
            self.counter.add(1);
            self.bundle.add(1);
            did.added += 1;
            objects.push_back((round, self.cache.alloc([round; 8])));
            if objects.len() > OBJECTS {
                let (round, object) = objects.pop_front().expect("there are some");
                assert_eq!(*object, [round; 8]);
            }
            if round % 50 == 0 {
                let cpu = cpus[(round / 50) as usize % cpus.len()];
                did.works += u64::from(self.queue_on(cpu));
            }
        }
        did
    }

    /// Whether this call queued the CPU's work: each true result stands for one run.
    fn queue_on(&self, cpu: u32) -> bool {
        match self.works[cpu as usize].queue_on(cpu, &self.queue) {
            Ok(queued) => queued,
            Err(error) => {
                assert_eq!((error.kind(), mode()), (ErrorKind::BadCpu, Mode::Local), "{error}");
                false
            }
        }
    }

    /// Accesses the part of `cpu` in every way.
    fn reach(&self, cpu: u32, did: &mut Did) {
        add_one(&mut self.pairs.lock(cpu).expect("not poisoned"));
        self.pairs.with(cpu, add_one).expect("not poisoned");
        did.pairs += 2;
        match self.pairs.try_lock(cpu) {
            Ok(mut pair) => {
                add_one(&mut pair);
                did.pairs += 1;
            }
            Err(error) => assert!(matches!(error, LockError::Busy), "{error}"),
        }
        self.pairs.for_each(|_, pair| add_one(pair)).expect("no lock is held");
        did.pairs += self.pairs.cpus().len() as u64;
        self.bundle.drain_all().expect("no lock is held");
        self.cache.flush_all().expect("no lock is held");
        // All additions are positive, so a sum that falls has lost some.
        let sum = self.counter.sum();
        assert!(sum >= did.sum, "{sum} after {}", did.sum);
        did.sum = sum;
        did.works += u64::from(self.queue_on(cpu));
        self.works[cpu as usize].flush();
    }

    /// Takes two CPUs at a time offline and back. Returns the operations on their parts meanwhile.
    fn take_cpus(&self, cpus: &[u32]) -> Did {
        let mut did = Did::default();
        for round in 0..ROUNDS as usize {
            let first = cpus[round % cpus.len()];
            let second = cpus[(round * 3 + 1) % cpus.len()];
            let gone = Offline::take(first).expect("it can be taken offline");
            self.reach(first, &mut did);
            let other = (second != first).then(|| Offline::take(second).expect("as above"));
            self.reach(second, &mut did);
            if round % 4 == 0 {
                until_noticed(first, false);
                let refused = self.works[first as usize].queue_on(first, &self.queue);
                match mode() {
                    Mode::Local => assert_eq!(refused.unwrap_err().kind(), ErrorKind::BadCpu),
                    _ => did.works += u64::from(refused.expect("runs right here")),
                }
                self.reach(first, &mut did);
            }
            drop(gone);
            self.reach(first, &mut did);
            drop(other);
            if round % 4 == 0 {
                until_noticed(first, true);
                assert!(uwork::work_on_cpu(first, || try_pin(first)).expect("it is back"));
            }
        }
        did
    }

    fn check(self, dids: &[Did]) {
        for work in &self.works {
            work.flush();
        }
        self.bundle.drain_all().expect("no lock is held");
        self.cache.flush_all().expect("no lock is held");
        let sum = |of: fn(&Did) -> u64| dids.iter().map(of).sum::<u64>();
        let (pairs, added, works) =
            (sum(|did| did.pairs), sum(|did| did.added), sum(|did| did.works));
        assert!(added > 0 && sum(|did| did.moves) > 0, "no operation was done");
        assert_eq!(self.worked.load(Ordering::Relaxed), works);
        assert_eq!((self.counter.sum() as u64, self.sunk.load(Ordering::Relaxed)), (added, added));
        let stats = self.cache.stats();
        assert_eq!((stats.out, stats.in_magazines), (0, 0));
        self.cache.close().expect("all objects are back");
        drop(self.works);
        let parts = Arc::into_inner(self.pairs).expect("no work has it any more").into_inner();
        assert_eq!(parts.iter().map(|pair| pair.0).sum::<u64>(), pairs + works);
    }
}

#[test]
fn counts_are_exact_while_cpus_come_and_go() {
    in_each_mode("counts_are_exact_while_cpus_come_and_go", |cpus| {
        let all: Vec<u32> = support::machine::cpus();
        let everything = Everything::new();
        let dids: Vec<Did> = thread::scope(|scope| {
            let (everything, all) = (&everything, &all);
            let user = |number| scope.spawn(move || everything.use_it(all, number));
            let users: Vec<_> = (0..USERS).map(user).collect();
            let taken = scope.spawn(move || everything.take_cpus(cpus)).join();
            everything.over.store(true, Ordering::Relaxed);
            let dids = users.into_iter().map(|user| user.join().expect("no panic"));
            let taken = taken.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
            dids.chain([taken]).collect()
        });
        everything.check(&dids);
    });
}

/// With no other user, the contents of an offline CPU's part are known to the last item.
#[test]
fn an_offline_cpus_part_keeps_every_item() {
    in_each_mode("an_offline_cpus_part_keeps_every_item", |cpus| {
        let sunk = Arc::new(AtomicU64::new(0));
        let (data, counter, bundle) = (PerCpu::new(|_| 0), Counter::new(), bundle_into(&sunk));
        let cache = Cache::<[u64; 8]>::new("left");
        for (&cpu, round) in cpus.iter().zip(1_u64..) {
            on_cpu(cpu, || {
                *data.lock_local().unwrap() += 1;
                counter.add(1);
                (0..5).for_each(|_| bundle.add(1));
                let objects: Vec<_> = (0..20).map(|_| cache.alloc([round; 8])).collect();
                drop(objects);
            });
            let gone = Offline::take(cpu).unwrap();
            assert_eq!((counter.sum(), bundle.len_on(cpu)), (round as i64, 5));
            assert_eq!(bundle.drain_all().unwrap(), 5, "mode {}", mode());
            assert_eq!((bundle.len_on(cpu), sunk.load(Ordering::Relaxed)), (0, 5 * round));
            assert!(cache.stats().in_magazines >= 20 && cache.flush_all().unwrap() >= 20);
            assert_eq!(cache.stats().in_magazines, 0);
            assert_eq!(*data.lock(cpu).unwrap(), 1);
            drop(gone);
            on_cpu(cpu, || {
                let mut part = data.lock_local().unwrap();
                assert_eq!((part.cpu(), *part), (cpu, 1), "mode {}", mode());
                *part += 1;
            });
        }
        cache.close().unwrap();
        assert_eq!(data.into_inner().iter().sum::<u64>(), 2 * cpus.len() as u64);
    });
}

/// The thread holds the lock, not the CPU on which it took the lock.
#[test]
fn a_holder_whose_cpu_goes_offline_keeps_the_lock() {
    in_each_mode("a_holder_whose_cpu_goes_offline_keeps_the_lock", |cpus| {
        let data = PerCpu::new(|_| 0);
        for &cpu in cpus {
            let ((tell, told), (go, gone_on)) =
                (std::sync::mpsc::channel(), std::sync::mpsc::channel());
            thread::scope(|scope| {
                let data = &data;
                let holder = scope.spawn(move || {
                    assert!(try_pin(cpu));
                    let mut part = data.lock_local().expect("free");
                    tell.send(()).unwrap();
                    let () = gone_on.recv().unwrap();
                    *part += 1;
                    part.cpu()
                });
                told.recv().unwrap();
                let offline = Offline::take(cpu).unwrap();
                assert!(matches!(data.try_lock(cpu), Err(LockError::Busy)), "mode {}", mode());
                go.send(()).unwrap();
                assert_eq!(*data.lock(cpu).unwrap(), 1);
                assert_eq!(holder.join().expect("no panic"), cpu);
                drop(offline);
            });
        }
    });
}

/// Data that was created while a CPU was offline has a part for it.
#[test]
fn a_cpu_that_was_offline_at_the_start_is_used_when_it_comes() {
    const CPU: &str = "UWORK_TEST_CPU";
    let test = "a_cpu_that_was_offline_at_the_start_is_used_when_it_comes";
    if let Ok(cpu) = std::env::var(CPU) {
        let _watchdog = watchdog();
        return comes_later(cpu.parse().expect("set below"));
    }
    let Some((cpus, _turn)) = removable(test) else { return };
    let cpu = *cpus.first().expect("one can be taken");
    for wanted in MODES {
        let _offline = Offline::take(cpu).unwrap();
        let prepare =
            |command: &mut Command| _ = command.env(VARIABLE, wanted).env(CPU, cpu.to_string());
        alone_with(test, prepare, || ());
    }
}

fn comes_later(cpu: u32) {
    let topology = Machine::read().unwrap().topology;
    assert!(topology.possible().contains(cpu) && !topology.online().contains(cpu));
    let (data, sunk) = (PerCpu::new(|_| 0), Arc::new(AtomicU64::new(0)));
    let (counter, bundle) = (Counter::new(), bundle_into(&sunk));
    *data.lock(cpu).unwrap() += 1;
    until_noticed(cpu, false);
    bring(cpu);
    until_noticed(cpu, true);
    on_cpu(cpu, || {
        let mut part = data.lock_local().unwrap();
        assert_eq!(part.cpu(), cpu, "mode {}", mode());
        *part += 1;
        counter.add(1);
        bundle.add(1);
    });
    assert_eq!(bundle.len_on(cpu), 1);
    bundle.drain_all().unwrap();
    assert_eq!((counter.sum(), sunk.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(*data.lock(cpu).unwrap(), 2);
}
