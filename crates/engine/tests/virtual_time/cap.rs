//! How many workers a pool may have: derived from the limits of its queues, from the process's
//! limit, and from the configured cap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::host::Report;
use uwork_engine::{Kind, POOL_WORKERS_LIMIT, QueueSpec, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_config, with_engine,
};

/// The tiers that detect undeclared blocking.
const NOTICING: [Tier; 2] = [Tier::Events, Tier::Sampling];

fn shared(
    engine: &Arc<VirtualEngine>,
    name: &str,
    scope: AffinityScope,
    max_active: u32,
) -> VirtualQueue {
    let kind = Kind::Unbound(attrs(engine, scope, false));
    make(engine, QueueSpec { max_active, ..spec(name, kind) })
}

/// Queues an item with this body.
fn queue(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    body: impl Fn(&VirtualEngine) + Send + Sync + 'static,
) {
    let engine = engine.clone();
    assert_eq!(Item::new(move || body(&engine)).queue(queue), Queued::Yes);
}

/// The caps that were reported as reached.
fn reported(engine: &VirtualEngine) -> Vec<u32> {
    let max = |report| match report {
        Report::WorkersMax { max, .. } => Some(max),
        _ => None,
    };
    engine.host().reports().into_iter().filter_map(max).collect()
}

/// Runs 10,000 items of a queue with `max_active` 256 that block undeclared, beside queues whose
/// limits would let the pool grow further. Returns the highest number of workers at any time.
fn peak_among_sleepers(
    machine: &'static str,
    scope: AffinityScope,
    tier: Tier,
    others: bool,
) -> u32 {
    with_engine(Setup::exact(machine), move |engine| {
        engine.host().detecting().tier = tier;
        let sleepers = shared(engine, "sleepers", scope, 256);
        let system = others.then(|| shared(engine, "system", scope, 1024));
        let peak = Arc::new(AtomicU32::new(0));
        let began = engine.host().time();
        for at in 0..10_000_u32 {
            let seen = peak.clone();
            queue(engine, &sleepers, move |engine| {
                seen.fetch_max(engine.workers(), Ordering::Relaxed);
                engine.host().doze(10 * MS);
                seen.fetch_max(engine.workers(), Ordering::Relaxed);
            });
            if let Some(system) = system.as_ref().filter(|_| at % 10 == 0) {
                queue(engine, system, |engine| engine.host().burn(20 * US));
            }
        }
        sleepers.flush().unwrap();
        system.iter().for_each(|system| system.flush().unwrap());
        // The peak must not be low because few items blocked at once.
        let took = engine.host().time() - began;
        let ideal = 10_000 * 10 * MS / 256;
        assert!(took <= ideal * 5 / 4, "{machine} {tier}: {took} ns");
        assert!(reported(engine).is_empty());
        peak.load(Ordering::Relaxed)
    })
}

/// The queue's own limit is the bound: the cap has room for the other queue's items as well.
#[test]
fn blocked_workers_are_bounded_by_max_active_and_not_by_the_cap() {
    for tier in NOTICING {
        for others in [false, true] {
            let peak = peak_among_sleepers("core:2", AffinityScope::System, tier, others);
            assert!((256..=256 + 2 + 1).contains(&peak), "{tier} {others}: {peak}");
        }
    }
}

/// Pods that share their work also share the limit on their workers.
#[test]
fn pods_that_share_are_bounded_together() {
    for tier in NOTICING {
        for others in [false, true] {
            let peak = peak_among_sleepers("core:2", AffinityScope::Cpu, tier, others);
            assert!((256..=256 + 2 + 2).contains(&peak), "{tier} {others}: {peak}");
        }
    }
}

/// Blocking items alternate between one pod and the other, whose CPU has other items to run
/// meanwhile.
#[test]
fn pods_whose_load_moves_are_bounded_together() {
    for (tier, seed) in NOTICING.into_iter().flat_map(|tier| [(tier, 0), (tier, 1), (tier, 2)]) {
        let chaos = crate::chance::Chaos {
            drawn_order: seed > 0,
            preempt_one_in: 20 * seed,
            ..Default::default()
        };
        let setup = Setup { machine: "core:2", chaos, seed };
        let peak = with_engine(setup, move |engine| {
            engine.host().detecting().tier = tier;
            let sleepers = shared(engine, "sleepers", AffinityScope::Cpu, 256);
            let system = shared(engine, "system", AffinityScope::Cpu, 1024);
            let peak = Arc::new(AtomicU32::new(0));
            for round in 0..20 {
                for at in 0..500_u32 {
                    let seen = peak.clone();
                    let item = Item::new({
                        let engine = engine.clone();
                        move || {
                            seen.fetch_max(engine.workers(), Ordering::Relaxed);
                            engine.host().doze(10 * MS);
                            seen.fetch_max(engine.workers(), Ordering::Relaxed);
                        }
                    });
                    assert_eq!(item.queue_on(&sleepers, round % 2), Queued::Yes);
                    if at % 5 == 0 {
                        let engine = engine.clone();
                        let item = Item::new(move || engine.host().burn(200 * US));
                        assert_eq!(item.queue_on(&system, (round + 1) % 2), Queued::Yes);
                    }
                }
                sleepers.flush().unwrap();
            }
            system.flush().unwrap();
            peak.load(Ordering::Relaxed)
        });
        // Each pod may keep as many idle workers as it has CPUs, and have one being woken. Where items
        // slept a moment ago, some more may compute at once.
        assert!((256..=256 + 2 + 2 + 12).contains(&peak), "{tier} {seed}: {peak}");
    }
}

