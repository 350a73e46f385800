//! Items that sleep briefly and undeclared: a pool gets the workers that keep its CPUs busy, from how
//! long its items are off the CPU, and no more than these.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uwork_engine::{Cpus, Kind, QueueSpec, Queued};
use uwork_policy::blocking::{Tier, UNVERIFIED_MAX};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::off_cpu::{MEASURE_EVERY_NS, RAISED_NS};
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// The tiers that detect undeclared blocking.
const NOTICING: [Tier; 3] = [Tier::Standby, Tier::Events, Tier::Sampling];

/// How many items run at once.
#[derive(Default)]
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

fn queue_of(engine: &Arc<VirtualEngine>, max_active: u32) -> VirtualQueue {
    named(engine, "q", max_active)
}

fn named(engine: &Arc<VirtualEngine>, name: &str, max_active: u32) -> VirtualQueue {
    scoped(engine, AffinityScope::System, name, max_active)
}

fn scoped(
    engine: &Arc<VirtualEngine>,
    scope: AffinityScope,
    name: &str,
    max_active: u32,
) -> VirtualQueue {
    let kind = Kind::Unbound(attrs(engine, scope, false));
    make(engine, QueueSpec { max_active, ..spec(name, kind) })
}

/// Runs `count` items that compute and then sleep. Returns how long that took, and how many items were
/// under way at once at most.
fn run(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    count: u32,
    times: (u64, u64),
) -> (u64, u32) {
    let began = engine.host().time();
    let inside = begin(engine, queue, count, times);
    queue.flush().unwrap();
    (engine.host().time() - began, inside.most.load(Ordering::Relaxed))
}

/// Queues `count` items that compute and then sleep.
fn begin(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    count: u32,
    (burn_ns, doze_ns): (u64, u64),
) -> Arc<Inside> {
    let inside = Arc::new(Inside::default());
    for _ in 0..count {
        let (engine, inside) = (engine.clone(), inside.clone());
        let item = Item::new(move || {
            let now = inside.now.fetch_add(1, Ordering::Relaxed) + 1;
            inside.most.fetch_max(now, Ordering::Relaxed);
            engine.host().burn(burn_ns);
            if doze_ns > 0 {
                engine.host().doze(doze_ns);
            }
            inside.now.fetch_sub(1, Ordering::Relaxed);
        });
        assert_eq!(item.queue(queue), Queued::Yes);
    }
    inside
}

#[test]
fn items_that_sleep_briefly_run_as_many_at_once_as_they_may() {
    for tier in NOTICING {
        for sleep_us in [20, 50, 100, 300, 500, 1_000, 10_000] {
            with_engine(Setup::exact("core:2"), move |engine| {
                engine.host().detecting().tier = tier;
                let queue = queue_of(engine, 16);
                let count = 2_000;
                let (took, most) = run(engine, &queue, count, (US, sleep_us * US));
                assert_eq!(most, 16, "{tier}, {sleep_us} us");
                // Sixteen at a time, and the time until the pool has learned it.
                let ideal = u64::from(count) * (sleep_us + 1) * US / 16;
                let limit = ideal + ideal / 8 + 10 * MS + 8 * sleep_us * US;
                assert!(took <= limit, "{tier}, {sleep_us} us: {took} of {ideal} ns");
            });
        }
    }
}

/// The items arrive in one pod, whose CPU they keep busy. The other pod takes some of them, and needs
/// as many workers for its own CPU.
#[test]
fn items_that_sleep_keep_the_cpus_of_all_pods_busy() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let queue = scoped(engine, AffinityScope::Cpu, "q", 64);
            let count = 20_000;
            let (took, _) = run(engine, &queue, count, (10 * US, 40 * US));
            // Five items keep one CPU busy. On one CPU alone all would take twice as long.
            let ideal = u64::from(count) * 10 * US / 2;
            assert!(took <= ideal + ideal / 4 + 10 * MS, "{tier}: {took} of {ideal} ns");
        });
    }
}

#[test]
fn items_that_compute_run_on_as_many_workers_as_there_are_cpus() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let (_, most) = run(engine, &queue_of(engine, 16), 500, (200 * US, 0));
            assert_eq!(most, 2, "{tier}");
        });
    }
}

/// As on a machine whose CPUs other programs use: items lose their CPUs, and do not sleep.
#[test]
fn a_wait_for_a_cpu_brings_up_no_worker() {
    for tier in NOTICING {
        let chaos = crate::chance::Chaos { preempt_one_in: 3, ..Default::default() };
        with_engine(Setup { machine: "core:2", chaos, seed: 5 }, move |engine| {
            engine.host().detecting().tier = tier;
            let (_, most) = run(engine, &queue_of(engine, 16), 2_000, (200 * US, 0));
            // A pool may have a worker found asleep by mistake, and its replacement.
            assert!(most <= 4, "{tier}: {most}");
        });
    }
}

#[test]
fn a_queue_that_begins_to_compute_is_bounded_again() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let queue = queue_of(engine, 16);
            let (_, most) = run(engine, &queue, 1_000, (US, 100 * US));
            assert_eq!(most, 16, "{tier}");
            // At once after the sleepers: those that were up may each begin one item.
            let (_, most) = run(engine, &queue, 200, (500 * US, 0));
            assert!(most <= 16, "{tier}: {most}");
            let (_, most) = run(engine, &queue, 200, (500 * US, 0));
            assert!(most <= 3, "{tier}: {most}");
        });
    }
}

