//! Pools whose CPUs go and come back: there are no more of them than CPUs, they are used again, and help
//! no neighbour meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Attrs, Config, Cpus, Kind, Queue, QueueError, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::chance::Chaos;
use crate::item::Item;
use crate::saving::choose;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_config, with_engine,
};
use crate::shards::numbered;

/// Longer than a worker stays that the pool does not need.
const RETIRED: u64 = 400 * SEC;

fn list(cpus: &str) -> CpuSet {
    cpus.parse().expect("a list")
}

/// Permits the process these CPUs, and unbound queues some of them.
fn permit(engine: &Arc<VirtualEngine>, allowed: &CpuSet, unbound: &CpuSet) {
    let (allowed, unbound_cpumask) = (allowed.clone(), unbound.clone());
    let cpus = Cpus { allowed, unbound_cpumask, cpu_limit: None };
    assert!(engine.host().unpreempted(|| engine.set_cpus(cpus)), "nothing has changed");
}

fn allow(engine: &Arc<VirtualEngine>, allowed: &str) {
    permit(engine, &list(allowed), &list(allowed));
}

/// The CPU of each start.
type Starts = Arc<Mutex<Vec<u32>>>;

fn noting(engine: &Arc<VirtualEngine>, starts: &Starts, burns_ns: u64) -> Arc<Item> {
    let (host, starts) = (engine.host().clone(), starts.clone());
    Item::new(move || {
        starts.lock().unwrap().push(host.cpu());
        host.burn(burns_ns);
    })
}

/// The CPUs of the starts so far, in their order, which are forgotten.
fn taken(starts: &Starts) -> Vec<u32> {
    std::mem::take(&mut *starts.lock().unwrap())
}

/// Attributes for all CPUs of the machine.
fn everywhere(engine: &VirtualEngine, scope: AffinityScope, strict: bool) -> Attrs {
    let cpumask = engine.config().topology.possible().clone();
    Attrs { nice: 0, cpumask, scope: AffinityScopeChoice::Explicit(scope), strict }
}

/// Many different sets of CPUs of a machine of 64: small ones, and what these leave. CPU 5 is in each.
fn some_cpus(round: u64) -> CpuSet {
    let few: CpuSet =
        (0..11).filter(|bit| (round + 1) >> bit & 1 == 1).map(|bit| 6 * bit).collect();
    if round.is_multiple_of(2) {
        few.or(&CpuSet::single(5))
    } else {
        CpuSet::first_n(64).and_not(&few)
    }
}

