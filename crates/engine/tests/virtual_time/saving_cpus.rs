//! Power-efficient queues: on which CPUs their items run while another CPU is awake.

use std::sync::Arc;

use uwork_engine::Queued;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;

use crate::chance::Chaos;
use crate::host::VirtualHost;
use crate::item::Item;
use crate::saving::{Runs, arm_periodic, choose, efficient, hog, noting, save, sliced, taken};
use crate::setup::{MS, SEC, Setup, US, VirtualEngine, VirtualQueue, with_engine};

/// Ten seconds in which CPU 5 computes: after the first runs, no other CPU wakes for the item, and
/// it begins within its window, although the scheduler lets the other item run on for up to 1 ms.
#[test]
fn a_periodic_item_wakes_no_idle_cpu_while_another_is_awake() {
    let sliced = sliced("core:8");
    let late = Setup { chaos: Chaos { late_one_in: 2, ..sliced.chaos }, ..sliced };
    with_engine(late, move |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let (runs, slack) = (Runs::default(), 2_500 * US);
        let periodic = arm_periodic(engine, &queue, &runs, 10 * MS, slack);
        host.doze(50 * MS);
        let (bound, _hog) = hog(engine, 5, 11 * SEC);
        host.doze(50 * MS);
        taken(&runs);
        host.doze(10 * SEC);
        let seen = taken(&runs);
        assert!(seen.len() > 700, "{}", seen.len());
        let elsewhere = seen.iter().filter(|&&(_, _, cpu)| cpu != 5).count();
        assert_eq!(elsewhere, 0, "of {}", seen.len());
        let beyond = seen.iter().find(|&&(late, ..)| late as u64 > slack);
        assert!(beyond.is_none(), "{beyond:?} began after its window");
        // The worker is permitted all CPUs again once none is known to be awake.
        bound.flush().unwrap();
        host.doze(SEC);
        assert!(host.threads() > 0 && !taken(&runs).is_empty());
        periodic.disable(engine).unwrap();
    });
}

