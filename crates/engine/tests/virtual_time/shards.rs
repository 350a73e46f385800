//! Pods of several CPUs, with a pool for each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uwork_engine::{Attrs, Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// The CPU and the time of each start.
type Starts = Arc<Mutex<Vec<(u32, u64)>>>;

fn noting(engine: &Arc<VirtualEngine>, starts: &Starts, burns_ns: u64) -> Arc<Item> {
    let (host, starts) = (engine.host().clone(), starts.clone());
    Item::new(move || {
        starts.lock().unwrap().push((host.cpu(), host.time()));
        host.burn(burns_ns);
    })
}

fn caches(engine: &Arc<VirtualEngine>, strict: bool) -> VirtualQueue {
    make(engine, spec("q", Kind::Unbound(attrs(engine, AffinityScope::Cache, strict))))
}

#[test]
fn a_queue_begins_with_a_worker_for_each_pod() {
    with_engine(Setup::exact("llc:4 core:4"), |engine| {
        let queue = caches(engine, false);
        engine.host().doze(MS);
        assert_eq!(engine.workers(), 4);
        let starts = Starts::default();
        for cpu in 0..16 {
            assert_eq!(noting(engine, &starts, MS).queue_on(&queue, cpu), Queued::Yes);
        }
        queue.flush().unwrap();
        let cpus: BTreeSet<u32> = starts.lock().unwrap().iter().map(|start| start.0).collect();
        assert_eq!((cpus, engine.workers()), ((0..16).collect(), 16));
    });
}

// Catches: items of a pool that has no worker and cannot get one.
#[test]
fn one_worker_serves_all_pools_of_its_pod() {
    for strict in [false, true] {
        with_engine(Setup::exact("llc:4 core:4"), move |engine| {
            let (host, queue) = (engine.host(), caches(engine, strict));
            host.doze(MS);
            host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
            let starts = Starts::default();
            for round in 0..10 {
                for cpu in 0..16 {
                    assert_eq!(noting(engine, &starts, MS).queue_on(&queue, cpu), Queued::Yes);
                }
                // Half of the rounds find the workers busy.
                host.doze([0, SEC][round % 2]);
            }
            queue.flush().unwrap();
            let starts = starts.lock().unwrap();
            assert_eq!((starts.len(), engine.workers()), (160, 4));
            let cpus: BTreeSet<u32> = starts.iter().map(|start| start.0).collect();
            assert_eq!(cpus, BTreeSet::from([0, 4, 8, 12]));
        });
    }
}

#[test]
fn a_submitter_that_computes_gets_the_idle_cpus_of_its_pod_at_once() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let (host, queue) = (engine.host(), caches(engine, false));
        host.doze(MS);
        let (starts, begin) = (Starts::default(), host.time());
        for _ in 0..3 {
            assert_eq!(noting(engine, &starts, MS).queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        let mut starts = starts.lock().unwrap();
        starts.sort_unstable();
        assert_eq!(*starts, [(1, begin), (2, begin), (3, begin)]);
    });
}

// Catches: a queue that is congested only on the CPU in whose pool an item happens to wait.
#[test]
fn a_pod_is_congested_on_all_of_its_cpus() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let (host, queue) = (engine.host(), caches(engine, false));
        host.doze(MS);
        queue.pause().unwrap();
        let starts = Starts::default();
        // The submitter computes, so that the item does not wait on its CPU.
        assert_eq!(noting(engine, &starts, MS).queue(&queue), Queued::Yes);
        let congested = (0..8).map(|cpu| queue.is_congested(Some(cpu)).unwrap());
        assert_eq!(congested.collect::<Vec<_>>(), [[true; 4], [false; 4]].concat());
        assert!(queue.is_congested(None).unwrap());
        queue.resume().unwrap();
        queue.flush().unwrap();
        assert_eq!(starts.lock().unwrap()[0].0, 1);
        assert!(!queue.is_congested(None).unwrap());
    });
}

