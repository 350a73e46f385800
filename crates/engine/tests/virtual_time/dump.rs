//! Dumps: the exact text, from inside an item, beside a stuck worker, and at any moment.

use std::sync::{Arc, Mutex};

use uwork_engine::dump::{Dump, Gate, ITEMS_MAX, WorkerState};
use uwork_engine::host::{Activity, Observer as _};
use uwork_engine::{Attrs, Kind, QueueSpec, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, attrs, make, spec, with_engine};

/// Random order, and preemption at every possible point.
const CHAOS: Chaos =
    Chaos { drawn_order: true, preempt_one_in: 4, early_one_in: 20, ..Chaos::STEADY };

/// An item that uses its CPU for `ns`.
fn burning(engine: &Arc<VirtualEngine>, ns: u64) -> Arc<Item> {
    let engine = Arc::downgrade(engine);
    Item::new(move || engine.upgrade().expect("it runs this").host().burn(ns))
}

/// The text, with names for these items.
fn text(dump: Dump, items: &[(&str, &Arc<Item>)]) -> String {
    let mut text = dump.to_string();
    for (name, item) in items {
        text = text.replace(&format!("{:#x}", Arc::as_ptr(item).addr()), name);
    }
    text
}

const KNOWN_STATE: &str = "\
machine  allowed 0-1  unbound 0-1
         default scope cache
blocking declared: the test says so

scopes
  cpu          nr_pods 2    pod_cpus 0:0 1:1  cpu_pod 0:0 1:1  pod_node 0:0 1:0
  smt          nr_pods 2    pod_cpus 0:0 1:1  cpu_pod 0:0 1:1  pod_node 0:0 1:0
  cluster      nr_pods 2    pod_cpus 0:0 1:1  cpu_pod 0:0 1:1  pod_node 0:0 1:0
  cache_shard  nr_pods 1    pod_cpus 0:0-1  cpu_pod 0:0 1:0  pod_node 0:0
  cache        nr_pods 1    pod_cpus 0:0-1  cpu_pod 0:0 1:0  pod_node 0:0
  numa         nr_pods 1    pod_cpus 0:0-1  cpu_pod 0:0 1:0  pod_node 0:0
  system       nr_pods 1    pod_cpus 0:0-1  cpu_pod 0:0 1:0  pod_node 0:0

pools
  pool 0    cpus 0  nice 0  target 1  workers 1  running 0  idle 1  max 2
    slot 0    uw/0  idle  thread 2
  pool 1    cpus 1  nice 0  target 1  workers 1  running 1  idle 0  max 2
    slot 1    uw/1  running  thread 3  run 1  queue limited  for at most 2.0 ms  test::Item
  pool 2    cpus 0  nice 0  target 1  workers 1  running 0  idle 0  max 1026  armed 1  next timer in 18.0 ms
    slot 2    uw/u0  waiting  thread 5  run 1  queue free  for at most 2.0 ms  test::Item
    armed  in 18.0 ms  item LATER  test::Item  queue free  cpu 0
  pool 3    cpus 1  nice 0  target 1  workers 0  running 0  idle 0  max 1026

queues
  queue limited  per-cpu  flags -  cpus 0-1  nice 0  max_active 1  run by slots 1
    pwq 0    pool 0  active 0/1  pending 0  in flight 0  colour 0  started 0  item 100.0 us
    pwq 1    pool 1  active 1/1  pending 1  in flight 0:2  colour 0  started 1  item 100.0 us  saturated
      inactive  item SECOND  test::Item
  queue free  unbound  flags UNBOUND|FREEZABLE  cpus 0-1  nice 0  scope system strict  max_active 1024  run by slots 2
    node 0    active 1/1024  waiting pwqs 0
    pwq 2    pool 2  active 1/1024  pending 0  in flight 0:1  colour 0  started 1  item 100.0 us
    pwq 3    pool 3  active 0/1024  pending 0  in flight 0  colour 0  started 0  item 100.0 us
";

