//! Exact pauses of one queue: which items start when, and how long a pause waits.

use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, QueueError, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

const TWO_NODES: &str = "node:2 llc:2 core:2";

/// A queue of each kind: per CPU, with a pod, with a shared limit, ordered, on a thread of its own.
fn one_of_each(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let kinds = [
        Kind::PerCpu,
        Kind::Unbound(attrs(engine, AffinityScope::System, false)),
        Kind::Unbound(attrs(engine, AffinityScope::Cache, false)),
        Kind::Ordered(attrs(engine, AffinityScope::Cache, false)),
        Kind::Dedicated(attrs(engine, AffinityScope::System, false)),
    ];
    let named = kinds.into_iter().enumerate();
    named.map(|(index, kind)| make(engine, spec(&format!("p{index}"), kind))).collect()
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

// Catches: a pause that returns before a running item has ended or later, an item that starts while
// paused, one that is lost, a pause that stops another queue, a queue that is paused for ever.
#[test]
fn a_pause_waits_for_running_items_and_keeps_the_others() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let host = engine.host();
        for queue in &one_of_each(engine) {
            let (begin, log) = (host.time() / MS, Times::default());
            let other = make(engine, spec("other", Kind::PerCpu));
            assert_eq!(item(engine, &log, 10 * MS).queue_on(queue, 0), Queued::Yes);
            host.doze(MS);
            queue.pause().unwrap();
            assert_eq!(host.time() / MS, begin + 10, "{}", queue.name());
            assert!(queue.is_paused() && queue.dump().paused && !queue.dump().frozen);
            for cpu in [0, 2] {
                assert_eq!(item(engine, &log, 0).queue_on(queue, cpu), Queued::Yes);
            }
            let beside = Times::default();
            assert_eq!(item(engine, &beside, 0).queue(&other), Queued::Yes);
            host.doze(5 * MS);
            assert_eq!((times(&log), times(&beside)), (vec![begin], vec![begin + 10]));
            assert!(queue.is_congested(Some(0)).unwrap());
            queue.resume().unwrap();
            queue.flush().unwrap();
            assert_eq!(times(&log), [begin, begin + 15, begin + 15]);
            assert!(!queue.is_paused());
        }
    });
}

// Catches: a pause that ends with the first resume, an error that changes something.
#[test]
fn pauses_are_counted() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        for queue in &one_of_each(engine) {
            let log = Times::default();
            assert_eq!(queue.resume(), Err(QueueError::NotPaused));
            queue.pause().unwrap();
            queue.pause().unwrap();
            assert_eq!(item(engine, &log, 0).queue(queue), Queued::Yes);
            queue.resume().unwrap();
            engine.host().doze(MS);
            assert_eq!((times(&log).len(), queue.is_paused()), (0, true));
            queue.resume().unwrap();
            queue.flush().unwrap();
            assert_eq!(times(&log).len(), 1);
            assert_eq!(queue.resume(), Err(QueueError::NotPaused));
        }
    });
}

// Catches: an item that waits for itself, a refused pause that stops the queue, a pause from an item
// of another queue that is refused.
#[test]
fn an_item_cannot_pause_its_own_queue() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let queues = Arc::new(one_of_each(engine));
        for at in 0..queues.len() {
            let outcomes = Arc::new(Mutex::new(Vec::new()));
            let (told, all) = (outcomes.clone(), queues.clone());
            let pauser = Item::new(move || {
                let mut told = told.lock().unwrap();
                told.push(all[at].pause());
                told.push(all[at].pause_until(u64::MAX).map(drop));
                let next = &all[(at + 1) % all.len()];
                told.push(next.pause().and_then(|()| next.resume()));
            });
            assert_eq!(pauser.queue(&queues[at]), Queued::Yes);
            queues[at].flush().unwrap();
            let refused = Err(QueueError::WouldDeadlock);
            assert_eq!(*outcomes.lock().unwrap(), [refused.clone(), refused, Ok(())]);
            assert!(!queues[at].is_paused());
        }
    });
}

// Catches: a pause that misses its deadline, one that stays after it, a waiter left in the chain.
#[test]
fn a_pause_that_times_out_changes_nothing() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let host = engine.host();
        for queue in &one_of_each(engine) {
            let (begin, log) = (host.time() / MS, Times::default());
            assert_eq!(item(engine, &log, 10 * MS).queue_on(queue, 0), Queued::Yes);
            host.doze(MS);
            assert_eq!(queue.pause_until(host.time() + 2 * MS), Ok(false));
            assert_eq!((host.time() / MS, queue.is_paused()), (begin + 3, false));
            assert_eq!(queue.pause_until(host.time() + 20 * MS), Ok(true));
            assert_eq!((host.time() / MS, queue.is_paused()), (begin + 10, true));
            queue.resume().unwrap();
        }
    });
}

// Catches: a last handle that leaves items which can never run.
#[test]
fn the_end_of_a_queue_ends_its_pauses() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        for destroyed in [false, true] {
            for queue in one_of_each(engine) {
                let log = Times::default();
                queue.pause().unwrap();
                queue.pause().unwrap();
                assert_eq!(item(engine, &log, 0).queue(&queue), Queued::Yes);
                if destroyed {
                    queue.destroy().unwrap();
                }
                drop(queue);
                assert_eq!(times(&log).len(), 1);
            }
        }
    });
}

// Catches: a pause that keeps a running item from the inner item that it waits for.
#[test]
fn an_item_may_help_an_item_of_its_own_queue_while_that_is_paused() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (log, host) = (Times::default(), engine.host());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { max_active: 1, ..spec("q", kind) });
        let child = item(engine, &log, 5 * MS);
        let (engine_too, inner) = (engine.clone(), child.clone());
        let outer = Item::new(move || {
            engine_too.blocking(|| engine_too.host().doze(5 * MS));
            assert!(inner.flush(&engine_too));
        });
        assert_eq!(outer.queue(&queue), Queued::Yes);
        host.doze(MS);
        assert_eq!(child.queue(&queue), Queued::Yes);
        queue.pause().unwrap();
        assert_eq!((host.time() / MS, times(&log)), (10, vec![5]));
        queue.resume().unwrap();
    });
}

// Catches: a freeze that ends a pause or the other way round, changes that start a paused queue.
#[test]
fn a_pause_and_a_freeze_are_independent() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let log = Times::default();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
        let queue = make(engine, QueueSpec { flags: Flags::FREEZABLE, ..spec("q", kind) });
        let stays = || {
            engine.host().doze(MS);
            assert_eq!(times(&log), []);
        };
        queue.pause().unwrap();
        engine.freeze_begin().unwrap();
        assert_eq!(item(engine, &log, 0).queue(&queue), Queued::Yes);
        queue.resume().unwrap();
        stays();
        queue.pause().unwrap();
        engine.thaw().unwrap();
        stays();
        queue.set_max_active(4).unwrap();
        let scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
        engine.host().unpreempted(|| queue.change_attrs(|attrs| attrs.scope = scope)).unwrap();
        assert_eq!(item(engine, &log, 0).queue(&queue), Queued::Yes);
        stays();
        queue.resume().unwrap();
        queue.flush().unwrap();
        assert_eq!(times(&log), [3, 3]);
    });
}
