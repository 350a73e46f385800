//! CPUs that go offline and come back: no item is lost, and none runs on a CPU that it must not
//! use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Attrs, Cpus, Kind, Queue, QueueError, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

use crate::host::{BrokenSpawn, VirtualHost};
use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// A change is detected within this time while items run.
const NOTICED: u64 = 250 * MS;

fn cpus(list: &str) -> Cpus {
    let allowed: CpuSet = list.parse().expect("a list");
    Cpus { unbound_cpumask: allowed.clone(), allowed, cpu_limit: None }
}

/// The CPU and the time at the start and at the end of each item's burn.
type Seen = Arc<Mutex<Vec<(u64, u32)>>>;

fn burning(host: &VirtualHost, seen: &Seen, ns: u64) -> Arc<Item> {
    let (host, seen) = (host.clone(), seen.clone());
    Item::new(move || {
        seen.lock().unwrap().push((host.time(), host.cpu()));
        host.burn(ns);
        seen.lock().unwrap().push((host.time(), host.cpu()));
    })
}

/// The CPUs on which items were seen in `from..`.
fn since(seen: &Seen, from: u64) -> CpuSet {
    let mut cpus = CpuSet::new();
    for &(at, cpu) in seen.lock().unwrap().iter() {
        if at >= from {
            cpus.insert(cpu);
        }
    }
    cpus
}

fn queues(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let of = |name: &str, kind| make(engine, spec(name, kind));
    vec![
        of("bound", Kind::PerCpu),
        of("pods", Kind::Unbound(attrs(engine, AffinityScope::Cpu, false))),
        of("strict", Kind::Unbound(attrs(engine, AffinityScope::Cpu, true))),
        of("whole", Kind::Unbound(attrs(engine, AffinityScope::System, false))),
        of("ordered", Kind::Ordered(attrs(engine, AffinityScope::Cpu, true))),
    ]
}

/// Each kind of queue alone, with items queued from both CPUs and timers for both. CPU 1 goes
/// offline in the middle and comes back.
#[test]
fn a_cpu_goes_offline_in_a_flood_and_comes_back() {
    const ITEMS: u64 = 600;
    for kind in 0..5 {
        with_engine(Setup::exact("llc:2 core:1"), move |engine| {
            let (host, seen) = (engine.host().clone(), Seen::default());
            let queue = queues(engine).swap_remove(kind);
            // An ordered queue stays on the pool on which its first items are queued.
            let (stays, both) = if kind == 4 { ("1", "0") } else { ("0", "0-1") };
            let (begin, order) = (host.time(), Arc::new(Mutex::new(Vec::new())));
            let feeders = [0, 1].map(|cpu| {
                let (host, seen, queue) = (host.clone(), seen.clone(), queue.clone());
                let order = order.clone();
                engine.host().start(&CpuSet::single(cpu), move || {
                    for index in 0..ITEMS / 2 {
                        let item = burning(&host, &seen, 2 * MS);
                        let delay = (index % 3) * MS;
                        let queued = match delay {
                            0 => item.queue(&queue),
                            _ => item.queue_delayed(&queue, None, delay),
                        };
                        assert_eq!(queued, Queued::Yes);
                        let (order, no) = (order.clone(), 2 * index + u64::from(cpu));
                        let marked = Item::new(move || order.lock().unwrap().push(no));
                        assert_eq!(marked.queue(&queue), Queued::Yes);
                        host.doze(3 * MS);
                    }
                })
            });
            host.doze(200 * MS);
            assert_eq!(since(&seen, begin).to_string(), both, "queue {kind}");
            host.change_cpus(cpus(stays));
            host.doze(NOTICED);
            let gone = host.time();
            assert_eq!(engine.cpus().allowed.to_string(), stays);
            host.doze(200 * MS);
            assert_eq!(since(&seen, gone).to_string(), stays, "queue {kind}");
            let allowed = stays.parse().expect("a list");
            let changed = Report::CpusChanged { allowed, limit: None };
            assert_eq!(host.reports(), [changed]);
            host.change_cpus(cpus("0-1"));
            host.doze(NOTICED);
            let back = host.time();
            host.doze(100 * MS);
            let seen_after = since(&seen, back).to_string();
            assert!(kind == 4 || seen_after == both, "queue {kind}: {seen_after}");
            feeders.into_iter().for_each(|feeder| feeder.join(&host));
            host.doze(10 * MS);
            queue.drain().unwrap();
            assert_eq!(seen.lock().unwrap().len() as u64, 2 * ITEMS);
            let order = order.lock().unwrap().clone();
            assert_eq!(order.len() as u64, ITEMS);
            for cpu in [0, 1] {
                let of_one: Vec<u64> = order.iter().copied().filter(|no| no % 2 == cpu).collect();
                assert!(kind != 4 || of_one.is_sorted(), "out of order: {of_one:?}");
            }
        });
    }
}

