//! Shutting down an engine.

use std::sync::{Arc, Mutex};

use uwork_engine::dump::Gate;
use uwork_engine::{Kind, Queue, QueueError, QueueSpec, Queued, Rearmed, Shutdown};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

const CHAOS: Chaos =
    Chaos { drawn_order: true, preempt_one_in: 4, early_one_in: 20, ..Chaos::STEADY };

/// An item that counts its runs, each of which takes `ns`.
fn counting(engine: &Arc<VirtualEngine>, ns: u64) -> (Arc<Item>, Arc<Mutex<u32>>) {
    let (engine, runs) = (Arc::downgrade(engine), Arc::new(Mutex::new(0)));
    let count = runs.clone();
    let item = Item::new(move || {
        engine.upgrade().expect("it runs this").host().burn(ns);
        *count.lock().unwrap() += 1;
    });
    (item, runs)
}

fn queues(engine: &Arc<VirtualEngine>) -> [VirtualQueue; 3] {
    let unbound = Kind::Unbound(attrs(engine, AffinityScope::System, false));
    let ordered = Kind::Ordered(attrs(engine, AffinityScope::System, false));
    [("p", Kind::PerCpu), ("u", unbound), ("o", ordered)]
        .map(|(name, kind)| make(engine, spec(name, kind)))
}

#[test]
fn a_draining_shutdown_runs_queued_items_and_refuses_new_ones() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queues = queues(engine);
        let items: Vec<_> = (0..30).map(|_| counting(engine, MS)).collect();
        for (n, (item, _)) in items.iter().enumerate() {
            assert_eq!(item.queue(&queues[n % 3]), Queued::Yes);
        }
        let (late, late_runs) = counting(engine, MS);
        assert_eq!(late.queue_delayed(&queues[0], None, 10 * SEC), Queued::Yes);
        let report = engine.shutdown(Shutdown::Drain, SEC).unwrap();
        assert!(report.is_complete(), "{report}");
        assert_eq!((report.released, late.released(), *late_runs.lock().unwrap()), (1, 1, 0));
        assert!(items.iter().all(|(_, runs)| *runs.lock().unwrap() == 1));
        assert!(engine.is_shut_down());
        for queue in &queues {
            assert_eq!(items[0].0.queue(queue), Queued::Refused);
            assert_eq!(late.queue_delayed(queue, None, MS), Queued::Refused);
            assert_eq!(late.mod_delayed(queue, MS), Ok(Rearmed::Refused));
            assert_eq!(queue.dump().gate, Gate::Sealed);
            assert!(queue.flush().is_ok() && queue.drain().is_ok() && queue.destroy().is_ok());
        }
        engine.host().doze(MS);
        assert_eq!(engine.workers(), 0, "idle workers have retired");
    });
}

/// Items that running items queue, on their own queue or another, are still accepted.
#[test]
fn a_draining_shutdown_accepts_items_queued_by_items() {
    with_engine(Setup::exact("core:2"), |engine| {
        let [first, second, _] = queues(engine);
        let (own, own_runs) = counting(engine, MS);
        let (other, other_runs) = counting(engine, MS);
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let (weak, place, home, away) =
            (Arc::downgrade(engine), outcomes.clone(), first.clone(), second.clone());
        let (chained, elsewhere) = (own.clone(), other.clone());
        let chain = Item::new(move || {
            weak.upgrade().expect("it runs this").host().burn(5 * MS);
            place.lock().unwrap().extend([chained.queue(&home), elsewhere.queue(&away)]);
        });
        assert_eq!(chain.queue(&first), Queued::Yes);
        engine.host().doze(MS);
        let report = engine.shutdown(Shutdown::Drain, SEC).unwrap();
        assert!(report.is_complete(), "{report}");
        assert_eq!(*outcomes.lock().unwrap(), [Queued::Yes; 2]);
        assert_eq!((*own_runs.lock().unwrap(), *other_runs.lock().unwrap()), (1, 1));
        // The item holds the queues, which hold the engine.
        drop(chain);
    });
}