// Catches: pools for each set of CPUs. On large machines another system changes these with each container
// that it starts, and in the end no queue follows any more.
#[test]
fn many_sets_of_cpus_after_each_other_need_no_further_pools() {
    const ROUNDS: u64 = 1_100;
    with_engine(Setup::exact("llc:8 core:8"), |engine| {
        let host = engine.host();
        let of_scope = |name: &str, scope, strict| {
            make(engine, spec(name, Kind::Unbound(attrs(engine, scope, strict))))
        };
        let adapts = Attrs {
            nice: 1,
            scope: AffinityScopeChoice::Default,
            ..attrs(engine, AffinityScope::Cache, false)
        };
        let queues = [
            of_scope("caches", AffinityScope::Cache, false),
            of_scope("strict", AffinityScope::Cpu, true),
            make(engine, spec("bound", Kind::PerCpu)),
            make(engine, spec("ordered", Kind::Ordered(attrs(engine, AffinityScope::Cpu, false)))),
            make(engine, spec("own", Kind::Dedicated(attrs(engine, AffinityScope::Cpu, false)))),
            make(engine, spec("adapts", Kind::Unbound(adapts))),
        ];
        // One for each CPU: of the caches, strict, per-CPU, and of the ordered queue, and of the one that
        // adapts; a dedicated one.
        assert_eq!(engine.pools(), 5 * 64 + 1);
        let starts = Starts::default();
        let items = queues.each_ref().map(|_| [0; 2].map(|_| noting(engine, &starts, US)));
        for round in 0..ROUNDS {
            let now = some_cpus(round);
            permit(engine, &now, &now);
            for (queue, items) in queues.iter().zip(&items) {
                // The caller's CPU is in some of the sets.
                assert_eq!(items[0].queue(queue), Queued::Yes);
                assert_eq!(items[1].queue_on(queue, now.last().unwrap()), Queued::Yes);
            }
            for queue in &queues {
                queue.flush().unwrap();
                assert_eq!(queue.cpus(), now, "round {round}");
            }
            let cpus = taken(&starts);
            assert_eq!(cpus.len(), 2 * queues.len(), "round {round}");
            assert!(cpus.iter().all(|&cpu| now.contains(cpu)), "{cpus:?} in round {round}: {now}");
        }
        // The default scope has single CPUs where a set is within one cache.
        assert_eq!(engine.pools(), 6 * 64 + 1);
        let pwqs: usize = engine.dump().queues.iter().map(|queue| queue.pwqs.len()).sum();
        // Two sets are within the first cache: of CPUs 0 and 5, and of these and 6.
        assert_eq!(pwqs, 4 * 64 + 1 + 1 + 3);
        // Of each pool that is in place two may stay. Those of the others end, whether they lost their
        // routes with their CPUs or before: those of the default scope before, in the second change.
        for allowed in ["0,5", "5,9"] {
            allow(engine, allowed);
            host.doze(RETIRED);
            for pool in engine.dump().pools {
                assert_eq!(pool.displaced, !pool.cpus.intersects(&list(allowed)), "{pool:?}");
                let most = if pool.displaced { 0 } else { 2 };
                assert!(pool.nr_workers <= most, "{allowed}: {pool:?}");
            }
        }
    });
}

// Catches: pools for all CPUs of a large machine in a process that has one of them.
#[test]
fn pools_are_made_for_the_cpus_that_the_process_had() {
    let one = |config: &mut Config| {
        *config = Config::new(config.topology.clone(), CpuSet::single(700));
    };
    with_config(Setup::exact("llc:1024 core:1"), one, |engine| {
        let (starts, kind) = (Starts::default(), everywhere(engine, AffinityScope::Cpu, false));
        let queue = make(engine, spec("q", Kind::Unbound(kind)));
        let item = noting(engine, &starts, US);
        let run = |pools: u32, workers: u32| {
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
            engine.host().doze(RETIRED);
            assert_eq!((engine.pools(), engine.workers()), (pools, workers));
            taken(&starts)[0]
        };
        assert_eq!(run(1, 1), 700);
        allow(engine, "700-701");
        // The first pool has lost its route, and is in place: it keeps a worker until its CPU goes.
        assert!((700..=701).contains(&run(1 + 2, 3)));
        allow(engine, "3");
        assert_eq!(run(1 + 2 + 3, 1), 3);
        for (allowed, cpu) in [("701", 701), ("700", 700), ("3", 3)] {
            allow(engine, allowed);
            assert_eq!(run(1 + 2 + 3, 1), cpu);
        }
    });
}

// Catches: workers of pools that have lost their CPUs, which take turns on those that are left.
#[test]
fn pools_without_a_cpu_take_no_items_of_others() {
    for machine in ["core:4", "llc:4 core:8"] {
        let chaos = Chaos { slice_ns: MS, ..Chaos::STEADY };
        with_engine(Setup { machine, chaos, seed: 1 }, move |engine| {
            let (host, starts) = (engine.host(), Starts::default());
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Cpu, false));
            let queue = make(engine, spec("q", kind));
            for cpu in engine.config().allowed.iter() {
                assert_eq!(noting(engine, &starts, 2 * MS).queue_on(&queue, cpu), Queued::Yes);
            }
            queue.flush().unwrap();
            taken(&starts);
            for (allowed, at_once) in [("1", 1), ("1-2", 2), ("3", 1)] {
                allow(engine, allowed);
                let inside = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
                for _ in 0..20 {
                    let (host, inside) = (host.clone(), inside.clone());
                    let item = Item::new(move || {
                        let now = inside.0.fetch_add(1, Ordering::Relaxed) + 1;
                        inside.1.fetch_max(now, Ordering::Relaxed);
                        host.burn(2 * MS);
                        inside.0.fetch_sub(1, Ordering::Relaxed);
                    });
                    assert_eq!(item.queue(&queue), Queued::Yes);
                }
                queue.flush().unwrap();
                let most = inside.1.load(Ordering::Relaxed);
                assert_eq!(most, at_once, "{machine}, CPUs {allowed}");
            }
        });
    }
}