/// No worker goes from one item to the next here, so only the watcher can detect the change.
#[test]
fn one_long_item_is_moved() {
    for waits_first in [false, true] {
        with_engine(Setup::exact("core:2"), move |engine| {
            let host = engine.host().clone();
            let queue = make(engine, spec("q", Kind::PerCpu));
            host.doze(SEC);
            let place = Arc::new(Mutex::new((0, 0)));
            let (theirs, out) = (engine.clone(), place.clone());
            let item = Item::new(move || {
                let host = theirs.host();
                if waits_first {
                    theirs.blocking(|| host.doze(2 * SEC));
                }
                *out.lock().unwrap() = (host.cpu(), 0);
                host.burn(5 * SEC);
                out.lock().unwrap().1 = host.cpu();
            });
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
            host.doze(3 * SEC);
            host.change_cpus(cpus("0"));
            host.doze(NOTICED);
            assert_eq!(engine.cpus().allowed, CpuSet::single(0), "{waits_first}");
            queue.flush().unwrap();
            assert_eq!(*place.lock().unwrap(), (1, 0), "{waits_first}");
        });
    }
}

#[test]
fn an_offline_cpu_is_refused_by_name_and_its_items_run_elsewhere() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, seen) = (engine.host().clone(), Seen::default());
        let queue = make(engine, spec("q", Kind::PerCpu));
        host.doze(MS);
        // Armed for a CPU that goes offline before the timer expires.
        let armed = burning(&host, &seen, US);
        assert_eq!(armed.queue_delayed(&queue, Some(1), 10 * MS), Queued::Yes);
        assert!(host.unpreempted(|| engine.set_cpus(cpus("0"))));
        let allowed = CpuSet::single(0);
        assert_eq!(queue.check_cpu(1), Err(QueueError::BadCpu { cpu: 1, allowed }));
        let (theirs, item) = (queue.clone(), burning(&host, &seen, US));
        let from_1 = host.start(&CpuSet::single(1), move || {
            assert_eq!(item.queue(&theirs), Queued::Yes);
        });
        from_1.join(&host);
        host.doze(20 * MS);
        queue.drain().unwrap();
        assert_eq!(seen.lock().unwrap().len(), 4);
        assert_eq!(since(&seen, 0), CpuSet::single(0));
        assert!(host.unpreempted(|| engine.set_cpus(cpus("0-1"))));
        let again = host.time();
        assert_eq!(burning(&host, &seen, US).queue_on(&queue, 1), Queued::Yes);
        queue.drain().unwrap();
        assert_eq!(since(&seen, again), CpuSet::single(1));
    });
}

/// A bound pool belongs to its CPU, whatever else is allowed: two pools would run two workers there
/// at once.
#[test]
fn a_cpu_has_one_running_worker_across_changes() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host().clone();
        let old = make(engine, spec("old", Kind::PerCpu));
        assert!(host.unpreempted(|| engine.set_cpus(cpus("0"))));
        let new = make(engine, spec("new", Kind::PerCpu));
        host.doze(MS);
        assert_eq!(engine.workers(), 2);
        let most = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        for index in 0..20 {
            let (host, most) = (host.clone(), most.clone());
            // The wait is undeclared: two workers of one CPU would both be in the item.
            let item = Item::new(move || {
                let now = most.0.fetch_add(1, Ordering::Relaxed) + 1;
                most.1.fetch_max(now, Ordering::Relaxed);
                host.doze(MS);
                most.0.fetch_sub(1, Ordering::Relaxed);
            });
            let queue = if index % 2 == 0 { &old } else { &new };
            assert_eq!(item.queue(queue), Queued::Yes);
        }
        old.flush().unwrap();
        new.flush().unwrap();
        assert_eq!(most.1.load(Ordering::Relaxed), 1);
        // Each pool is retired with the last set that uses it, and before that a worker that waits for a
        // CPU which is gone.
        drop(old);
        host.doze(400 * SEC);
        assert_eq!(engine.workers(), 1);
        drop(new);
        host.doze(MS);
        assert_eq!(engine.workers(), 0);
    });
}

/// The kernel's rule: the requested mask takes effect again when its CPUs come back.
#[test]
fn a_mask_without_an_allowed_cpu_means_all_cpus() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host().clone();
        let cpumask: CpuSet = "2-3".parse().unwrap();
        let kind = Kind::Unbound(Attrs { cpumask, ..attrs(engine, AffinityScope::System, false) });
        let queue = make(engine, spec("q", kind));
        let masks = |list: &str| {
            assert!(host.unpreempted(|| engine.set_cpus(cpus(list))));
            queue.cpus().to_string()
        };
        assert_eq!(masks("0,3"), "3");
        assert_eq!(masks("0-1"), "0-1");
        let nicer = host.unpreempted(|| queue.change_attrs(|attrs| attrs.nice = 5));
        assert_eq!(nicer, Ok(()));
        let wrong = queue.change_attrs(|attrs| attrs.cpumask = "3".parse().unwrap());
        assert!(matches!(wrong, Err(QueueError::NoCpu { .. })));
        assert_eq!(masks("0-3"), "2-3");
        assert!(!engine.set_cpus(cpus("0-3")), "nothing to change");
        assert!(!engine.set_cpus(cpus("8-9")), "no CPU of the machine");
    });
}

