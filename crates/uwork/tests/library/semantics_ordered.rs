//! Ordered execution, and other limits on how many items run at once (SEMANTICS 2.23, 2.26).

use std::sync::Arc;

use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, mask, two_cpus};
use crate::support::{queue, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Queue};

/// An item that records its start and its end.
fn noting(log: &Log<(u32, &'static str)>, number: u32) -> Arc<Job> {
    let log = log.clone();
    Job::new(move |_| {
        log.push((number, "begins"));
        uwork::blocking(std::thread::yield_now);
        log.push((number, "ends"));
    })
}

fn one_after_the_other(count: u32) -> Vec<(u32, &'static str)> {
    (0..count).flat_map(|number| [(number, "begins"), (number, "ends")]).collect()
}

// Catches: two items at once (also while one waits), or an order other than that of queueing.
#[test]
fn s2_26_an_ordered_queue_runs_one_at_a_time_in_order() {
    let _watchdog = watchdog();
    let queue = queue("s2-26").ordered().build().unwrap();
    let log = Log::new();
    let cpus = cpus();
    for number in 0..500 {
        let cpu = cpus[number as usize % cpus.len()];
        assert!(queue.enqueue_on(cpu, noting(&log, number)).unwrap().is_queued());
    }
    queue.flush().unwrap();
    assert_eq!(log.events(), one_after_the_other(500));
}

// Catches: a limit that can be changed.
#[test]
fn s2_26_the_limit_of_an_ordered_queue_is_refused() {
    let _watchdog = watchdog();
    let queue = queue("s2-26").ordered().build().unwrap();
    for limit in [0, 1, 2, 16] {
        let error = queue.set_max_active(limit).unwrap_err().to_string();
        assert!(error.contains("ordered") && error.contains('1'), "{error}");
    }
    assert_eq!(queue.max_active(), 1);
    assert!(queue.is_ordered());
    let error =
        crate::support::queue("s2-26").ordered().max_active(2).build().unwrap_err().to_string();
    assert!(error.contains("ordered") && error.contains('1'), "{error}");
    assert!(crate::support::queue("s2-26").ordered().max_active(1).build().is_ok());
}

// Catches: new pools that start before the old ones have finished, or items that overtake on the
// way.
#[test]
fn s2_26_attribute_changes_keep_the_order() {
    let _watchdog = watchdog();
    let queue = queue("s2-26").ordered().build().unwrap();
    let log = Log::new();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let masks: Vec<Vec<u32>> = cpus().into_iter().map(|cpu| vec![cpu]).chain([cpus()]).collect();
    for number in 0..140 {
        let at = number as usize;
        match number % 4 {
            0 => queue
                .set_affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::ALL[at / 4 % 7]))
                .unwrap(),
            1 => queue.set_cpumask(mask(&masks[at / 4 % masks.len()])).unwrap(),
            2 => queue.set_affinity_strict(at % 8 == 2).unwrap(),
            _ => queue.set_nice((number / 4 % 3) as i32).unwrap(),
        }
        assert!(queue.enqueue(noting(&log, number)).is_queued());
        if number == 70 {
            // The second half of the changes is made while items run.
            may_end.open();
        }
    }
    queue.flush().unwrap();
    assert_eq!(log.events(), one_after_the_other(140));
}

// Catches: a limit that is counted over all CPUs, or not at all; and an overtaken inactive item.
#[test]
fn s2_23_per_cpu_max_active_is_per_cpu_and_first_come_first() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("s2-23").per_cpu().max_active(1).build().unwrap();
    let enqueue = |queue: &Queue, cpu, job: Arc<Job>| {
        assert!(queue.enqueue_on(cpu, job).unwrap().is_queued());
    };
    let log = Log::new();
    let (started, may_end) = (Gate::new(), Gate::new());
    enqueue(&queue, here, Job::held(&started, &may_end));
    started.wait();
    for number in 0..20 {
        enqueue(&queue, here, noting(&log, number));
    }
    let (other, go) = (Gate::new(), Gate::new());
    enqueue(&queue, there, Job::held(&other, &go));
    other.wait();
    go.open();
    assert_eq!(log.events(), [], "one item waits on that CPU: no other may start there");
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(log.events(), one_after_the_other(20));
}
