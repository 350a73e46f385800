//! How many items of a queue may be active, and which items wait behind that limit (SEMANTICS 2.23
//! to 2.26).
//!
//! The engine's tests in virtual time check machines of several nodes exactly.

use std::sync::Arc;

use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, two_cpus};
use crate::support::{queue, until, watchdog};
use uwork::topology::Machine;
use uwork::{AffinityScope, AffinityScopeChoice, Queue};

fn enqueue(queue: &Queue, cpu: u32, job: Arc<Job>) {
    assert!(queue.enqueue_on(cpu, job).unwrap().is_queued());
}

/// Items that log their start, and declare a wait for a gate.
fn hold(queue: &Queue, cpu: u32, count: u32, begun: &Log<u32>, may_end: &Gate) {
    for _ in 0..count {
        let (begun, may_end) = (begun.clone(), may_end.clone());
        let job = Job::new(move |_| {
            begun.push(cpu);
            may_end.wait_blocking();
        });
        enqueue(queue, cpu, job);
    }
}

/// Two CPUs of one node.
fn two_cpus_of_a_node() -> Option<(u32, u32)> {
    let (first, _) = two_cpus()?;
    let topology = Machine::read().expect("a machine").topology;
    let node = |cpu| topology.cpu(cpu).expect("a CPU of the machine").node;
    let second = cpus().into_iter().find(|&cpu| cpu != first && node(cpu) == node(first))?;
    Some((first, second))
}

// Catches: a limit counted over all CPUs, or a raise that starts nothing.
#[test]
fn s2_23_a_per_cpu_limit_is_live() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("s2-23").per_cpu().max_active(2).build().unwrap();
    let (begun, may_end) = (Log::new(), Gate::new());
    hold(&queue, here, 4, &begun, &may_end);
    hold(&queue, there, 2, &begun, &may_end);
    begun.wait_for_count(4);
    assert!(queue.is_congested_on(here).unwrap());
    assert!(!queue.is_congested_on(there).unwrap());
    assert_eq!(begun.events().iter().filter(|&&cpu| cpu == here).count(), 2);
    queue.set_max_active(3).unwrap();
    begun.wait_for_count(5);
    assert!(queue.is_congested_on(here).unwrap(), "one still waits");
    queue.set_max_active(2048).unwrap();
    begun.wait_for_count(6);
    assert!(!queue.is_congested_on(here).unwrap());
    may_end.open();
    queue.flush().unwrap();
}

// Catches: a new item that starts before one that waits behind the limit.
#[test]
fn s2_23_a_new_item_queues_behind_inactive_ones() {
    let _watchdog = watchdog();
    for queue in [
        queue("s2-23").per_cpu().max_active(1).build().unwrap(),
        queue("s2-23").max_active(1).affinity_strict(true).build().unwrap(),
    ] {
        let cpu = cpus()[0];
        let log = Log::new();
        let (started, may_end) = (Gate::new(), Gate::new());
        enqueue(&queue, cpu, Job::held(&started, &may_end));
        started.wait();
        for number in 0..100 {
            let log = log.clone();
            enqueue(&queue, cpu, Job::new(move |_| log.push(number)));
            if number == 50 {
                // The second half is queued while the first half runs.
                may_end.open();
            }
        }
        queue.flush().unwrap();
        assert_eq!(log.events(), (0..100).collect::<Vec<_>>());
    }
}

// Catches: a limit for each pod, a permit that is not passed to the other pod, a limit that cannot
// be reached.
#[test]
fn s2_24_pods_of_one_node_share_the_limit() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus_of_a_node() else { return };
    let queue = queue("s2-24")
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
        .affinity_strict(true)
        .max_active(3)
        .build()
        .unwrap();
    queue.set_min_active(3).unwrap();
    let (begun, may_end) = (Log::new(), Gate::new());
    hold(&queue, here, 2, &begun, &may_end);
    begun.wait_for_count(2);
    hold(&queue, there, 2, &begun, &may_end);
    begun.wait_for_count(3);
    until("the last item waits", || queue.is_congested_on(there).unwrap());
    assert!(!queue.is_congested_on(here).unwrap());
    hold(&queue, here, 1, &begun, &may_end);
    until("one more waits", || queue.is_congested_on(here).unwrap());
    assert_eq!(begun.events().len(), 3);
    queue.set_max_active(4).unwrap();
    queue.set_min_active(4).unwrap();
    // The pod whose worker scanned first was first in the waiting list; virtual time checks that
    // exactly.
    begun.wait_for_count(4);
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(begun.events().len(), 5);
}