/// The CPU time quota determines how many workers run at once.
#[test]
fn the_cpu_time_quota_sets_the_number_of_workers() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host().clone();
        let queue =
            make(engine, spec("q", Kind::Unbound(attrs(engine, AffinityScope::System, false))));
        for (limit, took) in [(None, 10), (Some(1), 40), (Some(2), 20), (Some(9), 10)] {
            let now = Cpus { cpu_limit: limit, ..engine.cpus().clone() };
            let changed = now != *engine.cpus();
            assert_eq!(host.unpreempted(|| engine.set_cpus(now)), changed);
            let (begin, seen) = (host.time(), Seen::default());
            for _ in 0..8 {
                assert_eq!(burning(&host, &seen, 5 * MS).queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            assert_eq!(host.time() - begin, took * MS, "{limit:?}");
        }
    });
}

/// A pool that cannot get a worker keeps its items where they were, on workers that are moved; the
/// spawn is tried again.
#[test]
fn items_run_on_although_no_thread_can_be_spawned_for_a_new_cpu() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, seen) = (engine.host().clone(), Seen::default());
        assert!(engine.set_cpus(cpus("0")));
        let queue = make(engine, spec("q", Kind::PerCpu));
        host.doze(MS);
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        assert!(host.unpreempted(|| engine.set_cpus(cpus("1"))));
        assert!(host.reports().iter().any(|report| matches!(report, Report::SpawnFailed { .. })));
        let failed = host.time();
        assert_eq!(burning(&host, &seen, MS).queue(&queue), Queued::Yes);
        queue.flush().unwrap();
        assert_eq!(since(&seen, failed), CpuSet::single(1));
        assert_eq!(queue.cpus(), CpuSet::single(0), "the routes of before");
        host.break_spawn(None);
        for _ in 0..3 {
            assert_eq!(burning(&host, &seen, MS).queue(&queue), Queued::Yes);
            host.doze(NOTICED);
        }
        assert_eq!(queue.cpus(), CpuSet::single(1));
        assert_eq!(since(&seen, failed), CpuSet::single(1));
        queue.drain().unwrap();
    });
}

/// A queue that is created while the CPUs change, or whose thread starts meanwhile, follows the
/// change.
#[test]
fn a_worker_that_starts_during_a_change_follows_it() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, seen) = (engine.host().clone(), Seen::default());
        // The threads exist, and have executed nothing yet.
        let queue = Queue::new(engine, spec("q", Kind::PerCpu)).expect("a queue");
        assert_eq!(burning(&host, &seen, MS).queue_on(&queue, 1), Queued::Yes);
        assert!(engine.set_cpus(cpus("0")));
        queue.drain().unwrap();
        assert_eq!(since(&seen, 0), CpuSet::single(0));
        // The name is free as soon as the queue is dropped, although workers may still use it.
        drop(queue);
        make(engine, spec("q", Kind::PerCpu));
    });
}

/// A queue whose mask names only a CPU that was offline gets that CPU in the end.
#[test]
fn a_cpu_that_came_back_is_used_again() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, seen) = (engine.host().clone(), Seen::default());
        let queue = make(engine, spec("q", Kind::PerCpu));
        host.change_cpus(cpus("0"));
        assert_eq!(burning(&host, &seen, US).queue(&queue), Queued::Yes);
        host.doze(SEC);
        assert!(queue.check_cpu(1).is_err());
        host.doze(SEC);
        host.change_cpus(cpus("0-1"));
        host.doze(1_000 * SEC);
        assert!(queue.check_cpu(1).is_err(), "the CPUs were not checked");
        host.doze(US);
        assert_eq!(queue.check_cpu(1), Ok(()));
        host.doze(SEC);
        // Then the engine is idle.
        let before = host.counts();
        host.doze(1_000 * SEC);
        assert_eq!(host.counts(), before);
    });
}

/// The watcher does not check the CPUs while no item runs; it checks them at the first item after
/// that.
#[test]
fn an_idle_engine_detects_the_change_at_its_next_item() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, seen) = (engine.host().clone(), Seen::default());
        let queue = make(engine, spec("q", Kind::PerCpu));
        host.doze(SEC);
        assert_eq!(host.machine().next_event(), None, "something is going to happen");
        let before = host.counts();
        host.change_cpus(cpus("0"));
        host.doze(1_000 * SEC);
        assert_eq!(host.counts(), before);
        assert_eq!(engine.cpus().allowed.len(), 2);
        assert_eq!(burning(&host, &seen, US).queue(&queue), Queued::Yes);
        host.doze(US);
        assert_eq!(engine.cpus().allowed, CpuSet::single(0));
        // A declared wait does not count as a running item.
        let theirs = engine.clone();
        let waits = Item::new(move || theirs.blocking(|| theirs.host().doze(1_000 * SEC)));
        assert_eq!(waits.queue(&queue), Queued::Yes);
        host.doze(SEC);
        let before = host.counts();
        host.doze(900 * SEC);
        assert_eq!(host.counts(), before);
        queue.drain().unwrap();
    });
}
