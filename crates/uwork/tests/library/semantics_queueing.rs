//! Queueing: the meaning of the results, and where an item goes (SEMANTICS 2.1, 2.2, 2.8 to 2.10).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, current_cpu, mask, on_cpu, two_cpus};
use crate::support::{queue, watchdog};
use uwork::topology::Machine;
use uwork::{AffinityScope, AffinityScopeChoice, Enqueued, Queue};

// Catches: an item on two lists, a disabled item that is queued, or a refused item that is not
// returned.
#[test]
fn s2_01_queue_returns_false_when_pending_or_disabled() {
    let _watchdog = watchdog();
    let queue = queue("s2-01").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();

    let job = Job::counting();
    assert!(queue.enqueue(job.clone()).is_queued());
    assert!(job.work.is_pending());
    let Enqueued::Pending(back) = queue.enqueue(job.clone()) else { panic!("it is pending") };
    assert!(Arc::ptr_eq(&back, &job));
    drop(back);
    assert_eq!(Arc::strong_count(&job), 2, "one is ours, one is the queue's");

    let disabled = Job::counting();
    assert!(disabled.work.disable().unwrap().is_none());
    let Enqueued::Disabled(back) = queue.enqueue(disabled.clone()) else {
        panic!("it is disabled")
    };
    assert!(Arc::ptr_eq(&back, &disabled));

    may_end.open();
    queue.flush().unwrap();
    assert_eq!((job.tally.finished(), disabled.tally.started()), (1, 0));
    assert!(!job.work.is_pending());
    assert!(queue.enqueue(job.clone()).is_queued(), "it is idle again");
    queue.flush().unwrap();
    assert_eq!(job.tally.finished(), 2);
}

// Catches: PENDING cleared after the function, so that a queueing during a run is lost.
#[test]
fn s2_02_a_running_item_can_be_queued_and_runs_once_more() {
    let _watchdog = watchdog();
    let queue = queue("s2-02").build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    assert!(queue.enqueue(job.clone()).is_queued());
    started.wait();
    assert!(!job.work.is_pending(), "it runs: it is not pending");
    assert!(queue.enqueue(job.clone()).is_queued(), "a running item can be queued");
    assert!(!queue.enqueue(job.clone()).is_queued(), "but once only");
    assert_eq!(job.tally.started(), 1);
    may_end.open();
    queue.flush().unwrap();
    assert_eq!((job.tally.finished(), job.tally.overlapped()), (2, false));
}