#[test]
fn a_submitter_that_waits_gets_its_own_cpu() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let (host, starts, queue) = (engine.host(), Starts::default(), caches(engine, false));
        let (engine_too, noted) = (engine.clone(), starts.clone());
        let submitter = host.start(&CpuSet::single(6), move || {
            for _ in 0..20 {
                assert_eq!(noting(&engine_too, &noted, 0).queue(&queue), Queued::Yes);
                engine_too.host().doze(MS);
            }
        });
        submitter.join(host);
        let cpus: Vec<u32> = starts.lock().unwrap().iter().map(|start| start.0).collect();
        // The habit is known after four wakes.
        assert!(!cpus[..4].contains(&6), "{cpus:?}");
        assert_eq!(cpus[4..], [6; 16]);
    });
}

#[test]
fn ordered_queues_become_ready_on_different_cpus_after_a_thaw() {
    with_engine(Setup::exact("core:4"), |engine| {
        let starts = Starts::default();
        let ordered = |name: u32| {
            let kind = Kind::Ordered(attrs(engine, AffinityScope::System, false));
            let flags = Flags::FREEZABLE;
            make(engine, QueueSpec { flags, ..spec(&format!("q{name}"), kind) })
        };
        let queues: Vec<_> = (0..8).map(ordered).collect();
        engine.freeze_begin().unwrap();
        for queue in &queues {
            assert_eq!(noting(engine, &starts, 0).queue(queue), Queued::Yes);
        }
        engine.host().doze(MS);
        engine.thaw().unwrap();
        queues.iter().for_each(|queue| queue.flush().unwrap());
        let starts = starts.lock().unwrap();
        let cpus: BTreeSet<u32> = starts.iter().map(|start| start.0).collect();
        assert_eq!((starts.len(), cpus), (8, (0..4).collect()));
    });
}

#[test]
fn a_pod_with_less_cpu_time_than_cpus_stays_whole() {
    with_engine(Setup::exact("core:4"), |engine| {
        let queue = caches(engine, false);
        assert_eq!(engine.dump().pools.len(), 4);
        let limited = uwork_engine::Cpus { cpu_limit: Some(2), ..engine.cpus().clone() };
        assert!(engine.set_cpus(limited));
        let dump = engine.dump();
        let whole = dump.pools.iter().find(|pool| pool.cpus.len() == 4).expect("a whole pod");
        assert_eq!((dump.pools.len(), whole.target), (5, 2));
        queue.flush().unwrap();
    });
}

/// A pod of eight CPUs, whose items take long: each is in one of these phases at a time. Returns how
/// long eight of them took that are enqueued for one CPU.
fn eight_items(flags: Flags, waits_ns: u64) -> u64 {
    let chaos = Chaos { slice_ns: MS, ..Chaos::STEADY };
    with_engine(Setup { machine: "core:8", chaos, seed: 1 }, move |engine| {
        let host = engine.host();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { flags, ..spec("q", kind) });
        host.doze(MS);
        let begin = host.time();
        for _ in 0..8 {
            let inner = engine.clone();
            let item = Item::new(move || {
                if waits_ns > 0 {
                    inner.blocking(|| inner.host().doze(waits_ns));
                }
                inner.host().burn(100 * MS);
            });
            assert_eq!(item.queue_on(&queue, 3), Queued::Yes);
        }
        queue.flush().unwrap();
        host.time() - begin
    })
}

// Catches: workers that compute off the running count of their pool share its CPU, as do those that
// return from a wait, while other CPUs of the pod idle.
#[test]
fn items_whose_workers_do_not_count_use_all_cpus_of_the_pod() {
    for (flags, waits_ns) in [(Flags::CPU_INTENSIVE, 0), (Flags::empty(), MS)] {
        let took = eight_items(flags, waits_ns);
        assert!(took <= 110 * MS + waits_ns, "{flags:?}, {waits_ns}: {took} ns");
    }
}