/// Items that declare a block of a second, so that each needs a worker of its own.
fn queue_sleepers(engine: &Arc<VirtualEngine>, of: &VirtualQueue, count: u32) -> Arc<AtomicU32> {
    let started = Arc::new(AtomicU32::new(0));
    for _ in 0..count {
        let started = started.clone();
        queue(engine, of, move |engine| {
            started.fetch_add(1, Ordering::Relaxed);
            engine.blocking(|| engine.host().doze(SEC));
        });
    }
    engine.host().doze(50 * MS);
    started
}

#[test]
fn a_configured_cap_holds_and_is_reported_once() {
    with_engine(Setup::exact("core:2"), |engine| {
        assert_eq!(engine.pool_workers_max(), 0);
        let sleepers = shared(engine, "sleepers", AffinityScope::System, 256);
        engine.set_pool_workers_max(4);
        assert_eq!(engine.pool_workers_max(), 4);
        let started = queue_sleepers(engine, &sleepers, 10);
        assert_eq!(started.load(Ordering::Relaxed), 4);
        assert_eq!(engine.workers(), 4);
        assert_eq!(reported(engine), [4]);
        // Workers that return from their block take the waiting items.
        engine.host().doze(SEC);
        assert_eq!(started.load(Ordering::Relaxed), 8);
        assert_eq!((engine.workers(), reported(engine)), (4, vec![4]));
        sleepers.flush().unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 10);
    });
}

// Catches: a set of pools in which the last worker to block, and the one that the watcher would wake, are
// of a pool without items.
#[test]
fn a_cap_is_reported_wherever_the_last_worker_blocks() {
    with_engine(Setup::exact("llc:1 core:3"), |engine| {
        let sleepers = shared(engine, "sleepers", AffinityScope::Cache, 256);
        engine.set_pool_workers_max(3);
        for (cpu, blocks_after) in [(0, MS), (1, 2 * MS), (2, 3 * MS)] {
            let item = Item::new({
                let engine = engine.clone();
                move || {
                    engine.host().burn(blocks_after);
                    engine.blocking(|| engine.host().doze(SEC));
                }
            });
            assert_eq!(item.queue_on(&sleepers, cpu), Queued::Yes);
        }
        // Each CPU has an item. The next ones wait in the pool whose worker blocks first.
        engine.host().doze(100 * US);
        assert_eq!(engine.workers(), 3);
        let waits = Item::new(|| {});
        assert_eq!(waits.queue_on(&sleepers, 0), Queued::Yes);
        assert_eq!(reported(engine), []);
        engine.host().doze(100 * MS);
        let pools = |report| match report {
            Report::WorkersMax { pool, max } => Some((pool, max)),
            _ => None,
        };
        let reports: Vec<_> = engine.host().reports().into_iter().filter_map(pools).collect();
        assert_eq!(reports, [("u0".to_owned(), 3)]);
        sleepers.flush().unwrap();
    });
}

#[test]
fn a_raised_cap_lets_waiting_items_start() {
    with_engine(Setup::exact("core:2"), |engine| {
        let sleepers = shared(engine, "sleepers", AffinityScope::System, 256);
        engine.set_pool_workers_max(3);
        let started = queue_sleepers(engine, &sleepers, 10);
        assert_eq!(started.load(Ordering::Relaxed), 3);
        engine.set_pool_workers_max(5);
        engine.host().doze(MS);
        assert_eq!(started.load(Ordering::Relaxed), 5);
        assert_eq!(reported(engine), [3, 5], "a new cap is news");
        // No worker is ended.
        engine.set_pool_workers_max(1);
        assert_eq!(engine.workers(), 5);
        engine.set_pool_workers_max(0);
        engine.host().doze(MS);
        assert_eq!(started.load(Ordering::Relaxed), 10);
        sleepers.flush().unwrap();
        engine.set_pool_workers_max(u32::MAX);
        assert_eq!(engine.pool_workers_max(), POOL_WORKERS_LIMIT);
    });
}

