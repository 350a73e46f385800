//! The exact limits on active items: shares of NUMA nodes, turns among pods, live changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use uwork_engine::{Attrs, Helped, Kind, QueueError, QueueSpec, Queued};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::host::VirtualHost;
use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// Two nodes of two pods of two CPUs each: pods of scope `cache` are 0-1, 2-3, 4-5 and 6-7.
const TWO_NODES: &str = "node:2 llc:2 core:2";

/// When each item began, by name; and the highest number of active items, by the first letter of
/// the name.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    begun: Vec<(String, u64)>,
    now: BTreeMap<char, u32>,
    most: BTreeMap<char, u32>,
}

impl Log {
    /// An item that declares a wait of this length.
    fn item(&self, engine: &Arc<VirtualEngine>, name: &str, takes_ns: u64) -> Arc<Item> {
        let (log, engine, name) = (self.clone(), engine.clone(), name.to_owned());
        Item::new(move || {
            let letter = name.chars().next().expect("a name");
            let mut entries = log.0.lock().unwrap();
            entries.begun.push((name.clone(), engine.host().time() / MS));
            let now = entries.now.entry(letter).or_default();
            *now += 1;
            let now = *now;
            let most = entries.most.entry(letter).or_default();
            *most = now.max(*most);
            drop(entries);
            engine.blocking(|| engine.host().doze(takes_ns));
            *log.0.lock().unwrap().now.get_mut(&letter).unwrap() -= 1;
        })
    }

    /// Queues `count` items of 10 ms for a CPU. Their names are a letter and a number.
    fn queue(&self, queue: &VirtualQueue, letter: char, cpu: u32, count: u32) {
        for number in 0..count {
            let item = self.item(queue.engine(), &format!("{letter}{number}"), 10 * MS);
            assert_eq!(item.queue_on(queue, cpu), Queued::Yes);
        }
    }

    fn most(&self, letter: char) -> u32 {
        self.0.lock().unwrap().most.get(&letter).copied().unwrap_or(0)
    }

    fn begun(&self) -> Vec<(String, u64)> {
        self.0.lock().unwrap().begun.clone()
    }

    fn order(&self) -> Vec<String> {
        self.begun().into_iter().map(|(name, _)| name).collect()
    }
}

fn unbound(engine: &Arc<VirtualEngine>, scope: AffinityScope, max_active: u32) -> VirtualQueue {
    let kind = Kind::Unbound(attrs(engine, scope, true));
    make(engine, QueueSpec { max_active, ..spec("q", kind) })
}

fn change(host: &VirtualHost, queue: &VirtualQueue, change: impl FnOnce(&mut Attrs)) {
    host.unpreempted(|| queue.change_attrs(change)).unwrap();
}

/// Queues ten items for a pod of each node, and returns the highest number of active items on each.
fn most_on_each(engine: &Arc<VirtualEngine>, queue: &VirtualQueue) -> (u32, u32) {
    let log = Log::default();
    for (letter, cpu) in [('a', 0), ('b', 4)] {
        log.queue(queue, letter, cpu, 40);
    }
    let begin = engine.host().time();
    queue.flush().unwrap();
    let most = (log.most('a'), log.most('b'));
    // The limits are reached, and released permits are used at once.
    let slowest = most.0.min(most.1);
    assert_eq!(engine.host().time() - begin, u64::from(40_u32.div_ceil(slowest)) * 10 * MS);
    most
}