// Catches: a relaxed `fetch_or` in queue, or a start that clears PENDING without acquiring: the run
// then sometimes misses the last number that was stored.
#[test]
fn s2_08_a_run_sees_what_was_stored_before_either_answer() {
    let _watchdog = watchdog();
    let queue = queue("s2-08").build().unwrap();
    let posted: Arc<[AtomicU64; 2]> = Arc::default();
    let seen: Arc<[AtomicU64; 2]> = Arc::default();
    let (theirs, ours) = (posted.clone(), seen.clone());
    let job = Job::new(move |_| {
        for (posted, seen) in theirs.iter().zip(ours.iter()) {
            // Relaxed, as the stores below: the test checks the queue's own ordering.
            seen.fetch_max(posted.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    let (mut queued, mut pending) = (0_u64, 0_u64);
    for round in 1..=200 {
        std::thread::scope(|scope| {
            let producers = [0, 1].map(|which| {
                let (queue, job, posted) = (&queue, &job, &posted[which]);
                scope.spawn(move || {
                    let mut answers = [0_u64; 2];
                    for number in 1..=50 {
                        posted.store((round - 1) * 50 + number, Ordering::Relaxed);
                        match queue.enqueue(job.clone()) {
                            Enqueued::Queued => answers[0] += 1,
                            Enqueued::Pending(_) => answers[1] += 1,
                            other => panic!("{}", other.is_queued()),
                        }
                    }
                    answers
                })
            });
            for producer in producers {
                let answers = producer.join().unwrap();
                queued += answers[0];
                pending += answers[1];
            }
        });
        job.work.flush();
        for seen in seen.iter() {
            assert_eq!(seen.load(Ordering::Relaxed), round * 50, "a store was not seen");
        }
    }
    assert_eq!(queued + pending, 20_000);
    assert_eq!(u64::from(job.tally.finished()), queued, "one run for each true");
}

/// The CPU on which an item runs that `enqueue` queues.
fn cpu_of_run(enqueue: impl FnOnce(Arc<Job>) -> bool) -> u32 {
    let log = Log::new();
    let events = log.clone();
    assert!(enqueue(Job::new(move |_| events.push(current_cpu()))));
    log.wait_for_count(1);
    log.events()[0]
}

fn strict_per_cpu_pods(stem: &str) -> uwork::Builder {
    queue(stem)
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
        .affinity_strict(true)
}

// Catches: the wrong pool for the caller's CPU, a `queue_on` that ignores its argument, or a round
// robin that does not advance or leaves the mask.
#[test]
fn s2_09_the_cpu_is_the_local_one_or_one_of_the_mask_in_turn() {
    let _watchdog = watchdog();
    let bound = queue("s2-09-bound").per_cpu().build().unwrap();
    let unbound = strict_per_cpu_pods("s2-09-unbound").build().unwrap();
    for cpu in cpus() {
        for queue in [&bound, &unbound] {
            let local = on_cpu(cpu, || cpu_of_run(|job| queue.enqueue(job).is_queued()));
            assert_eq!(local, cpu, "{queue:?}: the local CPU");
            let on = cpu_of_run(|job| queue.enqueue_on(cpu, job).unwrap().is_queued());
            assert_eq!(on, cpu, "{queue:?}: queue_on");
        }
    }
    let Some((outside, _)) = two_cpus() else { return };
    let inside: Vec<u32> = cpus().into_iter().filter(|&cpu| cpu != outside).collect();
    let masked = strict_per_cpu_pods("s2-09-mask").cpumask(mask(&inside)).build().unwrap();
    let mut turns: BTreeMap<u32, u32> = BTreeMap::new();
    for _ in 0..2 * inside.len() {
        let cpu = on_cpu(outside, || cpu_of_run(|job| masked.enqueue(job).is_queued()));
        *turns.entry(cpu).or_default() += 1;
    }
    let each_twice: BTreeMap<u32, u32> = inside.iter().map(|&cpu| (cpu, 2)).collect();
    assert_eq!(turns, each_twice);
}

// Catches: `queue_on` on an unbound queue that pins the item to the CPU instead of choosing its pod.
#[test]
fn s2_09_queue_on_chooses_a_pod_and_does_not_pin() {
    let _watchdog = watchdog();
    let Some((cpu, _)) = two_cpus() else { return };
    let queue = queue("s2-09-pod")
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))
        .build()
        .unwrap();
    // One pod for the machine: while one item computes on a worker, the other starts on another
    // worker, although both were queued for the same CPU.
    let (first, second) = (Gate::new(), Gate::new());
    let meet = |mine: &Gate, other: &Gate| {
        let (mine, other) = (mine.clone(), other.clone());
        Job::new(move |_| {
            mine.open();
            other.wait();
        })
    };
    let jobs = [meet(&first, &second), meet(&second, &first)];
    for job in &jobs {
        assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    }
    queue.flush().unwrap();
    assert!(jobs.iter().all(|job| job.tally.finished() == 1));
}

// Catches: a node that is ignored, a bad node that is an error, or a per-CPU queue that takes one.
#[test]
fn s2_10_queue_node_takes_the_current_cpu_or_the_first_of_the_node() {
    let _watchdog = watchdog();
    let queue = strict_per_cpu_pods("s2-10").build().unwrap();
    let machine = Machine::read().unwrap();
    let run_on_node = |node: u32, queue: &Queue| {
        cpu_of_run(|job| queue.enqueue_node(node, job).unwrap().is_queued())
    };
    for node in machine.topology.nodes() {
        let of_node = machine.topology.node_cpus(node).and(machine.topology.online());
        for cpu in cpus() {
            let first = of_node.first().filter(|&first| cpus().contains(&first));
            let expected = if of_node.contains(cpu) { Some(cpu) } else { first };
            let seen = on_cpu(cpu, || run_on_node(node, &queue));
            assert_eq!(seen, expected.unwrap_or(cpu), "node {node} from CPU {cpu}");
        }
    }
    for cpu in cpus() {
        assert_eq!(on_cpu(cpu, || run_on_node(u32::MAX, &queue)), cpu, "no such node: local");
    }
    let bound = crate::support::queue("s2-10-bound").per_cpu().build().unwrap();
    let job = Job::counting();
    let rejected = bound.enqueue_node(0, job.clone()).unwrap_err();
    assert!(Arc::ptr_eq(&rejected.item, &job), "the item comes back");
    bound.flush().unwrap();
    assert_eq!((job.tally.started(), job.work.is_pending()), (0, false));
}
