//! Queues with one context: BH (SEMANTICS 2.34), and a dedicated thread.

use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Cpus, Kind, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, attrs, make, spec, with_engine};

fn bh(name: &str) -> QueueSpec {
    QueueSpec { flags: Flags::BH | Flags::PERCPU, ..spec(name, Kind::PerCpu) }
}

fn dedicated(engine: &VirtualEngine, name: &str) -> QueueSpec {
    spec(name, Kind::Dedicated(attrs(engine, AffinityScope::System, false)))
}

type Log = Arc<Mutex<Vec<(u32, u32, u64)>>>;

/// An item that records its number, CPU and start, and then blocks undeclared, so that another
/// worker of the CPU could start an item meanwhile.
fn slow(engine: &Arc<VirtualEngine>, log: &Log, number: u32) -> Arc<Item> {
    let (host, log) = (engine.host().clone(), log.clone());
    Item::new(move || {
        log.lock().unwrap().push((number, host.cpu(), host.time()));
        host.doze(MS);
    })
}

#[test]
fn bh_items_run_in_queue_order_in_one_context_on_each_cpu() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, bh("bh"));
        let log = Log::default();
        for number in 0..10 {
            assert_eq!(slow(engine, &log, number).queue_on(&queue, number % 2), Queued::Yes);
        }
        queue.flush().unwrap();
        let log = log.lock().unwrap();
        for cpu in 0..2 {
            let on_it: Vec<_> = log.iter().filter(|&&(_, on, _)| on == cpu).collect();
            let numbers: Vec<u32> = on_it.iter().map(|&&(number, ..)| number).collect();
            assert_eq!(numbers, (0..5).map(|n| 2 * n + cpu).collect::<Vec<_>>());
            let starts: Vec<u64> = on_it.iter().map(|&&(.., at)| at).collect();
            assert_eq!(starts, (0..5).map(|n| n * MS).collect::<Vec<_>>());
        }
        assert_eq!(engine.workers(), 2);
    });
}

/// All BH queues of one priority share the CPU's single context; other queues do not wait for it.
#[test]
fn bh_queues_share_only_their_context() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (one, two) = (make(engine, bh("one")), make(engine, bh("two")));
        let high = Flags::BH | Flags::PERCPU | Flags::HIGHPRI;
        let high = make(engine, QueueSpec { flags: high, ..bh("high") });
        let plain = make(engine, spec("plain", Kind::PerCpu));
        let log = Log::default();
        for (number, queue) in [&one, &two, &high, &plain].into_iter().enumerate() {
            assert_eq!(slow(engine, &log, number as u32).queue(queue), Queued::Yes);
        }
        engine.host().doze(10 * MS);
        let starts = |number: u32| {
            let log = log.lock().unwrap();
            log.iter().find(|&&(known, ..)| known == number).map(|&(.., at)| at)
        };
        assert_eq!((starts(0), starts(1)), (Some(0), Some(MS)));
        assert_eq!((starts(2), starts(3)), (Some(0), Some(0)));
    });
}

#[test]
fn a_bh_item_that_waits_is_detected() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, bh("bh"));
        for _ in 0..2 {
            let inner = engine.clone();
            let item = Item::new(move || {
                inner.assert_may_wait();
                inner.blocking(|| inner.host().doze(MS));
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
        }
        let reports = engine.host().reports();
        let said = |report: &Report| matches!(report, Report::BhWaits { queue } if queue == "bh");
        assert_eq!(reports.iter().filter(|report| said(report)).count(), 1, "once for the queue");
        let panics = reports.iter().filter(|report| {
            matches!(report, Report::ItemPanicked { message, .. } if message.contains("must not"))
        });
        // Optimized builds only report.
        assert_eq!(panics.count(), if cfg!(debug_assertions) { 2 } else { 0 });
    });
}

