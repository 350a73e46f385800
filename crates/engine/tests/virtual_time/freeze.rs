//! Exact freezing: which items start when, and which wait for the thaw.

use std::sync::{Arc, Mutex};

use uwork_engine::{FreezeError, Helped, Kind, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

const TWO_NODES: &str = "node:2 llc:2 core:2";

fn freezable(engine: &Arc<VirtualEngine>, name: &str, kind: Kind) -> VirtualQueue {
    make(engine, QueueSpec { flags: Flags::FREEZABLE, ..spec(name, kind) })
}

/// A queue of each kind: per CPU, with a pod, with a shared limit, ordered.
fn one_of_each(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let kinds = [
        Kind::PerCpu,
        Kind::Unbound(attrs(engine, AffinityScope::System, false)),
        Kind::Unbound(attrs(engine, AffinityScope::Cache, false)),
        Kind::Ordered(attrs(engine, AffinityScope::Cache, false)),
    ];
    let named = kinds.into_iter().enumerate();
    named.map(|(index, kind)| freezable(engine, &format!("f{index}"), kind)).collect()
}

/// The milliseconds at which items began.
type Times = Arc<Mutex<Vec<u64>>>;

fn item(engine: &Arc<VirtualEngine>, times: &Times, takes_ns: u64) -> Arc<Item> {
    let (engine, times) = (engine.clone(), times.clone());
    Item::new(move || {
        times.lock().unwrap().push(engine.host().time() / MS);
        if takes_ns > 0 {
            engine.blocking(|| engine.host().doze(takes_ns));
        }
    })
}

fn times(of: &Times) -> Vec<u64> {
    of.lock().unwrap().clone()
}

// Catches: an item that starts while frozen, one that is interrupted or forgotten, a queue that the
// freeze misses, a queue created too late to be frozen, one that does not take part.
#[test]
fn taken_items_finish_and_the_others_wait_for_the_thaw() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let host = engine.host();
        for round in 0..2 {
            let begin = host.time() / MS;
            let mut queues = one_of_each(engine);
            let logs: Vec<Times> = (0..5).map(|_| Times::default()).collect();
            for (queue, log) in queues.iter().zip(&logs) {
                assert_eq!(item(engine, log, 10 * MS).queue(queue), Queued::Yes);
            }
            host.doze(MS);
            engine.freeze_begin().unwrap();
            queues.push(freezable(engine, "late", Kind::PerCpu));
            for (queue, log) in queues.iter().zip(&logs) {
                for cpu in [0, 2] {
                    assert_eq!(item(engine, log, 0).queue_on(queue, cpu), Queued::Yes);
                }
                let (host, before) = (host.clone(), Times::default());
                let free = make(engine, spec("free", Kind::PerCpu));
                assert_eq!(item(engine, &before, 0).queue(&free), Queued::Yes);
                free.flush().unwrap();
                assert_eq!(times(&before), [host.time() / MS], "it does not take part");
            }
            assert_eq!(engine.freeze_busy(), Ok(true));
            host.doze(10 * MS);
            assert_eq!(engine.freeze_busy(), Ok(false));
            let (engine_too, frozen_for) = (engine.clone(), 90 * MS);
            let thaw = host.start(&Default::default(), move || {
                engine_too.host().doze(frozen_for);
                engine_too.thaw().unwrap();
            });
            // A flush, a drain and the destruction of a queue wait for the thaw.
            match round {
                0 => queues.iter().for_each(|queue| queue.flush().unwrap()),
                _ => queues.iter().for_each(|queue| queue.drain().unwrap()),
            }
            assert_eq!(host.time() / MS, begin + 101);
            drop(queues);
            thaw.join(host);
            for log in &logs[..4] {
                assert_eq!(times(log), [begin, begin + 101, begin + 101], "{round}");
            }
            assert_eq!(times(&logs[4]), [begin + 101; 2]);
        }
    });
}

// Catches: a drop that does not wait for the thaw, or never notices it.
#[test]
fn the_end_of_a_frozen_queue_waits_for_the_thaw() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let log = Times::default();
        let queues = one_of_each(engine);
        engine.freeze_begin().unwrap();
        for queue in &queues {
            assert_eq!(item(engine, &log, 0).queue(queue), Queued::Yes);
        }
        let engine_too = engine.clone();
        let thaw = engine.host().start(&Default::default(), move || {
            engine_too.host().doze(50 * MS);
            engine_too.thaw().unwrap();
        });
        drop(queues);
        assert_eq!((engine.host().time(), times(&log)), (50 * MS, vec![50; 4]));
        thaw.join(engine.host());
    });
}