#[test]
fn the_text_of_a_known_state() {
    let text = with_engine(Setup::exact("llc:1 core:2"), |engine| {
        let limited = QueueSpec { max_active: 1, ..spec("limited", Kind::PerCpu) };
        let limited = make(engine, limited);
        let system: Attrs = attrs(engine, AffinityScope::System, true);
        let flags = Flags::UNBOUND | Flags::FREEZABLE;
        let unbound = QueueSpec { flags, ..spec("free", Kind::Unbound(system)) };
        let unbound = make(engine, unbound);
        engine.host().doze(MS);
        let (first, second, later) =
            (burning(engine, 5 * MS), burning(engine, MS), burning(engine, MS));
        assert_eq!(first.queue_on(&limited, 1), Queued::Yes);
        assert_eq!(later.queue_delayed(&unbound, Some(0), 20 * MS), Queued::Yes);
        let weak = Arc::downgrade(engine);
        let waiting = Item::new(move || {
            let engine = weak.upgrade().expect("it runs this");
            engine.blocking(|| engine.host().doze(10 * MS));
        });
        assert_eq!(waiting.queue_on(&unbound, 0), Queued::Yes);
        engine.host().doze(2 * MS);
        assert_eq!(second.queue_on(&limited, 1), Queued::Yes);
        let named = [("SECOND", &second), ("LATER", &later)];
        let text = text(engine.dump(), &named);
        assert!(later.cancel(engine));
        text
    });
    assert_eq!(text, KNOWN_STATE, "\n{text}");
}

// Catches: nodes that are left out, the limit of the queue instead of the node's, permits of another
// node.
#[test]
fn a_node_whose_pods_share_a_limit_is_shown_with_it() {
    with_engine(Setup::exact("node:2 llc:2 core:2"), |engine| {
        let cache = attrs(engine, AffinityScope::Cache, true);
        let spec = QueueSpec { max_active: 4, ..spec("shared", Kind::Unbound(cache)) };
        let queue = make(engine, spec);
        queue.set_min_active(1).unwrap();
        // CPUs 4 and 6 are in two pods of node 1, which has half of the limit. The test runs on CPU 0.
        let items: Vec<_> = (0..4).map(|_| burning(engine, 10 * MS)).collect();
        for (item, cpu) in items.iter().zip([4, 4, 6, 6]) {
            assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
            engine.host().doze(MS);
        }
        let dump = engine.dump();
        let nodes = &dump.queues.iter().find(|queue| queue.name == "shared").unwrap().nodes;
        let figures: Vec<_> =
            nodes.iter().map(|node| (node.node, node.nr, node.max, node.waiting)).collect();
        assert_eq!(figures, [(Some(0), 0, 2, 0), (Some(1), 2, 2, 1)]);
        let shown = dump.to_string();
        assert!(shown.contains("    node 1    active 2/2  waiting pwqs 1"), "{shown}");
        queue.flush().unwrap();
    });
}

/// A pod is of the node of its CPUs. A pod that spans several nodes is of none.
#[test]
fn each_pod_has_its_node() {
    with_engine(Setup::exact("node:2 llc:2 core:1"), |engine| {
        let dump = engine.dump();
        let nodes = |scope: AffinityScope| {
            let of = dump.scopes.iter().find(|found| found.scope == scope).expect("every scope");
            of.pod_node.clone()
        };
        assert_eq!(nodes(AffinityScope::Cache), [0, 0, 1, 1].map(Some));
        assert_eq!(nodes(AffinityScope::Numa), [0, 1].map(Some));
        assert_eq!(nodes(AffinityScope::System), [None]);
        let text = dump.to_string();
        assert!(text.contains("  pod_node 0:0 1:0 2:1 3:1\n"), "{text}");
        assert!(text.contains("  pod_node 0:-\n"), "{text}");
    });
}