#[test]
fn a_bh_item_may_cancel_idle_or_pending_items() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, bh("bh"));
        let pending = Item::new(|| panic!("it was cancelled"));
        assert_eq!(pending.queue_delayed(&queue, None, MS), Queued::Yes);
        let inner = engine.clone();
        let item = Item::new(move || {
            assert_eq!(pending.cancel_sync(&inner), Ok(true));
            assert_eq!(pending.cancel_sync(&inner), Ok(false));
        });
        assert_eq!(item.queue(&queue), Queued::Yes);
        queue.flush().unwrap();
        engine.host().doze(2 * MS);
        assert_eq!(engine.host().reports(), []);
    });
}

/// FIFO on one thread, whatever the items wait for, and whichever thread queues them.
#[test]
fn a_dedicated_queue_is_one_thread_in_order() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, dedicated(engine, "own"));
        let other = make(engine, dedicated(engine, "other"));
        let log = Log::default();
        for number in 0..6 {
            let (inner, log) = (engine.clone(), log.clone());
            let item = Item::new(move || {
                log.lock().unwrap().push((number, 0, inner.host().time()));
                inner.blocking(|| inner.host().doze(MS));
            });
            assert_eq!(item.queue_on(&queue, number % 2), Queued::Yes);
        }
        let theirs = slow(engine, &log, 99);
        assert_eq!(theirs.queue(&other), Queued::Yes);
        queue.flush().unwrap();
        let mut log = log.lock().unwrap();
        log.retain(|&(number, ..)| number != 99);
        assert_eq!(*log, (0..6).map(|n| (n, 0, u64::from(n) * MS)).collect::<Vec<_>>());
        // One thread each: no further worker was woken or spawned while the items waited.
        assert_eq!(engine.workers(), 2);
    });
}

#[test]
fn a_dedicated_queues_delayed_items_are_queued_in_order() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, dedicated(engine, "own"));
        let log = Log::default();
        assert_eq!(slow(engine, &log, 2).queue_delayed(&queue, None, 5 * MS), Queued::Yes);
        assert_eq!(slow(engine, &log, 1).queue(&queue), Queued::Yes);
        engine.host().doze(20 * MS);
        assert_eq!(*log.lock().unwrap(), [(1, 0, 0), (2, 0, 5 * MS)]);
    });
}

#[test]
fn threads_of_dedicated_queues_end_with_them_and_their_pools_are_reused() {
    with_engine(Setup::exact("core:1"), |engine| {
        for _ in 0..3 {
            let queues = ["a", "b"].map(|name| make(engine, dedicated(engine, name)));
            let log = Log::default();
            for queue in &queues {
                assert_eq!(slow(engine, &log, 0).queue(queue), Queued::Yes);
            }
            engine.host().doze(MS);
            assert_eq!(engine.workers(), 2);
            drop(queues);
            engine.host().doze(MS);
            assert_eq!((engine.workers(), log.lock().unwrap().len()), (0, 2));
        }
        assert_eq!(engine.pools(), 2);
    });
}

#[test]
fn a_dedicated_queue_stays_on_its_cpus() {
    with_engine(Setup::exact("core:4"), |engine| {
        let mut spec = dedicated(engine, "own");
        if let Kind::Dedicated(attrs) = &mut spec.kind {
            attrs.cpumask = CpuSet::single(2);
        }
        let queue = make(engine, spec);
        let log = Log::default();
        for number in 0..4 {
            assert_eq!(slow(engine, &log, number).queue_on(&queue, number), Queued::Yes);
        }
        queue.flush().unwrap();
        assert!(log.lock().unwrap().iter().all(|&(_, cpu, _)| cpu == 2));
    });
}

#[test]
fn a_dedicated_queue_keeps_its_thread_through_changes_that_change_nothing() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, dedicated(engine, "own"));
        for _ in 0..3 {
            let same = || queue.change_attrs(|attrs| attrs.nice = 0);
            engine.host().unpreempted(same).unwrap();
        }
        let limit = Cpus { cpu_limit: Some(1), ..engine.cpus().clone() };
        assert!(engine.host().unpreempted(|| engine.set_cpus(limit)));
        engine.host().doze(MS);
        assert_eq!((engine.workers(), engine.pools()), (1, 1));
    });
}