#[test]
fn a_raise_ends_when_no_measurement_confirms_it() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let queue = queue_of(engine, 16);
            run(engine, &queue, 1_000, (US, 100 * US));
            engine.host().doze(2 * RAISED_NS);
            let (_, most) = run(engine, &queue, 200, (500 * US, 0));
            assert_eq!(most, 2, "{tier}");
        });
    }
}

/// Declared waits are replaced one by one; they are no reason for more workers.
#[test]
fn declared_waits_raise_no_target() {
    with_engine(Setup::exact("core:2"), |engine| {
        engine.host().detecting().tier = Tier::Standby;
        let queue = queue_of(engine, 16);
        let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for _ in 0..500 {
            let (engine, now, most) = (engine.clone(), now.clone(), most.clone());
            let item = Item::new(move || {
                engine.blocking(|| engine.host().doze(100 * US));
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                engine.host().burn(300 * US);
                now.fetch_sub(1, Ordering::Relaxed);
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        // The wait counts no longer, and no item begins beside more than the pool's CPUs. Those that
        // were replaced may compute at once when they are back.
        let (_, most) = run(engine, &queue, 200, (300 * US, 0));
        assert_eq!(most, 2);
    });
}

/// A cap on workers bounds the raise too: a pool that is full needs no rescue.
#[test]
fn a_raise_keeps_to_the_cap_on_workers() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:1"), move |engine| {
            engine.host().detecting().tier = tier;
            engine.set_pool_workers_max(3);
            let (_, most) = run(engine, &queue_of(engine, 16), 1_000, (US, 100 * US));
            assert_eq!(most, 3, "{tier}");
            let targets = engine.dump().pools.into_iter().map(|pool| pool.target);
            assert!(targets.max() <= Some(3), "{tier}");
        });
    }
}

/// Batches that sleep and batches that compute alternate: a measurement leads to one more at most.
#[test]
fn few_batches_are_measured() {
    with_engine(Setup::exact("core:1"), |engine| {
        engine.host().detecting().tier = Tier::Sampling;
        let queue = queue_of(engine, 16);
        let began = engine.host().time();
        for number in 0..4_000 {
            let engine = engine.clone();
            let item = Item::new(move || match number % 2 {
                0 => engine.host().doze(20 * US),
                _ => engine.host().burn(20 * US),
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let took = engine.host().time() - began;
        let delays_read = engine.host().detecting().delays_read;
        // Two readings for each measurement.
        let most = 4 * (took / MEASURE_EVERY_NS + 1);
        assert!(delays_read <= most, "{delays_read} readings in {took} ns, at most {most}");
        assert!(delays_read > 0);
    });
}

/// Both queues have one pool and so one target. Neither may starve the other, and the raise ends with
/// the sleepers.
#[test]
fn a_queue_that_computes_beside_one_that_sleeps_is_not_held_up() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:2"), move |engine| {
            engine.host().detecting().tier = tier;
            let (sleeps, computes) = (named(engine, "sleeps", 16), named(engine, "computes", 16));
            let began = engine.host().time();
            let slept = begin(engine, &sleeps, 2_000, (US, 300 * US));
            let computed = begin(engine, &computes, 200, (200 * US, 0));
            sleeps.flush().unwrap();
            computes.flush().unwrap();
            let took = engine.host().time() - began;
            // The work of each queue alone: sixteen sleepers at a time, and two CPUs.
            let ideal = (2_000 * 301 * US / 16) + (200 * 200 * US / 2);
            assert!(took <= ideal + ideal / 4, "{tier}: {took} of {ideal} ns");
            let most = [&slept, &computed].map(|inside| inside.most.load(Ordering::Relaxed));
            assert!(most[0] == 16 && most[1] <= 16, "{tier}: {most:?}");
            engine.host().doze(2 * RAISED_NS);
            let (_, most) = run(engine, &computes, 200, (200 * US, 0));
            assert_eq!(most, 2, "{tier}");
        });
    }
}

/// The number of CPUs changes under a raised target.
#[test]
fn cpus_that_go_and_come_back_bound_computing_items_and_not_sleeping_ones() {
    for tier in NOTICING {
        with_engine(Setup::exact("core:4"), move |engine| {
            let host = engine.host();
            host.detecting().tier = tier;
            let queue = queue_of(engine, 16);
            for list in ["0-3", "0", "0-3", "2-3", "0-3"] {
                let allowed: CpuSet = list.parse().expect("a list");
                let cpus = allowed.len() as u32;
                host.change_cpus(Cpus {
                    unbound_cpumask: allowed.clone(),
                    allowed,
                    cpu_limit: None,
                });
                // While the watcher finds out, and then with the CPUs that are left.
                for _ in 0..3 {
                    let (_, most) = run(engine, &queue, 4_000, (US, MS));
                    assert_eq!(most, 16, "{tier}, {list}");
                }
                host.doze(2 * RAISED_NS);
                let (_, most) = run(engine, &queue, 500, (200 * US, 0));
                // Single sleeps are detected too: a worker found asleep by mistake has a replacement,
                // and so have the first ones, whose block is presumed after the sleeping items.
                let bounds = cpus..=cpus + 1 + UNVERIFIED_MAX;
                assert!(bounds.contains(&most), "{tier}, {list}: {most}");
            }
        });
    }
}