/// A timer without slack does not wait for the work of another CPU's item, although the window of
/// another timer is open for long: neither if both are armed, nor if it is armed later.
#[test]
fn the_slack_of_another_timer_moves_no_item_to_a_busy_cpu() {
    with_engine(sliced("core:8"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let (_bound, _hog) = hog(engine, 5, 3 * SEC);
        let lax = noting(engine, &runs, 0, 10 * SEC);
        let strict = noting(engine, &runs, 1, 0);
        host.doze(50 * MS);
        for armed_apart_ns in [0, 5 * MS, 20 * MS] {
            assert_eq!(lax.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
            if armed_apart_ns > 0 {
                host.doze(armed_apart_ns);
            }
            let due = host.time() + 50 * MS;
            assert_eq!(strict.queue_delayed(&queue, None, 50 * MS), Queued::Yes);
            host.doze(100 * MS);
            let seen = taken(&runs);
            let strict = seen.iter().find(|&&(number, ..)| number == 1).expect("it has run");
            assert_eq!((seen.len(), strict.1), (2, due));
            assert_ne!(strict.2, 5);
        }
    });
}

/// A small and a big CPU are awake.
#[test]
fn the_smallest_awake_cpu_serves_the_timers() {
    with_engine(sliced("cluster:1 core:4 capacity:446 + cluster:1 core:4"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let _hogs = [hog(engine, 6, 2 * SEC), hog(engine, 1, SEC)];
        let periodic = arm_periodic(engine, &queue, &runs, 10 * MS, 2_500 * US);
        host.doze(50 * MS);
        taken(&runs);
        host.doze(900 * MS);
        assert_eq!(taken(&runs).iter().find(|&&(_, _, cpu)| cpu != 1), None);
        // Only the big one is still awake.
        host.doze(100 * MS);
        taken(&runs);
        host.doze(900 * MS);
        assert_eq!(taken(&runs).iter().find(|&&(_, _, cpu)| cpu != 6), None);
        periodic.disable(engine).unwrap();
    });
}

/// Queues items from CPU 3 at intervals, and returns the CPUs on which they ran.
fn run_from_cpu_3(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    between: fn(&VirtualHost, u64),
) -> Vec<u32> {
    let (host, runs) = (engine.host().clone(), Runs::default());
    let items: Vec<_> = (0..40).map(|index| noting(engine, &runs, index, 0)).collect();
    let (inner, queue) = (host.clone(), queue.clone());
    let submit = move || {
        for item in &items {
            between(&inner, 10 * MS);
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        between(&inner, 10 * MS);
    };
    host.start(&CpuSet::single(3), submit).join(&host);
    taken(&runs).iter().map(|&(_, _, cpu)| cpu).collect()
}

/// A submitter that waits next makes room for the item at once; one that computes does where the
/// queue's slack permits it.
#[test]
fn an_item_runs_on_the_cpu_of_its_submitter() {
    with_engine(sliced("core:8"), |engine| {
        let host = engine.host();
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        host.doze(MS);
        let computes = |host: &VirtualHost, ns| host.burn(ns);
        let waits = |host: &VirtualHost, ns| host.doze(ns);
        let cpus = run_from_cpu_3(engine, &queue, computes);
        assert_eq!((cpus.len(), cpus.iter().find(|&&cpu| cpu == 3)), (40, None), "no slack");
        let cpus = run_from_cpu_3(engine, &queue, waits);
        assert_eq!(cpus[20..], [3; 20], "its habit is known by then");
        queue.set_timer_slack(2 * MS);
        for between in [computes, waits] {
            assert_eq!(run_from_cpu_3(engine, &queue, between), [3; 40]);
        }
        choose(engine, "4-7").unwrap();
        host.doze(MS);
        let cpus = run_from_cpu_3(engine, &queue, computes);
        assert_eq!((cpus.len(), cpus.iter().find(|&&cpu| cpu < 4)), (40, None), "the mask holds");
    });
}

/// An item that computes for so long. It records its time and the CPU at its start and at its end.
fn burning(engine: &Arc<VirtualEngine>, runs: &Runs, ns: u64) -> Arc<Item> {
    let (host, runs) = (engine.host().clone(), runs.clone());
    Item::new(move || {
        runs.lock().unwrap().push((0, host.time(), host.cpu()));
        host.burn(ns);
        runs.lock().unwrap().push((1, host.time(), host.cpu()));
    })
}

/// Queues an item from CPU 3, computes for long, and returns how long after that the item began and
/// how long it took, and its CPUs.
fn run_beside_cpu_3(
    engine: &Arc<VirtualEngine>,
    queue: &VirtualQueue,
    ns: u64,
) -> (u64, u64, [u32; 2]) {
    let (host, runs) = (engine.host().clone(), Runs::default());
    let (item, inner, queue) = (burning(engine, &runs, ns), host.clone(), queue.clone());
    let begin = host.time();
    let submit = move || {
        assert_eq!(item.queue(&queue), Queued::Yes);
        inner.burn(4 * ns);
    };
    host.start(&CpuSet::single(3), submit).join(&host);
    let seen = taken(&runs);
    assert_eq!(seen.len(), 2);
    (seen[0].1 - begin, seen[1].1 - seen[0].1, [seen[0].2, seen[1].2])
}

/// The pool's keeper sleeps on the busy CPU 5 for a timer with slack. Neither another parked worker
/// nor the keeper runs an item without slack there.
#[test]
fn an_item_without_slack_does_not_run_on_the_cpu_that_was_chosen_for_a_timer() {
    with_engine(sliced("core:8"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let (_bound, _hog) = hog(engine, 5, 3 * SEC);
        let lax = noting(engine, &runs, 2, 10 * SEC);
        assert_eq!(lax.queue_delayed(&queue, None, 5 * SEC), Queued::Yes);
        let short = burning(engine, &runs, 2 * MS);
        for _ in 0..20 {
            assert_eq!(short.queue(&queue), Queued::Yes);
            host.doze(10 * MS);
        }
        // The only worker is the keeper.
        let (late, took, cpus) = run_beside_cpu_3(engine, &queue, 9 * MS);
        assert!(took == 9 * MS && !cpus.contains(&5), "late by {late}, took {took}, on {cpus:?}");
        taken(&runs);
        let many: Vec<_> = (0..60).map(|_| burning(engine, &runs, 2 * MS)).collect();
        many.iter().for_each(|item| assert_eq!(item.queue(&queue), Queued::Yes));
        host.doze(200 * MS);
        let used: CpuSet = taken(&runs).iter().map(|&(_, _, cpu)| cpu).collect();
        assert!(used.len() >= 3, "{used}: workers");
        // One of several that are parked.
        let (late, took, cpus) = run_beside_cpu_3(engine, &queue, 50 * MS);
        assert_eq!((late, took), (0, 50 * MS), "on {cpus:?}");
        assert!(!cpus.contains(&5), "{cpus:?}");
    });
}

/// The items of the pool are short, but those of this queue are known to be long.
#[test]
fn an_item_that_is_known_to_be_long_leaves_the_cpu_of_its_waker() {
    with_engine(sliced("core:8"), |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queues = ["long", "short"].map(|name| efficient(engine, name, Flags::empty()));
        queues.iter().for_each(|queue| queue.set_timer_slack(2 * MS));
        for (queue, ns) in queues.iter().zip([50 * MS, 20 * US]) {
            let item = burning(engine, &runs, ns);
            for _ in 0..20 {
                assert_eq!(item.queue(queue), Queued::Yes);
                host.doze(100 * MS);
            }
        }
        let (late, took, cpus) = run_beside_cpu_3(engine, &queues[0], 50 * MS);
        assert!(took <= 52 * MS, "late by {late}, took {took}, on {cpus:?}");
    });
}

/// A submitter that waits leaves its CPU to the item that runs there, not to another one.
#[test]
fn an_item_does_not_join_a_waiting_submitter_on_a_cpu_with_another_item() {
    with_engine(sliced("core:8"), |engine| {
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        let (_bound, _hog) = hog(engine, 3, 2 * SEC);
        engine.host().doze(MS);
        let cpus = run_from_cpu_3(engine, &queue, |host, ns| host.doze(ns));
        assert_eq!((cpus.len(), cpus.iter().find(|&&cpu| cpu == 3)), (40, None));
    });
}

/// The system runs no worker beside a real-time thread, however long the item may wait.
#[test]
fn an_item_does_not_join_a_real_time_submitter_that_computes() {
    with_engine(sliced("core:8"), |engine| {
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        queue.set_timer_slack(2 * MS);
        engine.host().doze(MS);
        let cpus = run_from_cpu_3(engine, &queue, |host, ns| {
            host.claim_real_time();
            host.burn(ns);
        });
        assert_eq!((cpus.len(), cpus.iter().find(|&&cpu| cpu == 3)), (40, None));
    });
}

/// The first worker of a backlog begins on the CPU of the submitter, which goes on computing.
#[test]
fn a_backlog_leaves_the_cpu_of_its_submitter() {
    with_engine(sliced("core:8"), |engine| {
        let (host, runs) = (engine.host().clone(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        // Other CPUs stay free.
        queue.set_max_active(4).unwrap();
        queue.set_timer_slack(2 * MS);
        host.doze(MS);
        let burning = || {
            let (host, runs) = (host.clone(), runs.clone());
            Item::new(move || {
                runs.lock().unwrap().push((0, host.time(), host.cpu()));
                host.burn(MS / 2);
            })
        };
        // The first items show how long they take. Then batches are short.
        let (one, many) = (burning(), (0..2_000).map(|_| burning()).collect::<Vec<_>>());
        let (inner, handle) = (host.clone(), queue.clone());
        let submit = move || {
            for _ in 0..50 {
                assert_eq!(one.queue(&handle), Queued::Yes);
                inner.burn(10 * MS);
            }
            inner.doze(SEC);
            many.iter().for_each(|item| assert_eq!(item.queue(&handle), Queued::Yes));
            inner.burn(SEC);
        };
        host.start(&CpuSet::single(3), submit).join(&host);
        let seen = taken(&runs);
        assert_eq!((seen.len(), seen[50].2), (2_050, 3));
        let beside = seen[50..].iter().filter(|&&(_, _, cpu)| cpu == 3).count();
        assert!(beside < 40, "{beside} beside the submitter");
    });
}

#[test]
fn an_item_wakes_the_worker_of_another_pool_on_its_own_cpu() {
    with_engine(sliced("core:8"), move |engine| {
        let (host, runs) = (engine.host(), Runs::default());
        save(engine, true);
        let queue = efficient(engine, "pe", Flags::empty());
        queue.set_timer_slack(2 * MS);
        let highpri = efficient(engine, "pe-high", Flags::HIGHPRI);
        host.doze(MS);
        let second = noting(engine, &runs, 1, 0);
        let first = Item::new({
            let (host, runs) = (host.clone(), runs.clone());
            move || {
                runs.lock().unwrap().push((0, host.time(), host.cpu()));
                assert_eq!(second.queue(&highpri), Queued::Yes);
            }
        });
        for _ in 0..10 {
            let (item, queue) = (first.clone(), queue.clone());
            let submit = move || assert_eq!(item.queue(&queue), Queued::Yes);
            host.start(&CpuSet::single(3), submit).join(host);
            host.doze(10 * MS);
            let cpus: Vec<u32> = taken(&runs).iter().map(|&(_, _, cpu)| cpu).collect();
            assert_eq!(cpus, [3, 3]);
        }
    });
}