/// A hog beside items that sleep: other items come to its CPU while it computes.
#[test]
fn a_hog_leaves_its_cpu_to_the_next_item() {
    let chaos = Chaos { slice_ns: MS, ..Chaos::STEADY };
    with_engine(Setup { machine: "core:4", chaos, seed: 1 }, |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, true));
        let queue = make(engine, spec("q", kind));
        host.doze(MS);
        let inner = engine.clone();
        let (ended, note) = (Arc::new(Mutex::new(0)), host.time());
        let seen = ended.clone();
        let hog = Item::new(move || {
            inner.host().burn(200 * MS);
            *seen.lock().unwrap() = inner.host().time() - note;
        });
        assert_eq!(hog.queue_on(&queue, 2), Queued::Yes);
        // The first waits until the hog is found; the others then come at once.
        for _ in 0..3 {
            assert_eq!(noting(engine, &starts, 100 * MS).queue_on(&queue, 2), Queued::Yes);
            host.doze(20 * MS);
        }
        queue.flush().unwrap();
        let ended = *ended.lock().unwrap();
        assert!(ended <= 210 * MS, "the hog shared its CPU: {ended} ns");
    });
}

#[test]
fn an_idle_worker_moves_to_a_pool_without_one_if_no_more_may_be_spawned() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        engine.set_pool_workers_max(2);
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, true));
        let queue = make(engine, spec("q", kind));
        let inner = engine.clone();
        // Its wait brings a second worker to the pool, which then idles.
        let long = Item::new(move || {
            inner.blocking(|| inner.host().doze(MS));
            inner.host().burn(10 * SEC);
        });
        assert_eq!(long.queue_on(&queue, 1), Queued::Yes);
        let starts = Starts::default();
        assert_eq!(noting(engine, &starts, 0).queue_on(&queue, 1), Queued::Yes);
        host.doze(5 * MS);
        assert_eq!(starts.lock().unwrap().len(), 1);
        let begin = host.time();
        assert_eq!(noting(engine, &starts, 0).queue_on(&queue, 2), Queued::Yes);
        host.doze(20 * MS);
        let started = starts.lock().unwrap().get(1).map(|start| start.1 - begin);
        assert!(started.is_some_and(|after| after <= 5 * MS), "{started:?}");
        queue.flush().unwrap();
        assert_eq!(engine.workers(), 2);
    });
}

/// A neighbour whose worker never parks fires them.
#[test]
fn a_deferrable_item_starts_while_another_cpu_of_its_pod_is_busy() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        let (inner, noted) = (host.clone(), starts.clone());
        let deferrable =
            Item::deferrable(move || noted.lock().unwrap().push((inner.cpu(), inner.time())));
        let begin = host.time();
        let own = queue.clone();
        let armed = deferrable.clone();
        let arm = move || assert_eq!(armed.queue_delayed(&own, None, 5 * MS), Queued::Yes);
        host.start(&CpuSet::single(0), arm).join(host);
        let (feeder, clock) = (queue.clone(), host.clone());
        let feed = move || {
            while clock.time() < begin + 50 * MS {
                let busy = clock.clone();
                assert_eq!(Item::new(move || busy.burn(50 * US)).queue_on(&feeder, 1), Queued::Yes);
                clock.doze(40 * US);
            }
        };
        host.start(&CpuSet::single(0), feed).join(host);
        queue.flush().unwrap();
        let starts = starts.lock().unwrap();
        assert_eq!(starts.len(), 1);
        assert!(starts[0].1 - begin <= 8 * MS, "after {} ns", starts[0].1 - begin);
    });
}