// Catches: the whole limit on each node, one limit over both, rounding down, a minimum that is
// ignored, shares by all CPUs instead of those in use.
#[test]
fn a_limit_is_divided_among_nodes() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let queue = unbound(engine, AffinityScope::Cache, 32);
        assert_eq!(most_on_each(engine, &queue), (16, 16));
        queue.set_max_active(20).unwrap();
        assert_eq!(most_on_each(engine, &queue), (10, 10));
        queue.set_max_active(10).unwrap();
        assert_eq!((queue.min_active(), most_on_each(engine, &queue)), (Some(8), (8, 8)));
        queue.set_min_active(1).unwrap();
        assert_eq!(most_on_each(engine, &queue), (5, 5));
        queue.set_max_active(3).unwrap();
        assert_eq!(most_on_each(engine, &queue), (2, 2));
        // Four CPUs of one node, one of the other.
        change(engine.host(), &queue, |attrs| attrs.cpumask = "0-4".parse().unwrap());
        queue.set_max_active(10).unwrap();
        assert_eq!(most_on_each(engine, &queue), (8, 2));
        // The limit is not exceeded, however high the minimum is.
        queue.set_min_active(1_000).unwrap();
        assert_eq!((queue.min_active(), most_on_each(engine, &queue)), (Some(10), (10, 10)));
    });
}

// Catches: a limit for each pod.
#[test]
fn pods_of_one_node_share_its_limit() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let queue = unbound(engine, AffinityScope::Cache, 6);
        queue.set_min_active(1).unwrap();
        let log = Log::default();
        // All of these are on node 0; they share the letter.
        log.queue(&queue, 'n', 0, 9);
        log.queue(&queue, 'n', 2, 9);
        queue.flush().unwrap();
        assert_eq!((log.most('n'), engine.host().time()), (3, 60 * MS));
    });
}

// Catches: a pod that keeps the permit, a pod that gets two in a row, a pod that is skipped for
// ever, and a new item that overtakes a waiting one.
#[test]
fn pods_that_wait_take_turns() {
    with_engine(Setup::exact("node:2 llc:3 core:1"), |engine| {
        let queue = unbound(engine, AffinityScope::Cache, 1);
        let log = Log::default();
        log.queue(&queue, 'x', 0, 1);
        engine.host().doze(MS);
        for (letter, cpu, count) in [('a', 0, 4), ('b', 1, 2), ('c', 2, 3)] {
            log.queue(&queue, letter, cpu, count);
            engine.host().doze(MS);
        }
        let late = log.item(engine, "b-late", 10 * MS);
        assert_eq!(late.queue_on(&queue, 1), Queued::Yes);
        queue.flush().unwrap();
        let expected = ["x0", "a0", "b0", "c0", "a1", "b1", "c1", "a2", "b-late", "c2", "a3"];
        assert_eq!(log.order(), expected);
        // One after the other, without a gap.
        let times: Vec<u64> = log.begun().into_iter().map(|(_, at)| at).collect();
        assert_eq!(times, (0..11).map(|n| n * 10).collect::<Vec<_>>());
    });
}

// Catches: spanning pods that are counted on a node, or get a share of one; several that do not
// share.
#[test]
fn pods_that_span_nodes_share_a_further_whole_limit() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (queue, log) = (unbound(engine, AffinityScope::Cache, 4), Log::default());
        queue.set_min_active(1).unwrap();
        log.queue(&queue, 'a', 0, 3);
        engine.host().doze(MS);
        change(engine.host(), &queue, |attrs| {
            attrs.scope = AffinityScopeChoice::Explicit(AffinityScope::System)
        });
        log.queue(&queue, 's', 0, 5);
        engine.host().doze(MS);
        assert_eq!((log.most('a'), log.most('s')), (2, 4));
        // Another spanning pod, of fewer CPUs.
        change(engine.host(), &queue, |attrs| attrs.cpumask = "0-6".parse().unwrap());
        log.queue(&queue, 's', 0, 3);
        queue.flush().unwrap();
        // Four of seven CPUs are on node 0 now, so that three may run there.
        assert_eq!((log.most('a'), log.most('s')), (3, 4));
        let last = log.begun().iter().map(|&(_, at)| at).max();
        assert_eq!(last, Some(11), "as soon as the first four were done");
    });
}

