//! Machines of 128 and 1,024 pods: limits, many queues, and a process that is left with one CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork_engine::{Cpus, Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{SEC, Setup, US, VirtualEngine, attrs, make, spec, with_engine};

/// The CPUs of the set, again and again.
fn around(cpus: &CpuSet) -> impl Iterator<Item = u32> {
    cpus.iter().collect::<Vec<_>>().into_iter().cycle()
}

fn allow(engine: &Arc<VirtualEngine>, allowed: CpuSet) {
    let cpus = Cpus { unbound_cpumask: allowed.clone(), allowed, cpu_limit: None };
    assert!(engine.host().unpreempted(|| engine.set_cpus(cpus)), "nothing has changed");
}

// Catches: a permit of each pod beside that of the node; a waiting pod that is forgotten among many.
#[test]
fn a_limit_is_that_of_all_128_pods_together() {
    for limit in [1, 3] {
        with_engine(Setup::exact("llc:128 core:1"), move |engine| {
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, true));
            let queue = make(engine, QueueSpec { max_active: limit, ..spec("q", kind) });
            let counts: Arc<[AtomicU64; 3]> = Arc::default();
            let items = 4 * 128;
            for cpu in (0..128).cycle().take(items) {
                let (host, counts) = (engine.host().clone(), counts.clone());
                let item = Item::new(move || {
                    let [inside, most, ran] = &*counts;
                    most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    host.burn(10 * US);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
            }
            queue.flush().unwrap();
            let counts = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            assert_eq!(counts, [0, u64::from(limit), items as u64]);
        });
    }
}

// Catches: pools, workers or routes for each queue; a queue that a change of the CPUs has missed.
#[test]
fn a_thousand_queues_on_128_pods_share_them_and_follow_the_cpus() {
    with_engine(Setup::exact("llc:128 core:1"), |engine| {
        let ran = Arc::new(AtomicU64::new(0));
        let kind = || Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
        let queues: Vec<_> =
            (0..1_000).map(|number| make(engine, spec(&format!("q{number}"), kind()))).collect();
        assert_eq!(engine.pools(), 128);
        let all = CpuSet::first_n(128);
        let upper = all.and_not(&CpuSet::first_n(64));
        for (round, now) in [None, Some(upper.clone()), Some(all.clone())].into_iter().enumerate() {
            if let Some(now) = &now {
                allow(engine, now.clone());
            }
            let now = now.unwrap_or_else(|| all.clone());
            for (cpu, queue) in around(&now).zip(&queues) {
                let ran = ran.clone();
                let item = Item::new(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(item.queue_on(queue, cpu), Queued::Yes);
            }
            for queue in &queues {
                queue.flush().unwrap();
                assert_eq!(queue.cpus(), now);
            }
            assert_eq!(ran.load(Ordering::Relaxed), 1_000 * (round as u64 + 1));
            assert_eq!(engine.pools(), 128);
        }
    });
}

// Catches: a worker that stays without a CPU; items that wait in a pool whose CPU has gone.
#[test]
fn one_cpu_of_1024_runs_all_and_the_others_come_back() {
    with_engine(Setup::exact("llc:1024 core:1"), |engine| {
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
        let queue = make(engine, spec("q", kind));
        for allowed in [CpuSet::single(700), CpuSet::first_n(1024), CpuSet::single(3)] {
            let ran = Arc::new(AtomicU64::new(0));
            let note = |allowed: CpuSet| {
                let (host, ran) = (engine.host().clone(), ran.clone());
                Item::new(move || {
                    assert!(allowed.contains(host.cpu()), "{} of {allowed}", host.cpu());
                    host.burn(US);
                    ran.fetch_add(1, Ordering::Relaxed);
                })
            };
            for cpu in around(&queue.cpus()).take(1024) {
                assert_eq!(note(CpuSet::first_n(1024)).queue_on(&queue, cpu), Queued::Yes);
            }
            allow(engine, allowed.clone());
            for cpu in around(&allowed).take(1024) {
                assert_eq!(note(allowed.clone()).queue_on(&queue, cpu), Queued::Yes);
            }
            queue.flush().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 2 * 1024);
            engine.host().doze(400 * SEC);
            assert_eq!(engine.pools(), 1024);
            let most = 2 * allowed.len() as u32;
            assert!(engine.workers() <= most, "{} workers, CPUs {allowed}", engine.workers());
        }
    });
}