/// The queue begins with a worker for each CPU, or with one for its pod.
#[test]
fn the_workers_of_a_lost_cpu_end_and_others_come_with_it() {
    type KindOf = fn(&VirtualEngine) -> Kind;
    let kinds: [(KindOf, u32); 4] = [
        (|_| Kind::PerCpu, 2),
        (|engine| Kind::Unbound(attrs(engine, AffinityScope::Cpu, true)), 2),
        (|engine| Kind::Unbound(attrs(engine, AffinityScope::Cpu, false)), 2),
        (|engine| Kind::Unbound(attrs(engine, AffinityScope::System, false)), 1),
    ];
    for (kind, workers) in kinds {
        with_engine(Setup::exact("core:2"), move |engine| {
            let (host, starts) = (engine.host(), Starts::default());
            let queue = make(engine, spec("q", kind(engine)));
            let pools = engine.pools();
            for lost in [0, 1, 0, 1] {
                let left = 1 - lost;
                allow(engine, &left.to_string());
                host.doze(RETIRED);
                assert_eq!(engine.workers(), 1, "without CPU {lost}");
                allow(engine, "0-1");
                host.doze(MS);
                assert_eq!(engine.workers(), workers, "with CPU {lost} again");
                for cpu in [0, 1] {
                    assert_eq!(noting(engine, &starts, MS).queue_on(&queue, cpu), Queued::Yes);
                }
                queue.flush().unwrap();
                let mut cpus = taken(&starts);
                cpus.sort_unstable();
                assert_eq!((cpus, engine.workers()), (vec![0, 1], 2));
                host.doze(MS);
                assert_eq!(engine.pools(), pools);
            }
        });
    }
}

/// Items in a pool that loses its CPU, with its worker in the first of them, and timers that expire when it
/// has no worker any more.
#[test]
fn items_and_timers_of_a_lost_cpu_are_not_left_behind() {
    for strict in [false, true] {
        for scope in [AffinityScope::Cpu, AffinityScope::Cache, AffinityScope::System] {
            with_engine(Setup::exact("llc:2 core:2"), move |engine| {
                let (host, starts) = (engine.host(), Starts::default());
                let queue = make(engine, spec("q", Kind::Unbound(attrs(engine, scope, strict))));
                let late = noting(engine, &starts, US);
                assert_eq!(late.queue_delayed(&queue, Some(1), RETIRED + SEC), Queued::Yes);
                for _ in 0..10 {
                    assert_eq!(noting(engine, &starts, 2 * MS).queue_on(&queue, 1), Queued::Yes);
                }
                host.doze(MS);
                allow(engine, "2-3");
                let before = taken(&starts).len();
                assert!((1..10).contains(&before), "{before}");
                queue.flush().unwrap();
                let after = taken(&starts);
                assert_eq!(before + after.len(), 10);
                assert!(after.iter().all(|cpu| (2..4).contains(cpu)), "{after:?}");
                host.doze(2 * RETIRED);
                let expired = taken(&starts);
                assert!(matches!(expired[..], [2 | 3]), "{expired:?}, {scope}, {strict}");
            });
        }
    }
}

