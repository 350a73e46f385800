//! Which CPU runs the items: pods help each other, except strict ones.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::item::Item;
use crate::setup::{MS, Setup, US, attrs, make, spec, with_engine};

/// Queues `count` items of 10 ms from CPU 0. Returns when all have run, and on which CPUs.
fn from_cpu_0(machine: &'static str, strict: bool, count: u32) -> (u64, BTreeSet<u32>) {
    with_engine(Setup::exact(machine), move |engine| {
        let host = engine.host().clone();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, strict));
        let queue = make(engine, spec("q", kind));
        host.doze(MS);
        let ran_on = Arc::new(Mutex::new(BTreeSet::new()));
        for _ in 0..count {
            let (host, ran_on) = (host.clone(), ran_on.clone());
            let item = Item::new(move || {
                ran_on.lock().unwrap().insert(host.cpu());
                host.burn(10 * MS);
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        (host.time() - MS, ran_on.lock().unwrap().clone())
    })
}

#[test]
fn an_idle_pod_takes_long_items_of_a_busy_one() {
    let (took, ran_on) = from_cpu_0("llc:2 core:1", false, 8);
    assert_eq!(ran_on, BTreeSet::from([0, 1]));
    assert_eq!(took, 40 * MS);
}

#[test]
fn every_cpu_of_every_pod_helps() {
    let (took, ran_on) = from_cpu_0("llc:4 core:2", false, 32);
    assert_eq!(ran_on, (0..8).collect());
    assert_eq!(took, 40 * MS);
}

#[test]
fn a_strict_pod_keeps_its_items() {
    let (took, ran_on) = from_cpu_0("llc:2 core:1", true, 8);
    assert_eq!(ran_on, BTreeSet::from([0]));
    assert_eq!(took, 80 * MS);
    let (took, ran_on) = from_cpu_0("llc:4 core:2", true, 32);
    assert_eq!(ran_on, BTreeSet::from([0, 1]));
    assert_eq!(took, 160 * MS);
}

/// The first items are short, so that a worker takes many at once; then a long item follows. The last
/// item ends before the watcher scans. Returns when the last short item began.
fn behind_a_long_item() -> u64 {
    with_engine(Setup::exact("core:2"), move |engine| {
        let host = engine.host().clone();
        // Both CPUs have one pool.
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { flags: Flags::POD_LIMITS, ..spec("q", kind) });
        let last = Arc::new(Mutex::new(0));
        for _ in 0..1_000 {
            assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let begin = host.time();
        for index in 0..64 {
            let (host, last) = (host.clone(), last.clone());
            let item = Item::new(move || {
                *last.lock().unwrap() = host.time();
                match index {
                    8 => host.burn(100 * MS),
                    63 => host.burn(60 * US),
                    _ => {}
                }
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!(host.time() - begin, 100 * MS);
        *last.lock().unwrap() - begin
    })
}

#[test]
fn items_scheduled_behind_a_long_item_are_taken_over() {
    assert_eq!(behind_a_long_item(), 60 * US);
}

/// The pods of CPUs 1 and 2 are in long runs, which began first on CPU `first`, and an item waits in
/// each. Then the worker of CPU 3 runs dry. Returns the pods in the order in which it takes the items.
fn taken_from(first: u32) -> Vec<u32> {
    with_engine(Setup::exact("core:4"), move |engine| {
        let host = engine.host().clone();
        let mut attrs = attrs(engine, AffinityScope::Cpu, false);
        attrs.cpumask = "1-3".parse().unwrap();
        let queue = make(engine, spec("q", Kind::Unbound(attrs)));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let put = |cpu, ns| {
            let (host, taken) = (host.clone(), taken.clone());
            let item = Item::new(move || {
                taken.lock().unwrap().push(cpu);
                host.burn(ns);
            });
            assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
        };
        let second = 3 - first;
        put(first, 8 * MS);
        host.doze(MS);
        put(second, 8 * MS);
        put(3, 4 * MS);
        host.doze(MS);
        [second, first].into_iter().for_each(|cpu| put(cpu, MS));
        queue.flush().unwrap();
        let mut taken = taken.lock().unwrap();
        taken.split_off(3)
    })
}

#[test]
fn a_worker_without_work_takes_from_the_neighbour_that_has_waited_longest() {
    for first in [1, 2] {
        assert_eq!(taken_from(first), [first, 3 - first]);
    }
}

/// On one CPU, where no other pod can help: the wait itself gives the worker's batch back.
#[test]
fn items_scheduled_behind_a_declared_wait_run_at_once() {
    for flags in [Flags::empty(), Flags::CPU_INTENSIVE] {
        with_engine(Setup::exact("core:1"), move |engine| {
            let host = engine.host().clone();
            // Two permits for eight items: each batch holds several.
            let queue = QueueSpec { flags, max_active: 2, ..spec("q", Kind::PerCpu) };
            let queue = make(engine, queue);
            for _ in 0..1_000 {
                assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            let (begin, last) = (host.time(), Arc::new(Mutex::new(0)));
            for index in 0..8 {
                let (engine, last) = (engine.clone(), last.clone());
                let item = Item::new(move || match index {
                    0 => engine.blocking(|| engine.host().doze(100 * MS)),
                    _ => *last.lock().unwrap() = engine.host().time(),
                });
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            assert_eq!((*last.lock().unwrap() - begin, host.time() - begin), (0, 100 * MS));
        });
    }
}

/// Submitters on two CPUs outside of the mask, preempted at any point.
fn turns_of_submitters_outside(seed: u64) -> Vec<usize> {
    let chaos = Chaos { drawn_order: true, preempt_one_in: 3, ..Chaos::default() };
    with_engine(Setup { machine: "core:5", chaos, seed }, |engine| {
        let host = engine.host().clone();
        let mut attrs = attrs(engine, AffinityScope::Cpu, true);
        attrs.cpumask = "2-4".parse().unwrap();
        let queue = make(engine, spec("q", Kind::Unbound(attrs)));
        let ran_on = Arc::new(Mutex::new(Vec::new()));
        let submitters = [0, 0, 1].map(|cpu| {
            let (queue, ran_on, clock) = (queue.clone(), ran_on.clone(), host.clone());
            host.start(&CpuSet::single(cpu), move || {
                for _ in 0..20 {
                    let (ran_on, clock) = (ran_on.clone(), clock.clone());
                    let item = Item::new(move || ran_on.lock().unwrap().push(clock.cpu()));
                    assert_eq!(item.queue(&queue), Queued::Yes);
                }
            })
        });
        submitters.into_iter().for_each(|submitter| submitter.join(&host));
        queue.flush().unwrap();
        let ran_on = ran_on.lock().unwrap();
        (0..5).map(|cpu| ran_on.iter().filter(|&&on| on == cpu).count()).collect()
    })
}

#[test]
fn submitters_outside_of_the_mask_reach_each_cpu_of_it_equally_often() {
    for seed in 0..50 {
        assert_eq!(turns_of_submitters_outside(seed), [0, 0, 20, 20, 20], "seed {seed}");
    }
}

/// One pwq serves the whole queue; only its readiness rotates among the pools.
#[test]
fn readiness_of_an_ordered_queue_takes_turns_among_all_pools_of_the_mask() {
    let ran_on = with_engine(Setup::exact("core:3"), |engine| {
        let host = engine.host().clone();
        let mut attrs = attrs(engine, AffinityScope::Cpu, true);
        attrs.cpumask = "1-2".parse().unwrap();
        let queue = make(engine, spec("q", Kind::Ordered(attrs)));
        let ran_on = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..4 {
            let (ran_on, clock) = (ran_on.clone(), host.clone());
            let item = Item::new(move || ran_on.lock().unwrap().push(clock.cpu()));
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
        }
        let ran_on = ran_on.lock().unwrap();
        ran_on.clone()
    });
    assert_eq!(ran_on, [1, 2, 1, 2]);
}

/// The attributes are locked while they change: a submitter that took that lock would wait for
/// itself.
#[test]
fn a_submitter_outside_of_the_mask_waits_for_no_change_of_the_attributes() {
    with_engine(Setup::exact("core:2"), |engine| {
        let mut attrs = attrs(engine, AffinityScope::Cpu, true);
        attrs.cpumask = CpuSet::single(1);
        let queue = make(engine, spec("q", Kind::Unbound(attrs)));
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let item = Item::new(move || seen.store(true, Ordering::Relaxed));
        queue.change_attrs(|_| assert_eq!(item.queue(&queue), Queued::Yes)).unwrap();
        queue.flush().unwrap();
        assert!(ran.load(Ordering::Relaxed));
    });
}