// Catches: a raise that waits for a released permit, a limit that is lowered late, old pods that
// keep the previous limit.
#[test]
fn changes_of_the_limit_take_effect_at_once() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (queue, log) = (unbound(engine, AffinityScope::Cache, 2), Log::default());
        queue.set_min_active(1).unwrap();
        log.queue(&queue, 'a', 0, 8);
        log.queue(&queue, 'b', 2, 8);
        let at = |ms: u64| {
            let until = ms * MS - engine.host().time();
            engine.host().doze(until);
            log.begun().len()
        };
        assert_eq!(at(1), 1);
        queue.set_max_active(6).unwrap();
        assert_eq!(at(2), 3);
        queue.set_min_active(5).unwrap();
        assert_eq!(at(3), 5);
        // The five running items continue. No item starts before fewer than two run.
        queue.set_max_active(2).unwrap();
        queue.set_min_active(2).unwrap();
        assert_eq!((queue.max_active(), queue.min_active()), (2, Some(2)));
        assert_eq!(at(13), 7);
        let times: Vec<u64> = log.begun().into_iter().map(|(_, at)| at).collect();
        assert_eq!(times, [0, 1, 1, 2, 2, 12, 12], "at 11 two of those that began at 2 are left");
        queue.flush().unwrap();
    });
}

// Catches: helpers that exceed the shared limit, or whose permit is not passed on.
#[test]
fn a_helper_takes_a_permit_and_passes_it_on() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let (queue, log) = (unbound(engine, AffinityScope::Cache, 2), Log::default());
        queue.set_min_active(1).unwrap();
        let helped = log.item(engine, "helped", 10 * MS);
        log.queue(&queue, 'a', 0, 1);
        engine.host().doze(MS);
        assert_eq!(helped.queue_on(&queue, 2), Queued::Yes);
        assert_eq!(helped.help(engine), Helped::No, "the node is full");
        assert!(helped.cancel(engine));
        queue.flush().unwrap();
        assert_eq!(helped.queue_on(&queue, 2), Queued::Yes);
        log.queue(&queue, 'b', 0, 1);
        assert_eq!(helped.help(engine), Helped::Ran);
        queue.flush().unwrap();
        let expected = [("a0", 0), ("helped", 10), ("b0", 20)];
        assert_eq!(log.begun(), expected.map(|(name, at)| (name.to_owned(), at)));
    });
}

// Catches: permits that leak because of cancelled items.
#[test]
fn a_cancelled_items_permit_goes_to_the_next_item() {
    with_engine(Setup::exact("node:2 llc:3 core:1"), |engine| {
        let (queue, log) = (unbound(engine, AffinityScope::Cache, 1), Log::default());
        for round in 0..3 {
            log.queue(&queue, 'x', 0, 1);
            engine.host().doze(MS);
            let waiting = log.item(engine, "cancelled", MS);
            assert_eq!(waiting.queue_on(&queue, 1), Queued::Yes);
            engine.host().doze(MS);
            log.queue(&queue, 'c', 2, 1);
            engine.host().doze(MS);
            assert!(waiting.cancel(engine));
            queue.flush().unwrap();
            assert_eq!(log.begun()[2 * round..][1], ("c0".to_owned(), 20 * round as u64 + 10));
        }
        assert_eq!(log.most('c'), 1);
    });
}

