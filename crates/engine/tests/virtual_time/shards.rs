//! Pods of several CPUs, with a pool for each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

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