/// A worker that was found blocked is shown so until it is back.
#[test]
fn a_worker_blocked_undeclared_is_shown_asleep() {
    for tier in [Tier::Events, Tier::Sampling] {
        with_engine(Setup::exact("core:1"), move |engine| {
            engine.host().detecting().tier = tier;
            let queue = make(engine, spec("q", Kind::PerCpu));
            let weak = Arc::downgrade(engine);
            let sleeper = Item::new(move || {
                let engine = weak.upgrade().expect("it runs this");
                engine.host().doze(20 * MS);
                engine.host().burn(20 * MS);
            });
            // The watcher does not sample a worker behind which nothing waits.
            for item in [sleeper, burning(engine, 30 * MS)] {
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            engine.host().doze(10 * MS);
            let dump = engine.dump();
            assert_eq!(dump.blocking.tier, tier);
            let states = |dump: &Dump| -> Vec<WorkerState> {
                dump.pools[0].workers.iter().map(|worker| worker.state).collect()
            };
            assert!(states(&dump).contains(&WorkerState::Asleep), "{tier}: {dump}");
            let shown = dump.to_string();
            let is_it = |line: &str| line.contains("  asleep  ") && line.contains("run 1  queue q");
            assert!(shown.lines().any(is_it), "{dump}");
            queue.flush().unwrap();
            let dump = engine.dump();
            assert!(!states(&dump).contains(&WorkerState::Asleep), "{tier}: {dump}");
        });
    }
}

/// A dump with the states of the threads.
fn seen(engine: &VirtualEngine) -> Dump {
    let mut dump = engine.dump();
    let activity = |thread| engine.host().activity(thread);
    engine.note_sleepers(&mut dump, |thread| {
        matches!(activity(thread), Some(Activity::Sleeps { .. }))
    });
    dump
}

/// While nothing waits for a worker, the engine does not look for sleepers: the system's state is shown
/// beside the engine's.
#[test]
fn a_running_worker_whose_thread_sleeps_is_shown_so() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let weak = Arc::downgrade(engine);
        let item = Item::new(move || {
            let engine = weak.upgrade().expect("it runs this");
            engine.host().burn(10 * MS);
            engine.host().doze(10 * MS);
        });
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        for sleeps in [false, true] {
            engine.host().doze(if sleeps { 10 * MS } else { 5 * MS });
            let dump = seen(engine);
            let worker = &dump.pools[1].workers[0];
            assert_eq!((worker.state, worker.sleeps), (WorkerState::Running, sleeps), "{dump}");
            let state = if sleeps { "running (asleep)" } else { "running" };
            assert!(dump.to_string().contains(&format!("uw/1  {state}  thread ")), "{dump}");
            assert!(dump.to_json().contains(&format!("\"sleeps\":{sleeps},")), "{dump}");
        }
        queue.flush().unwrap();
        // A worker without an item sleeps, too.
        let dump = seen(engine);
        let mut workers = dump.pools.iter().flat_map(|pool| &pool.workers);
        assert!(workers.all(|worker| !worker.sleeps), "{dump}");
    });
}

/// Items that a worker took and has not started are shown behind it. An item that waits for its own
/// run is shown as deferred.
#[test]
fn items_behind_a_stuck_item_are_shown() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        // Items do not stay scheduled behind a hog, so turn hog detection off.
        engine.set_cpu_intensive_thresh(0);
        let others: Vec<_> = (0..ITEMS_MAX + 4).map(|_| burning(engine, US)).collect();
        let (weak, seen) = (Arc::downgrade(engine), Arc::new(Mutex::new(None)));
        let place = seen.clone();
        // Short items first: then the worker takes several at once.
        let warm: Vec<_> = (0..64).map(|_| burning(engine, US)).collect();
        for item in &warm {
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        }
        queue.flush().unwrap();
        let inside = Item::new(move || {
            let engine = weak.upgrade().expect("it runs this");
            engine.host().burn(50 * MS);
            *place.lock().unwrap() = Some(engine.dump());
        });
        for item in std::iter::once(&inside).chain(&others) {
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        }
        engine.host().doze(MS);
        let beside = engine.dump();
        queue.flush().unwrap();
        let inside = seen.lock().unwrap().take().expect("it has run");
        for dump in [beside, inside] {
            let worker = &dump.pools[1].workers[0];
            assert_eq!(worker.state, WorkerState::Running, "{dump}");
            let running = worker.running.as_ref().expect("it runs");
            assert_eq!(running.queue.as_deref(), Some("q"));
            let queue = &dump.queues[0];
            assert_eq!(worker.scheduled.total + queue.pending(), ITEMS_MAX + 4, "{dump}");
            assert!(worker.scheduled.total > 0, "{dump}");
            let listed = worker.scheduled.first.iter().chain(&queue.pwqs[1].pending.first);
            let expected = others.iter().map(|item| Arc::as_ptr(item).addr());
            let shown: Vec<usize> = listed.map(|item| item.address).collect();
            assert!(shown.len() <= 2 * ITEMS_MAX && shown.len() >= ITEMS_MAX, "{dump}");
            assert!(shown.iter().copied().eq(expected.take(shown.len())), "{dump}");
            let text = dump.to_string();
            assert_eq!(text.contains(" more"), shown.len() < ITEMS_MAX + 4, "{text}");
        }
    });
}