/// The caps of the pools that queues have used so far.
fn caps(engine: &VirtualEngine) -> Vec<u32> {
    engine.dump().pools.iter().map(|pool| pool.workers_max).collect()
}

#[test]
fn the_default_follows_the_limits_of_the_queues() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let first = shared(engine, "first", AffinityScope::System, 100);
        assert_eq!(caps(engine), [100 + 8; 8], "the pools of a pod have one cap");
        let second = shared(engine, "second", AffinityScope::System, 20);
        assert_eq!(caps(engine), [120 + 8; 8], "its items may wait for those of the first");
        second.set_max_active(50).unwrap();
        assert_eq!(caps(engine), [150 + 8; 8]);
        drop(first);
        assert_eq!(caps(engine), [50 + 8; 8]);
        // Items that are already queued run in their old pools: both limits count as long as the
        // queue exists.
        second
            .change_attrs(|attrs| *attrs = self::attrs(engine, AffinityScope::Cache, false))
            .unwrap();
        assert_eq!(caps(engine), [50 + 8; 16], "pods that share have one cap");
        drop(second);
        assert_eq!(caps(engine), [8 + 1; 16]);
    });
}

/// Four items of a queue wait, and its limit is lowered to one: they keep their workers, and an
/// item of another queue needs one more worker.
#[test]
fn runs_above_a_lowered_limit_leave_workers_for_other_queues() {
    for scope in [None, Some(AffinityScope::System), Some(AffinityScope::Cpu)] {
        with_engine(Setup::exact("core:1"), move |engine| {
            let host = engine.host();
            let make_one = |name: &str, max_active| match scope {
                None => make(engine, QueueSpec { max_active, ..spec(name, Kind::PerCpu) }),
                Some(scope) => shared(engine, name, scope, max_active),
            };
            let (first, second) = (make_one("first", 4), make_one("second", 1));
            for _ in 0..4 {
                queue(engine, &first, |engine| engine.blocking(|| engine.host().doze(SEC)));
            }
            host.doze(MS);
            first.set_max_active(1).expect("in range");
            let runs = Arc::new(AtomicU32::new(0));
            let starts = runs.clone();
            queue(engine, &second, move |_| {
                starts.fetch_add(1, Ordering::Relaxed);
            });
            host.doze(5 * MS);
            assert_eq!(runs.load(Ordering::Relaxed), 1, "{scope:?}");
            first.flush().unwrap();
            second.flush().unwrap();
        });
    }
}

#[test]
fn nodes_and_strict_pods_have_caps_of_their_own() {
    with_engine(Setup::exact("node:2 llc:2 core:2"), |engine| {
        // Each node gets half of it, and all pods share.
        let kind = |strict| Kind::Unbound(attrs(engine, AffinityScope::Cache, strict));
        let shared = make(engine, QueueSpec { max_active: 40, ..spec("shared", kind(false)) });
        assert_eq!(caps(engine), [40 + 8; 8]);
        drop(shared);
        let strict = make(engine, QueueSpec { max_active: 40, ..spec("strict", kind(true)) });
        assert_eq!(caps(engine)[8..], [20 + 2; 8]);
        drop(strict);
        let per_cpu = make(engine, QueueSpec { max_active: 7, ..spec("per-cpu", Kind::PerCpu) });
        assert_eq!(caps(engine)[16..], [7 + 1; 8]);
        drop(per_cpu);
    });
}

#[test]
fn a_pool_is_capped_at_half_of_the_permitted_threads() {
    let change = |config: &mut uwork_engine::Config| config.threads_max = Some(20);
    with_config(Setup::exact("core:2"), change, |engine| {
        let sleepers = shared(engine, "sleepers", AffinityScope::System, 256);
        let started = queue_sleepers(engine, &sleepers, 30);
        assert_eq!(started.load(Ordering::Relaxed), 10);
        assert_eq!(reported(engine), [10]);
        sleepers.flush().unwrap();
        assert_eq!(engine.workers(), 10);
    });
}

/// A queue with one worker keeps exactly one, and reaching its cap is not an error.
#[test]
fn a_dedicated_queue_keeps_one_worker() {
    with_engine(Setup::exact("core:2"), |engine| {
        let kind = Kind::Dedicated(attrs(engine, AffinityScope::System, false));
        let own = make(engine, spec("own", kind));
        engine.set_pool_workers_max(100);
        let started = queue_sleepers(engine, &own, 3);
        assert_eq!(started.load(Ordering::Relaxed), 1);
        own.flush().unwrap();
        assert_eq!((engine.workers(), caps(engine)), (1, vec![1]));
        assert!(reported(engine).is_empty());
    });
}