// Catches: a limit per CPU that is divided; congestion by items that only wait for a worker.
#[test]
fn congestion_counts_items_behind_the_limit() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let queue = make(engine, QueueSpec { max_active: 2, ..spec("q", Kind::PerCpu) });
        let congested = |cpu| queue.is_congested(Some(cpu)).unwrap();
        let log = Log::default();
        log.queue(&queue, 'a', 3, 2);
        engine.host().doze(MS);
        assert_eq!((log.most('a'), congested(3)), (2, false));
        log.queue(&queue, 'a', 3, 1);
        assert_eq!((congested(3), congested(0)), (true, false));
        assert!(!queue.is_congested(None).unwrap(), "this is CPU 0");
        engine.host().doze(10 * MS);
        assert!(!congested(3));
        queue.flush().unwrap();
        assert!(matches!(queue.is_congested(Some(99)), Err(QueueError::BadCpu { cpu: 99, .. })));

        drop(queue);
        let (shared, log) = (unbound(engine, AffinityScope::Cache, 2), Log::default());
        shared.set_min_active(1).unwrap();
        log.queue(&shared, 'a', 0, 1);
        engine.host().doze(MS);
        assert!(!shared.is_congested(Some(2)).unwrap());
        log.queue(&shared, 'b', 2, 1);
        let congested = [0, 2, 4].map(|cpu| shared.is_congested(Some(cpu)).unwrap());
        assert_eq!(congested, [false, true, false]);
        shared.flush().unwrap();
    });
}

/// The pools in which no permit is free, as a dump shows them.
fn saturated(queue: &VirtualQueue) -> Vec<usize> {
    let pwqs = queue.dump().pwqs;
    pwqs.iter().enumerate().filter(|(_, pwq)| pwq.saturated).map(|(place, _)| place).collect()
}

// Catches: a mark that only a worker sets which looks for a permit; permits counted for each pool where
// a node's pools share them; one that a pool keeps counted as taken.
#[test]
fn a_dump_shows_the_pools_without_a_free_permit() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let log = Log::default();
        let per_cpu = make(engine, QueueSpec { max_active: 2, ..spec("q", Kind::PerCpu) });
        for expected in [vec![], vec![3]] {
            log.queue(&per_cpu, 'a', 3, 1);
            engine.host().doze(MS);
            assert_eq!(saturated(&per_cpu), expected, "no item waits");
        }
        // A worker releases its permit after the end of its items.
        per_cpu.flush().unwrap();
        engine.host().doze(MS);
        assert_eq!(saturated(&per_cpu), []);
        drop(per_cpu);

        // A pool for each CPU, and two permits for each node.
        let shared = unbound(engine, AffinityScope::Cache, 4);
        shared.set_min_active(1).unwrap();
        for (cpu, expected) in [(0, 0..0), (2, 0..4), (4, 0..4), (4, 0..8)] {
            log.queue(&shared, 'b', cpu, 1);
            engine.host().doze(MS);
            assert_eq!(saturated(&shared), Vec::from_iter(expected), "{}", shared.dump());
        }
        shared.set_max_active(6).unwrap();
        assert_eq!(saturated(&shared), [], "{}", shared.dump());
        shared.flush().unwrap();
        engine.host().doze(MS);
        assert_eq!(saturated(&shared), [], "those that are kept are free");
        drop(shared);

        let whole = unbound(engine, AffinityScope::System, 2);
        for expected in [0..0, 0..8] {
            log.queue(&whole, 'c', 0, 1);
            engine.host().doze(MS);
            assert_eq!(saturated(&whole), Vec::from_iter(expected), "{}", whole.dump());
        }
        whole.pause().unwrap();
        assert_eq!(saturated(&whole), [], "it is paused");
        whole.resume().unwrap();
    });
}

// Catches: limits that are accepted on queues where they have no meaning.
#[test]
fn min_active_is_for_unbound_queues() {
    with_engine(Setup::exact(TWO_NODES), |engine| {
        let scope = AffinityScopeChoice::Default;
        let attrs = Attrs { nice: 0, cpumask: CpuSet::first_n(8), scope, strict: false };
        let ordered = make(engine, spec("ordered", Kind::Ordered(attrs)));
        let per_cpu = make(engine, spec("per_cpu", Kind::PerCpu));
        for queue in [&ordered, &per_cpu] {
            assert_eq!(queue.min_active(), None);
            assert!(matches!(queue.set_min_active(1), Err(QueueError::NotForThisKind(_))));
        }
        assert!(matches!(ordered.set_max_active(1), Err(QueueError::NotForThisKind(_))));
    });
}