// Catches: workers of lost CPUs on CPUs that are not of their queue's mask.
#[test]
fn items_of_a_lost_cpu_stay_on_the_cpus_of_their_queue() {
    for strict in [false, true] {
        with_engine(Setup::exact("core:8"), move |engine| {
            let (host, starts) = (engine.host(), Starts::default());
            let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
            let kind = Kind::Unbound(Attrs { nice: 0, cpumask: list("0-3"), scope, strict });
            let queue = make(engine, spec("q", kind));
            for _ in 0..40 {
                assert_eq!(noting(engine, &starts, MS).queue_on(&queue, 0), Queued::Yes);
            }
            host.doze(MS);
            for allowed in ["2-7", "3-7"] {
                allow(engine, allowed);
                taken(&starts);
                host.doze(5 * MS);
                let (cpus, usable) = (taken(&starts), list(allowed).and(&list("0-3")));
                assert!(cpus.len() >= 4, "{cpus:?}");
                assert!(cpus.iter().all(|&cpu| usable.contains(cpu)), "{cpus:?} of {usable}");
            }
            queue.flush().unwrap();
        });
    }
}

// Catches: a queue's CPUs that are forgotten because the process had none of them before.
#[test]
fn items_of_a_lost_cpu_go_to_a_cpu_of_their_queue_that_is_new() {
    let seven = |config: &mut Config| {
        *config = Config::new(config.topology.clone(), CpuSet::first_n(7));
    };
    with_config(Setup::exact("core:8"), seven, |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
        let kind = Kind::Unbound(Attrs { nice: 0, cpumask: list("0,7"), scope, strict: false });
        let queue = make(engine, spec("q", kind));
        for _ in 0..20 {
            assert_eq!(noting(engine, &starts, MS).queue_on(&queue, 0), Queued::Yes);
        }
        host.doze(MS);
        allow(engine, "1-7");
        taken(&starts);
        queue.flush().unwrap();
        let cpus = taken(&starts);
        assert!(cpus.len() >= 18 && cpus.iter().all(|&cpu| cpu == 7), "{cpus:?}");
    });
}

// Catches: a worker that looks at the nearest pools only, all of which have lost their CPUs.
#[test]
fn a_worker_queues_timers_of_the_nearest_pools_that_have_their_cpus() {
    with_engine(Setup::exact("core:64"), |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, spec("q", kind));
        for allowed in ["0,20,40,60", "0-63", "1,31"] {
            allow(engine, allowed);
            let cpus = list(allowed);
            let (first, other) = (cpus.first().unwrap(), cpus.iter().nth(1).unwrap());
            for cpu in [first, other] {
                assert_eq!(noting(engine, &starts, US).queue_on(&queue, cpu), Queued::Yes);
            }
            queue.flush().unwrap();
            host.doze(SEC);
            taken(&starts);
            let (theirs, at) = (starts.clone(), host.clone());
            let late = Item::deferrable(move || theirs.lock().unwrap().push(at.cpu()));
            assert_eq!(late.queue_delayed(&queue, Some(other), 10 * MS), Queued::Yes);
            host.doze(SEC);
            assert_eq!(taken(&starts), [], "no worker wakes for it");
            assert_eq!(noting(engine, &starts, US).queue_on(&queue, first), Queued::Yes);
            host.doze(SEC);
            assert_eq!(taken(&starts).len(), 2, "CPUs {allowed}");
        }
    });
}

// Catches: timers that no thread covers, since the pool's only worker has moved away.
#[test]
fn timers_of_a_lost_cpu_are_kept_when_its_last_worker_moves() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cpu, false));
        let queue = make(engine, spec("q", kind));
        for cpu in [0, 1] {
            assert_eq!(noting(engine, &starts, MS).queue_on(&queue, cpu), Queued::Yes);
        }
        queue.flush().unwrap();
        let late = noting(engine, &starts, US);
        assert_eq!(late.queue_delayed(&queue, Some(1), 20 * MS), Queued::Yes);
        allow(engine, "0");
        taken(&starts);
        let theirs = engine.clone();
        let waits = Item::new(move || theirs.blocking(|| theirs.host().doze(SEC)));
        assert_eq!(waits.queue(&queue), Queued::Yes);
        // The watcher has come for this item, and sleeps until its next look, in 250 ms.
        host.doze(MS);
        assert_eq!(noting(engine, &starts, US).queue(&queue), Queued::Yes);
        host.doze(MS);
        assert_eq!((taken(&starts), engine.workers()), (vec![0], 2), "the worker has moved");
        let left = engine.dump().pools.into_iter().find(|pool| pool.displaced).unwrap();
        assert_eq!(left.nr_workers, 0);
        host.doze(20 * MS);
        assert_eq!(taken(&starts), [0], "its timer has no keeper");
    });
}