// Catches: calls out of order that are accepted.
#[test]
fn calls_out_of_order_are_errors() {
    with_engine(Setup::exact("core:1"), |engine| {
        assert_eq!(engine.thaw(), Err(FreezeError::NotFrozen));
        assert_eq!(engine.freeze_busy(), Err(FreezeError::NotFrozen));
        engine.freeze_begin().unwrap();
        assert_eq!(engine.freeze_begin(), Err(FreezeError::AlreadyFrozen));
        assert_eq!(engine.freeze_busy(), Ok(false));
        engine.thaw().unwrap();
        assert_eq!(engine.thaw(), Err(FreezeError::NotFrozen));
    });
}

// Catches: changes of limits and attributes that thaw a queue, or are lost at the thaw.
#[test]
fn changes_while_frozen_take_effect_after_the_thaw() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (log, host) = (Times::default(), engine.host());
        let queue =
            freezable(engine, "q", Kind::Unbound(attrs(engine, AffinityScope::Cache, true)));
        engine.freeze_begin().unwrap();
        for cpu in [0, 2] {
            assert_eq!(item(engine, &log, 10 * MS).queue_on(&queue, cpu), Queued::Yes);
        }
        queue.set_max_active(2).unwrap();
        queue.set_min_active(1).unwrap();
        let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
        host.unpreempted(|| queue.change_attrs(|attrs| attrs.scope = scope)).unwrap();
        for cpu in [0, 1] {
            assert_eq!(item(engine, &log, 10 * MS).queue_on(&queue, cpu), Queued::Yes);
        }
        host.doze(20 * MS);
        assert_eq!((times(&log), queue.max_active()), (vec![], 2));
        engine.thaw().unwrap();
        queue.flush().unwrap();
        assert_eq!(times(&log), [20, 30, 40, 50], "one at a time on this node");
    });
}

// Catches: a frozen item that a thread helps, or an item of its queue that lends its permit;
// cancels that do not find it; timers that start it.
#[test]
fn frozen_items_are_not_helped_but_cancelled() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (log, host) = (Times::default(), engine.host().clone());
        for queue in &one_of_each(engine) {
            log.lock().unwrap().clear();
            let frozen = item(engine, &log, 0);
            let outcome = Arc::new(Mutex::new(None));
            let (engine_too, inner, told) = (engine.clone(), frozen.clone(), outcome.clone());
            let helper = Item::new(move || {
                engine_too.blocking(|| engine_too.host().doze(5 * MS));
                *told.lock().unwrap() = Some(inner.help(&engine_too));
            });
            assert_eq!(helper.queue(queue), Queued::Yes);
            host.doze(MS);
            engine.freeze_begin().unwrap();
            assert_eq!(frozen.queue(queue), Queued::Yes);
            assert_eq!(frozen.help(engine), Helped::No);
            let delayed = item(engine, &log, 0);
            assert_eq!(delayed.queue_delayed(queue, None, MS), Queued::Yes);
            host.doze(10 * MS);
            assert_eq!(*outcome.lock().unwrap(), Some(Helped::No), "from inside an item");
            assert!(delayed.is_pending(), "it has expired, and waits");
            assert!(queue.is_congested(None).unwrap());
            assert!(frozen.cancel(engine));
            assert!(!frozen.cancel_sync(engine).unwrap());
            assert_eq!(times(&log), []);
            engine.thaw().unwrap();
            queue.flush().unwrap();
            assert_eq!(times(&log), [host.time() / MS]);
        }
    });
}

// Catches: an item that waits for another of its queue while frozen, and keeps the only permit
// after the thaw.
#[test]
fn a_permit_is_lent_after_the_thaw() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let log = Times::default();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let flags = Flags::FREEZABLE;
        let queue = make(engine, QueueSpec { flags, max_active: 1, ..spec("q", kind) });
        let child = item(engine, &log, 0);
        let (engine_too, inner) = (engine.clone(), child.clone());
        let outer = Item::new(move || {
            engine_too.blocking(|| engine_too.host().doze(5 * MS));
            assert!(inner.flush(&engine_too));
        });
        assert_eq!(outer.queue(&queue), Queued::Yes);
        engine.host().doze(MS);
        engine.freeze_begin().unwrap();
        assert_eq!(child.queue(&queue), Queued::Yes);
        engine.host().doze(19 * MS);
        assert_eq!((times(&log), engine.freeze_busy()), (vec![], Ok(true)));
        engine.thaw().unwrap();
        queue.flush().unwrap();
        assert_eq!(times(&log), [20]);
    });
}