/// An item that is queued again while it runs is deferred, and a flush is shown as a waiter.
#[test]
fn deferred_items_and_waiters_are_shown() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let weak = Arc::downgrade(engine);
        // The item's wait is declared: another worker takes the items queued meanwhile.
        let item = Item::new(move || {
            let engine = weak.upgrade().expect("it runs this");
            engine.blocking(|| engine.host().doze(10 * MS));
        });
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        engine.host().doze(MS);
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        let handle = queue.clone();
        let flusher = engine.host().start(&uwork_policy::cpuset::CpuSet::single(0), move || {
            handle.flush().unwrap();
        });
        engine.host().doze(MS);
        let dump = engine.dump();
        let deferred = &dump.pools[1].workers[0].deferred;
        assert_eq!((deferred.total, deferred.first[0].address), (1, Arc::as_ptr(&item).addr()));
        assert!(dump.to_string().contains("deferred  item"), "{dump}");
        let dump = queue.dump();
        assert_eq!((dump.flushers, dump.gate, dump.in_flight()), (1, Gate::Open, 2));
        let awaited: Vec<usize> = dump.pwqs.iter().flat_map(|pwq| pwq.awaited.clone()).collect();
        assert_eq!(awaited, [0], "{dump}");
        flusher.join(engine.host());
        assert_eq!((queue.dump().flushers, queue.dump().in_flight()), (0, 0));
    });
}

/// A dump returns whatever the engine is doing, and it is consistent: pending items are in flight,
/// and counts stay within their bounds.
#[test]
fn a_dump_at_any_moment_is_consistent() {
    for seed in 0..60 {
        let chaos = CHAOS;
        with_engine(Setup { machine: "llc:2 core:2", chaos, seed }, |engine| {
            let per_cpu = make(engine, spec("p", Kind::PerCpu));
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
            let unbound = make(engine, QueueSpec { max_active: 3, ..spec("u", kind) });
            let items: Vec<_> = (0..40).map(|n| burning(engine, n * 5 * US)).collect();
            for round in 0..30_usize {
                for item in items.iter().skip(round % 3).step_by(3) {
                    let queue = if round % 2 == 0 { &per_cpu } else { &unbound };
                    let _ = item.queue(queue);
                }
                let dump = engine.dump();
                check(&dump);
                if round % 10 == 9 {
                    engine.host().doze(100 * US);
                }
            }
            per_cpu.drain().unwrap();
            unbound.drain().unwrap();
            let dump = engine.dump();
            check(&dump);
            assert!(dump.queues.iter().all(|queue| queue.in_flight() == 0), "{dump}");
        });
    }
}

fn check(dump: &Dump) {
    assert_eq!(dump.queues.len(), 2, "{dump}");
    for pwq in dump.queues.iter().flat_map(|queue| &queue.pwqs) {
        let in_flight: u32 = pwq.in_flight.iter().sum();
        assert!(pwq.pending.total <= in_flight as usize, "{dump}");
        assert_eq!(pwq.pending.first.len(), pwq.pending.total.min(ITEMS_MAX), "{dump}");
    }
    for pool in &dump.pools {
        assert!(pool.nr_idle + pool.nr_running <= pool.nr_workers, "{dump}");
        assert!(pool.workers.iter().all(|w| w.state != WorkerState::Idle || w.running.is_none()));
    }
    assert!(dump.to_string().lines().count() > dump.pools.len() + dump.queues.len());
}