// Catches: queues that keep their CPUs without a report.
#[test]
fn a_queue_for_which_no_pools_are_left_is_reported_once_for_each_change() {
    with_engine(Setup::exact("llc:1024 core:1"), |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let of_scope = |name: &str, nice, scope| {
            let cpumask = engine.config().topology.possible().clone();
            spec(name, Kind::Unbound(Attrs { nice, cpumask, scope, strict: true }))
        };
        let system = AffinityScopeChoice::Explicit(AffinityScope::System);
        // A pool for each of these CPUs, and a worker in one of them.
        let _first = make(engine, of_scope("first", 0, system));
        allow(engine, "5");
        let adapts = make(engine, of_scope("adapts", 1, AffinityScopeChoice::Default));
        let cpu = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
        let mut kept = Vec::new();
        let is_full = (0..).any(|at: u32| {
            let cpumask = engine.config().topology.possible().and_not(&CpuSet::single(at / 40 + 6));
            let kind = Attrs { nice: (at % 40) as i32 - 20, cpumask, scope: cpu, strict: true };
            let spec = spec(&format!("q{at}"), Kind::Unbound(kind));
            match host.unpreempted(|| Queue::new(engine, spec)) {
                Ok(queue) => kept.push(queue),
                Err(error) => return error == QueueError::TooManyPools,
            }
            false
        });
        assert!(is_full && kept.len() > 60, "{}", kept.len());
        let adopt = |scope| {
            let change = || engine.set_housekeeping(|settings| settings.default_scope = scope);
            host.unpreempted(change).unwrap();
            assert_eq!(noting(engine, &starts, US).queue(&adapts), Queued::Yes);
            host.doze(SEC);
            assert_eq!(taken(&starts), [5]);
            let kept = |report: &Report| matches!(report, Report::RoutesKept { .. });
            host.reports().iter().filter(|&report| kept(report)).count()
        };
        // The pools of single CPUs are known.
        let scopes = [AffinityScope::System, AffinityScope::Cpu, AffinityScope::System];
        assert_eq!(scopes.map(adopt), [1, 1, 2]);
    });
}

// Catches: permits that pwqs of lost CPUs keep for ever, and a limit that is exceeded by as many.
#[test]
fn the_limit_is_reached_after_cpus_went_while_permits_were_kept() {
    for (limit, busy) in [(8, false), (8, true), (20, false), (20, true)] {
        with_engine(Setup::exact("core:8"), move |engine| {
            let host = engine.host();
            let kind = Kind::Unbound(attrs(engine, AffinityScope::Cpu, false));
            let queue = make(engine, QueueSpec { max_active: limit, ..spec("q", kind) });
            let inside = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            let waits = || {
                let (engine, inside) = (engine.clone(), inside.clone());
                Item::new(move || {
                    let now = inside.0.fetch_add(1, Ordering::Relaxed) + 1;
                    inside.1.fetch_max(now, Ordering::Relaxed);
                    engine.blocking(|| engine.host().doze(10 * MS));
                    inside.0.fetch_sub(1, Ordering::Relaxed);
                })
            };
            // Each pwq keeps a permit from then on.
            for cpu in 0..8 {
                assert_eq!(waits().queue_on(&queue, cpu), Queued::Yes);
            }
            if busy {
                host.doze(5 * MS);
            } else {
                queue.flush().unwrap();
            }
            for allowed in ["0-1", "7", "0-7", "6"] {
                allow(engine, allowed);
                for _ in 0..40 {
                    assert_eq!(waits().queue(&queue), Queued::Yes);
                }
                if busy {
                    host.doze(15 * MS);
                } else {
                    queue.flush().unwrap();
                }
                let most = inside.1.swap(0, Ordering::Relaxed);
                assert_eq!(most, u64::from(limit), "CPUs {allowed}, busy {busy}");
            }
            queue.flush().unwrap();
        });
    }
}