// Catches: a permit that is lost, or granted twice, under contention.
#[test]
fn s2_24_a_shared_limit_holds_under_load() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus_of_a_node() else { return };
    let queue = queue("s2-24")
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
        .max_active(1)
        .build()
        .unwrap();
    let log = Log::new();
    for round in 0..50 {
        for number in 0..20 {
            let log = log.clone();
            let job = Job::new(move |_| {
                log.push((number, "begins"));
                uwork::blocking(std::thread::yield_now);
                log.push((number, "ends"));
            });
            enqueue(&queue, if number % 2 == 0 { here } else { there }, job);
        }
        queue.flush().unwrap();
        let events = log.events().split_off(40 * round);
        assert_eq!(events.len(), 40);
        for pair in events.chunks(2) {
            assert!(pair[0].0 == pair[1].0 && pair[0].1 == "begins", "two at once: {events:?}");
        }
    }
}

// Catches: a different default, a value that is not cut to the limit, one that does not follow it
// down.
#[test]
fn s2_25_min_active_is_eight_or_the_limit() {
    let _watchdog = watchdog();
    let unbound = queue("s2-25").build().unwrap();
    assert_eq!((unbound.max_active(), unbound.min_active()), (1024, Some(8)));
    let narrow = queue("s2-25").max_active(3).build().unwrap();
    assert_eq!(narrow.min_active(), Some(3));
    narrow.set_min_active(2).unwrap();
    assert_eq!(narrow.min_active(), Some(2));
    narrow.set_min_active(u32::MAX).unwrap();
    assert_eq!(narrow.min_active(), Some(3));
    narrow.set_max_active(1).unwrap();
    assert_eq!(narrow.min_active(), Some(1));
    narrow.set_max_active(100).unwrap();
    assert_eq!(narrow.min_active(), Some(1), "it does not go up by itself");
    for bad in [0, 2049, u32::MAX] {
        let error = narrow.set_max_active(bad).unwrap_err().to_string();
        assert!(error.contains(&bad.to_string()) && error.contains("1 to 2048"), "{error}");
    }
    assert_eq!((narrow.max_active(), narrow.min_active()), (100, Some(1)));
}

// Catches: limits that are accepted where they have no meaning.
#[test]
fn s2_26_ordered_queues_refuse_both() {
    let _watchdog = watchdog();
    let ordered = queue("s2-26").ordered().build().unwrap();
    for error in [ordered.set_max_active(2).unwrap_err(), ordered.set_min_active(1).unwrap_err()] {
        assert!(error.to_string().contains("ordered"), "{error}");
    }
    assert_eq!((ordered.max_active(), ordered.min_active()), (1, None));
    let per_cpu = queue("s2-26").per_cpu().build().unwrap();
    assert!(per_cpu.set_min_active(1).unwrap_err().to_string().contains("unbound"));
    assert_eq!(per_cpu.min_active(), None);
    assert!(per_cpu.is_congested_on(1 << 20).is_err());
}

// Catches: congestion that the submitter does not see, or sees where none exists.
#[test]
fn an_ordered_queue_is_congested_while_items_wait() {
    let _watchdog = watchdog();
    let queue = queue("congested").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    assert!(!queue.is_congested(), "nothing waits");
    assert!(queue.enqueue(Job::new(|_| {})).is_queued());
    assert!(queue.is_congested());
    may_end.open();
    queue.flush().unwrap();
    assert!(!queue.is_congested());
}