#[test]
fn a_cancelling_shutdown_releases_items_that_have_not_started() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queues = queues(engine);
        // Short items first: a worker then takes the next ones several at once, and some are in a
        // slot.
        for _ in 0..64 {
            assert_eq!(counting(engine, US).0.queue_on(&queues[0], 1), Queued::Yes);
        }
        queues[0].flush().unwrap();
        let (busy, busy_runs) = counting(engine, 20 * MS);
        assert_eq!(busy.queue_on(&queues[0], 1), Queued::Yes);
        let items: Vec<_> = (0..30).map(|_| counting(engine, MS)).collect();
        for (n, (item, _)) in items.iter().enumerate() {
            assert_eq!(item.queue_on(&queues[n % 3], 1), Queued::Yes);
        }
        let (armed, _) = counting(engine, MS);
        assert_eq!(armed.queue_delayed(&queues[1], None, SEC), Queued::Yes);
        engine.host().doze(MS);
        let behind = engine.dump().pools[1].workers[0].scheduled.total;
        assert!(behind > 0, "some are behind the one that runs: {}", engine.dump());
        // The item runs, so this queueing is deferred to the end of the run.
        assert_eq!(busy.queue_on(&queues[0], 1), Queued::Yes);
        let waits = items[0].0.clone();
        let flusher = {
            let engine = Arc::downgrade(engine);
            let engine = move || engine.upgrade().expect("the test has it");
            engine().host().clone().start(&CpuSet::single(0), move || {
                waits.flush(&engine());
            })
        };
        engine.host().doze(US);
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert!(report.is_complete(), "{report}");
        flusher.join(engine.host());
        assert_eq!(*busy_runs.lock().unwrap(), 1, "it was running");
        for (n, (item, runs)) in items.iter().enumerate() {
            let (runs, released) = (*runs.lock().unwrap(), item.released());
            assert_eq!(runs + released, 1, "item {n}");
            // Items of the first queue could not start: its only worker is busy.
            assert!(n % 3 != 0 || released == 1, "item {n} was run");
        }
        let released: u32 = items.iter().map(|(item, _)| item.released()).sum();
        assert_eq!((armed.released(), busy.released()), (1, 1));
        assert_eq!(report.released, u64::from(released) + 2);
        assert!(items.iter().all(|(item, _)| !item.is_pending()));
    });
}

#[test]
fn a_shutdown_reports_items_that_do_not_end_in_time() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("slow", Kind::PerCpu));
        let other = make(engine, spec("idle", Kind::PerCpu));
        let (first, _) = counting(engine, 100 * MS);
        let (second, second_runs) = counting(engine, MS);
        assert_eq!(first.queue_on(&queue, 1), Queued::Yes);
        engine.host().doze(MS);
        assert_eq!(second.queue_on(&queue, 1), Queued::Yes);
        let report = engine.shutdown(Shutdown::Drain, 10 * MS).unwrap();
        assert_eq!((engine.host().time(), report.took_ns), (11 * MS, 10 * MS));
        let [left] = &report.unfinished[..] else { panic!("{report}") };
        assert_eq!((left.queue.name.as_str(), left.pending(), left.running()), ("slow", 1, 1));
        assert_eq!(
            report.to_string(),
            "shutdown by drain took 10.0 ms; 0 items released; 1 queue did not end\n  \
             queue slow: 1 pending, 1 running\n    \
             slot 1    uw/1  running  thread 3  run 1  queue slow  for at most 11.0 ms  test::Item\n"
        );
        // A second call continues where the first one gave up.
        let again = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert!(again.is_complete(), "{again}");
        assert_eq!((again.released, second.released(), engine.host().time()), (1, 1, 100 * MS));
        assert_eq!(*second_runs.lock().unwrap(), 0);
        let third = engine.shutdown(Shutdown::Drain, 0).unwrap();
        assert!(third.is_complete() && third.took_ns == 0, "{third}");
        assert_eq!(first.queue(&other), Queued::Refused);
    });
}

/// The queue's only worker has retired when a thaw lets its item continue, and no thread can be
/// spawned.
#[test]
fn a_dedicated_queues_retired_thread_is_spawned_again() {
    with_engine(Setup::exact("core:1"), |engine| {
        let kind = Kind::Dedicated(attrs(engine, AffinityScope::System, false));
        let flags = Flags::FREEZABLE;
        let (host, queue) = (engine.host(), make(engine, QueueSpec { flags, ..spec("q", kind) }));
        engine.freeze_begin().unwrap();
        let (item, runs) = counting(engine, US);
        assert_eq!(item.queue(&queue), Queued::Yes);
        let report = engine.shutdown(Shutdown::Drain, 0).unwrap();
        assert_eq!(report.unfinished.len(), 1, "{report}");
        host.doze(MS);
        assert_eq!(engine.workers(), 0);
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        engine.thaw().unwrap();
        host.doze(MS);
        host.break_spawn(None);
        host.doze(2 * SEC);
        assert_eq!(*runs.lock().unwrap(), 1);
        assert!(engine.shutdown(Shutdown::Drain, SEC).unwrap().is_complete());
    });
}

#[test]
fn not_from_inside_an_item() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let weak = Arc::downgrade(engine);
        let item = Item::new(move || {
            let engine = weak.upgrade().expect("it runs this");
            let refused = engine.shutdown(Shutdown::Drain, SEC);
            assert_eq!(refused.err(), Some(QueueError::WouldDeadlock));
            assert!(!engine.is_shut_down(), "nothing was done");
        });
        assert_eq!(item.queue(&queue), Queued::Yes);
        queue.flush().unwrap();
    });
}

/// A queue can still be created later; it accepts nothing and costs no thread.
#[test]
fn queues_created_after_a_shutdown_accept_no_items() {
    with_engine(Setup::exact("core:2"), |engine| {
        let before = make(engine, spec("before", Kind::PerCpu));
        assert!(engine.shutdown(Shutdown::Drain, 0).unwrap().is_complete());
        let spawns = engine.host().counts().spawns;
        // The queue uses the same pools, whose workers retire all the same.
        let queue = Queue::new(engine, spec("late", Kind::PerCpu)).unwrap();
        let (item, _) = counting(engine, MS);
        assert_eq!(item.queue(&queue), Queued::Refused);
        assert_eq!(item.queue_delayed(&queue, None, MS), Queued::Refused);
        engine.host().doze(MS);
        assert_eq!((engine.workers(), engine.host().counts().spawns), (0, spawns));
        drop(before);
    });
}