/// Items for another NUMA node go to its idle CPUs, and those for the caller's node beside the caller.
#[test]
fn items_for_a_node_use_its_idle_cpus() {
    for node in [0, 1] {
        with_engine(Setup::exact("node:2 core:4"), move |engine| {
            let (host, starts) = (engine.host(), Starts::default());
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Numa, true));
            let queue = make(engine, spec("q", kind));
            host.doze(MS);
            let begin = host.time();
            for _ in 0..3 {
                assert_eq!(noting(engine, &starts, MS).queue_node(&queue, node), Queued::Yes);
            }
            queue.flush().unwrap();
            let starts = starts.lock().unwrap();
            let cpus: BTreeSet<u32> = starts.iter().map(|start| start.0).collect();
            let wanted =
                if node == 0 { BTreeSet::from([1, 2, 3]) } else { BTreeSet::from([4, 5, 6]) };
            assert_eq!(cpus, wanted);
            assert!(starts.iter().all(|start| start.1 == begin), "{starts:?}");
        });
    }
}

/// Items that note their numbers, from 0; some have run in the queue before.
pub(crate) fn numbered(queue: &VirtualQueue) -> (Arc<Mutex<Vec<u64>>>, Vec<Arc<Item>>) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let noting = |number| {
        let order = order.clone();
        Item::new(move || order.lock().unwrap().push(number))
    };
    let items: Vec<_> = (0..16).map(noting).collect();
    for item in items.iter().step_by(3) {
        assert_eq!(item.queue(queue), Queued::Yes);
    }
    queue.flush().unwrap();
    order.lock().unwrap().clear();
    (order, items)
}

/// Items that have run before, and new ones, start in the order of the iterator's.
#[test]
fn items_enqueued_together_stay_in_their_order() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, true));
        let queue = make(engine, QueueSpec { max_active: 1, ..spec("q", kind) });
        let (order, items) = numbered(&queue);
        host.doze(MS);
        Item::queue_each(&items, &queue);
        queue.flush().unwrap();
        assert_eq!(*order.lock().unwrap(), (0..16).collect::<Vec<_>>());
    });
}

/// With one item at a time a pod stays whole: its items start in their order. So they do after a change
/// of the limit.
#[test]
fn a_limit_of_one_keeps_the_order() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        let kind = || Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { max_active: 1, ..spec("q", kind()) });
        let changed = make(engine, QueueSpec { max_active: 8, ..spec("changed", kind()) });
        changed.set_max_active(1).unwrap();
        for queue in [queue, changed.clone()] {
            host.doze(MS);
            let order = Arc::new(Mutex::new(Vec::new()));
            for number in 0..20 {
                let (host, order) = (host.clone(), order.clone());
                let item = Item::new(move || {
                    order.lock().unwrap().push(number);
                    host.burn(MS);
                });
                assert_eq!(item.queue(&queue), Queued::Yes);
            }
            queue.flush().unwrap();
            assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
        }
        changed.set_max_active(4).unwrap();
        let (starts, begin) = (Starts::default(), host.time());
        for _ in 0..3 {
            assert_eq!(noting(engine, &starts, MS).queue(&changed), Queued::Yes);
        }
        changed.flush().unwrap();
        assert!(starts.lock().unwrap().iter().all(|start| start.1 == begin), "{starts:?}");
        // If the pools cannot be made, the limit holds all the same.
        let nice = Attrs { nice: 5, ..attrs(engine, AffinityScope::System, false) };
        let nice = make(engine, QueueSpec { max_active: 8, ..spec("nice", Kind::Unbound(nice)) });
        host.doze(MS);
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        nice.set_max_active(1).unwrap();
        let starts = Starts::default();
        for cpu in 0..4 {
            assert_eq!(noting(engine, &starts, MS).queue_on(&nice, cpu), Queued::Yes);
        }
        nice.flush().unwrap();
        let mut times: Vec<u64> = starts.lock().unwrap().iter().map(|start| start.1).collect();
        times.dedup();
        assert_eq!(times.len(), 4, "one at a time");
    });
}
