//! Permits granted to a pwq whose CPU is busy, so that no worker uses them for a while.

use std::sync::{Arc, Mutex};

use uwork_engine::{Helped, Kind, MAX_ACTIVE_LIMIT, QueueError, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// Node 0 has CPUs 0 to 2, each a pod of scope `cache`.
const THREE_PODS: &str = "node:2 llc:3 core:1";

/// The milliseconds at which items began, by name.
type Begun = Arc<Mutex<Vec<(&'static str, u64)>>>;

/// An item that declares a wait of 10 ms.
fn item(engine: &Arc<VirtualEngine>, begun: &Begun, name: &'static str) -> Arc<Item> {
    let (engine, begun) = (engine.clone(), begun.clone());
    Item::new(move || {
        begun.lock().unwrap().push((name, engine.host().time() / MS));
        engine.blocking(|| engine.host().doze(10 * MS));
    })
}

/// A queue that lets one item run on node 0.
fn one_on_the_node(engine: &Arc<VirtualEngine>) -> VirtualQueue {
    let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, true));
    let limit = QueueSpec { max_active: 2, flags: Flags::FREEZABLE, ..spec("q", kind) };
    let queue = make(engine, limit);
    queue.set_min_active(1).unwrap();
    queue
}

/// Occupies CPU 1 with another queue's item for `ms`.
fn occupy(engine: &Arc<VirtualEngine>, ms: u64) -> VirtualQueue {
    let (other, host) = (make(engine, spec("other", Kind::PerCpu)), engine.host().clone());
    let busy = Item::new(move || host.burn(ms * MS));
    assert_eq!(busy.queue_on(&other, 1), Queued::Yes);
    other
}

// Catches: a permit that stays with a pwq that no longer needs it, until a worker of its pod scans.
#[test]
fn a_granted_permit_is_passed_on_when_its_item_is_cancelled() {
    with_engine(Setup::exact(THREE_PODS), |engine| {
        let (host, queue, begun) = (engine.host(), one_on_the_node(engine), Begun::default());
        for round in 0..3 {
            let begin = host.time() / MS;
            begun.lock().unwrap().clear();
            assert_eq!(item(engine, &begun, "first").queue_on(&queue, 0), Queued::Yes);
            host.doze(MS);
            let other = occupy(engine, 30);
            let taken_back = item(engine, &begun, "taken back");
            assert_eq!(taken_back.queue_on(&queue, 1), Queued::Yes);
            assert_eq!(item(engine, &begun, "last").queue_on(&queue, 2), Queued::Yes);
            // The first item has ended, and its permit waits for CPU 1.
            host.doze(15 * MS);
            assert!(taken_back.cancel(engine), "round {round}");
            queue.flush().unwrap();
            assert_eq!(*begun.lock().unwrap(), [("first", begin), ("last", begin + 16)]);
            drop(other);
        }
    });
}

// Catches: an item that starts while its queue is frozen, with the permit that it was granted
// before.
#[test]
fn a_freeze_takes_back_an_unused_permit() {
    with_engine(Setup::exact(THREE_PODS), |engine| {
        let (host, queue, begun) = (engine.host(), one_on_the_node(engine), Begun::default());
        assert_eq!(item(engine, &begun, "first").queue_on(&queue, 0), Queued::Yes);
        host.doze(MS);
        let other = occupy(engine, 30);
        assert_eq!(item(engine, &begun, "second").queue_on(&queue, 1), Queued::Yes);
        host.doze(15 * MS);
        engine.freeze_begin().unwrap();
        host.doze(34 * MS);
        other.flush().unwrap();
        assert_eq!(engine.freeze_busy(), Ok(false));
        assert_eq!(*begun.lock().unwrap(), [("first", 0)]);
        engine.thaw().unwrap();
        queue.flush().unwrap();
        assert_eq!(*begun.lock().unwrap(), [("first", 0), ("second", 50)]);
    });
}

// Catches: congestion by an item that waits for its CPU, not for a permit.
#[test]
fn an_item_that_waits_for_its_cpu_is_not_congestion() {
    with_engine(Setup::exact(THREE_PODS), |engine| {
        let (host, queue, begun) = (engine.host(), one_on_the_node(engine), Begun::default());
        assert_eq!(item(engine, &begun, "warm").queue_on(&queue, 1), Queued::Yes);
        assert_eq!(item(engine, &begun, "warm").queue_on(&queue, 0), Queued::Yes);
        queue.flush().unwrap();
        let other = occupy(engine, 30);
        host.doze(MS);
        assert_eq!(item(engine, &begun, "waits").queue_on(&queue, 1), Queued::Yes);
        assert_eq!(queue.is_congested(Some(1)), Ok(false));
        queue.flush().unwrap();
        drop(other);
    });
}

// Catches: a helper that finds no permit although one is free, or finds one although none is free.
#[test]
fn a_helper_runs_a_pending_item_if_a_permit_is_free() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, begun) = (engine.host(), Begun::default());
        let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let queue = make(engine, QueueSpec { max_active: 1, ..spec("q", kind) });
        // This thread holds the only CPU until it waits.
        let helped = item(engine, &begun, "helped");
        assert_eq!(helped.queue(&queue), Queued::Yes);
        assert_eq!((helped.help(engine), host.time()), (Helped::Ran, 10 * MS));
        assert_eq!(item(engine, &begun, "first").queue(&queue), Queued::Yes);
        host.doze(MS);
        assert_eq!(helped.queue(&queue), Queued::Yes);
        assert_eq!(helped.help(engine), Helped::No, "the only permit is taken");
        queue.flush().unwrap();
        assert_eq!(*begun.lock().unwrap(), [("helped", 0), ("first", 10), ("helped", 20)]);
    });
}

// Catches: a bound that is off by one, or that refuses its boundary value only.
#[test]
fn max_active_has_bounds() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        for bad in [0, MAX_ACTIVE_LIMIT + 1, u32::MAX] {
            assert_eq!(queue.set_max_active(bad), Err(QueueError::BadMaxActive(bad)));
        }
        for good in [1, MAX_ACTIVE_LIMIT] {
            assert_eq!(queue.set_max_active(good), Ok(()));
            assert_eq!(queue.max_active(), good);
        }
    });
}

// Catches: a permit that a pod without items keeps is lost for the others; one that is kept past a
// lowered limit.
#[test]
fn permits_that_pods_keep_count_as_free_but_never_beyond_the_limit() {
    with_engine(Setup::exact("node:1 llc:2 core:6"), |engine| {
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, true));
        let queue = make(engine, QueueSpec { max_active: 4, ..spec("q", kind) });
        let begun = Begun::default();
        // Both pods run an item, and keep a permit.
        for cpu in [1, 6] {
            assert_eq!(item(engine, &begun, "first").queue_on(&queue, cpu), Queued::Yes);
        }
        queue.flush().unwrap();
        for (limit, rounds) in [(4, 1), (2, 2), (1, 4), (4, 1)] {
            queue.set_max_active(limit).unwrap();
            begun.lock().unwrap().clear();
            let begin = engine.host().time() / MS;
            for _ in 0..4 {
                assert_eq!(item(engine, &begun, "next").queue_on(&queue, 1), Queued::Yes);
            }
            queue.flush().unwrap();
            let mut at: Vec<u64> = begun.lock().unwrap().iter().map(|begun| begun.1).collect();
            at.sort_unstable();
            at.iter_mut().for_each(|at| *at -= begin);
            let expected: Vec<u64> =
                (0..rounds).flat_map(|round| vec![10 * round; 4 / rounds as usize]).collect();
            assert_eq!(at, expected, "limit {limit}");
        }
    });
}