/// A released item may hold the last handle of its own queue, on which an item still runs.
#[test]
fn the_last_handle_in_an_item_that_is_released() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let (busy, runs) = counting(engine, 50 * MS);
        assert_eq!(busy.queue_on(&queue, 1), Queued::Yes);
        engine.host().doze(MS);
        let handle = Mutex::new(Some(queue.clone()));
        let keeps = Item::new(move || drop(handle.lock().unwrap().take()));
        assert_eq!(keeps.queue_on(&queue, 1), Queued::Yes);
        drop((queue, keeps));
        let report = engine.shutdown(Shutdown::Cancel, 10 * MS).unwrap();
        assert_eq!((report.released, engine.host().time()), (1, 11 * MS), "{report}");
        assert_eq!(report.unfinished.len(), 1, "{report}");
        engine.host().doze(SEC);
        assert_eq!((*runs.lock().unwrap(), engine.workers()), (1, 0));
    });
}

/// During a shutdown, other threads queue, arm, cancel and create queues. Every accepted item has
/// run or was released, and nothing is left over.
#[test]
fn a_shutdown_during_all_other_operations_loses_no_item() {
    for seed in 0..150 {
        let setup = Setup { machine: "llc:2 core:2", chaos: CHAOS, seed };
        with_engine(setup, move |engine| {
            let queues = queues(engine);
            let items: Vec<_> = (0..20).map(|n| counting(engine, n * 3 * US)).collect();
            let taken = Arc::new(Mutex::new(vec![0_i64; items.len()]));
            let producers: Vec<_> = (0..3_usize)
                .map(|producer| {
                    let (weak, queues) = (Arc::downgrade(engine), queues.clone());
                    let (items, taken) = (items.clone(), taken.clone());
                    let body = move || {
                        for round in 0..25 {
                            let engine = weak.upgrade().expect("the test has it");
                            let n = (round * 7 + producer) % items.len();
                            let (item, queue) = (&items[n].0, &queues[(round + producer) % 3]);
                            let yes = match round % 5 {
                                0 => item.queue_delayed(queue, None, 50 * US).is_queued(),
                                1 => {
                                    let cancelled = item.cancel(&engine);
                                    taken.lock().unwrap()[n] -= i64::from(cancelled);
                                    false
                                }
                                _ => item.queue(queue).is_queued(),
                            };
                            taken.lock().unwrap()[n] += i64::from(yes);
                        }
                    };
                    engine.host().start(&CpuSet::single(producer as u32), body)
                })
                .collect();
            engine.host().doze((seed % 50) * 10 * US);
            let how = if seed % 2 == 0 { Shutdown::Drain } else { Shutdown::Cancel };
            let report = engine.shutdown(how, SEC).unwrap();
            assert!(report.is_complete(), "{report}");
            producers.into_iter().for_each(|producer| producer.join(engine.host()));
            // A submitter that had passed the gate may have queued after the last scan.
            let report = engine.shutdown(how, SEC).unwrap();
            assert!(report.is_complete(), "{report}");
            engine.host().doze(MS);
            for (n, (item, runs)) in items.iter().enumerate() {
                let ended = *runs.lock().unwrap() + item.released();
                assert_eq!(i64::from(ended), taken.lock().unwrap()[n], "item {n}, {how:?}");
                assert!(!item.is_pending(), "item {n}");
            }
            let left = engine.dump();
            assert!(left.pools.iter().all(|pool| pool.nr_armed == 0), "{left}");
            assert_eq!(engine.workers(), 0, "{left}");
        });
    }
}

/// A thread finds the queue open and loses its CPU before it arms its item. No thread would ever
/// handle that timer.
#[test]
fn an_item_that_is_armed_too_late_is_refused() {
    let mut refused = 0;
    for seed in 0..100 {
        let chaos = Chaos { preempt_one_in: 2, ..CHAOS };
        refused += with_engine(Setup { machine: "core:2", chaos, seed }, |engine| {
            let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
            host.doze(MS);
            let (item, outcome) = (counting(engine, US).0, Arc::new(Mutex::new(None)));
            let (armed, place, handle) = (item.clone(), outcome.clone(), queue.clone());
            let late = host.start(&CpuSet::single(1), move || {
                let queued = armed.queue_delayed(&handle, None, SEC);
                *place.lock().unwrap() = Some(queued);
            });
            host.doze(10 * US);
            assert!(engine.shutdown(Shutdown::Drain, 0).unwrap().is_complete());
            late.join(host);
            let refused = *outcome.lock().unwrap() == Some(Queued::Refused);
            assert!(refused || item.released() == 1, "it was armed, and stays so for ever");
            assert!(!item.is_pending());
            u32::from(refused)
        });
    }
    assert!(refused > 0, "no thread came too late");
}