/// CPUs that the process may use and unbound queues may not: whole pools have them too, once unbound queues
/// have had no others.
#[test]
fn unbound_items_stay_off_the_cpus_that_unbound_queues_may_not_use() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, starts) = (engine.host(), Starts::default());
        let kind = || attrs(engine, AffinityScope::System, false);
        let queues = [
            make(engine, QueueSpec { max_active: 1, ..spec("whole", Kind::Unbound(kind())) }),
            make(engine, spec("shards", Kind::Unbound(kind()))),
            make(engine, spec("ordered", Kind::Ordered(kind()))),
            make(engine, spec("own", Kind::Dedicated(kind()))),
        ];
        for (allowed, unbound) in [("0-3", "0-1"), ("2-3", "2-3"), ("0-3", "0-1"), ("1-3", "1")] {
            permit(engine, &list(allowed), &list(unbound));
            for queue in &queues {
                let (queue, starts) = (queue.clone(), starts.clone());
                let (theirs, item) = (engine.clone(), noting(engine, &starts, MS));
                // A submitter that waits next makes room for the item, on a CPU that is not its own.
                let submitter = move || {
                    for _ in 0..8 {
                        assert_eq!(item.queue(&queue), Queued::Yes);
                        theirs.host().doze(2 * MS);
                    }
                };
                host.start(&CpuSet::single(3), submitter).join(host);
                let (cpus, unbound) = (taken(&starts), list(unbound));
                assert_eq!(cpus.len(), 8);
                assert!(cpus.iter().all(|&cpu| unbound.contains(cpu)), "{cpus:?} of {unbound}");
            }
        }
    });
}

/// An item that is in its run when the CPUs of unbound queues are changed.
#[test]
fn a_change_of_the_cpus_of_unbound_queues_moves_their_workers() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, ends) = (engine.host(), Starts::default());
        let queue = make(
            engine,
            spec("q", Kind::Unbound(everywhere(engine, AffinityScope::System, false))),
        );
        host.doze(MS);
        let (theirs, seen) = (host.clone(), ends.clone());
        let item = Item::new(move || {
            theirs.burn(100 * MS);
            seen.lock().unwrap().push(theirs.cpu());
        });
        // Not on the CPU of this thread, which the item would keep.
        for (cpu, mask, cpus) in [(3, "1", 1..2), (1, "2-3", 2..4), (2, "0", 0..1)] {
            assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
            host.doze(MS);
            choose(engine, mask).unwrap();
            queue.flush().unwrap();
            let ended = taken(&ends);
            assert!(ended.len() == 1 && cpus.contains(&ended[0]), "{ended:?}, mask {mask}");
        }
        assert_eq!(engine.pools(), 4);
    });
}

/// Pods that stay whole and have lost their first CPUs.
#[test]
fn items_enqueued_together_keep_their_order_in_a_pod_without_its_first_cpu() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let host = engine.host();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, true));
        let queue = make(engine, QueueSpec { max_active: 1, ..spec("q", kind) });
        allow(engine, "1-3,5-7");
        let (order, items) = numbered(&queue);
        let (all, theirs): (_, VirtualQueue) = (items.clone(), queue.clone());
        let submitter = move || Item::queue_each(&all, &theirs);
        host.start(&CpuSet::single(6), submitter).join(host);
        queue.flush().unwrap();
        assert_eq!(*order.lock().unwrap(), (0..16).collect::<Vec<_>>());
    });
}
