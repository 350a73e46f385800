//! Attributes changed on a live queue, under load: no item is lost, none runs twice, and no
//! guaranteed order is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::flag::SetOnDrop;
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, current_cpu, mask, on_cpu, two_cpus};
use crate::support::random::Random;
use crate::support::{keep, queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Queue};

/// Changes one attribute at random.
fn flip(queue: &Queue, random: &mut Random) {
    let cpus = cpus();
    match random.below(5) {
        0 => {
            let scopes = AffinityScope::ALL.map(AffinityScopeChoice::Explicit);
            let scope =
                if random.one_in(8) { AffinityScopeChoice::Default } else { *random.pick(&scopes) };
            queue.set_affinity_scope(scope).unwrap();
        }
        1 => {
            let one = vec![*random.pick(&cpus)];
            queue.set_cpumask(mask(if random.one_in(2) { &one } else { &cpus })).unwrap();
        }
        2 => queue.set_affinity_strict(random.one_in(2)).unwrap(),
        3 => queue.set_nice(random.below(2) as i32).unwrap(),
        _ if queue.is_ordered() => {}
        _ => queue.set_max_active(*random.pick(&[1, 2, 3, 1_024])).unwrap(),
    }
}

/// Queues items from several threads while attributes change. The number of runs must equal the
/// number of successful queueings.
fn load_while_flipping(queue: &Queue, flips: u64) {
    let jobs: Vec<_> = (0..64)
        .map(|number| {
            Job::new(move |_| {
                if number % 8 == 0 {
                    uwork::blocking(std::thread::yield_now);
                }
            })
        })
        .collect();
    let (over, queued) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (jobs, over, queued, cpus) = (&jobs, &over, &queued, cpus());
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let job = random.pick(jobs).clone();
                    let outcome = match random.one_in(3) {
                        true => queue.enqueue_on(*random.pick(&cpus), job).unwrap(),
                        false => queue.enqueue(job),
                    };
                    queued.fetch_add(u64::from(outcome.is_queued()), Ordering::Relaxed);
                }
            });
        }
        let _over = SetOnDrop(&over);
        let mut random = Random::new(99);
        for round in 0..flips {
            flip(queue, &mut random);
            if round % 16 == 0 {
                queue.flush().unwrap();
            }
        }
    });
    queue.flush().unwrap();
    let runs: u32 = jobs.iter().map(|job| job.tally.finished()).sum();
    assert_eq!(u64::from(runs), queued.into_inner());
    assert!(jobs.iter().all(|job| !job.tally.overlapped() && !job.work.is_pending()));
    assert!(queue.is_idle());
}

// Catches: an item that is lost between two pools, a ready pwq that no worker takes, concurrent
// runs of one item, a flush that misses the pwqs of older attributes.
#[test]
fn no_item_is_lost_while_attributes_change() {
    let _watchdog = watchdog();
    load_while_flipping(&queue("attrs").build().unwrap(), 300);
    load_while_flipping(&queue("attrs").cpu_intensive().build().unwrap(), 100);
    load_while_flipping(&queue("attrs").ordered().build().unwrap(), 300);
}

// Catches: a caller outside the mask that takes its turn from one mask and its pod from another.
#[test]
fn a_caller_outside_the_mask_survives_its_change() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("attrs").cpumask(mask(&[here])).build().unwrap();
    let jobs: Vec<_> = (0..2).map(|_| Job::counting()).collect();
    let (over, queued) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in [here, there] {
            let (queue, jobs, over, queued) = (&queue, &jobs, &over, &queued);
            scope.spawn(move || {
                let mut at = 0;
                while !over.load(Ordering::Relaxed) {
                    let outcome = queue.enqueue_on(cpu, jobs[at % 2].clone()).unwrap();
                    queued.fetch_add(u64::from(outcome.is_queued()), Ordering::Relaxed);
                    at += 1;
                }
            });
        }
        let _over = SetOnDrop(&over);
        for round in 0..4_000 {
            queue.set_cpumask(mask(&[if round % 2 == 0 { there } else { here }])).unwrap();
        }
    });
    queue.flush().unwrap();
    let runs: u32 = jobs.iter().map(|job| job.tally.finished()).sum();
    assert_eq!(u64::from(runs), queued.into_inner());
}

// Catches: items of one producer that overtake each other while an ordered queue moves; two at
// once.
#[test]
fn an_ordered_queue_keeps_each_producers_order() {
    let _watchdog = watchdog();
    let queue = queue("attrs").ordered().build().unwrap();
    const PRODUCERS: u64 = 3;
    const ITEMS: u64 = 3_000;
    let last: Arc<[AtomicU64; PRODUCERS as usize]> = Arc::default();
    let wrong = Arc::new(AtomicU64::new(0));
    let busy = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS as usize {
            let (queue, last, wrong, busy) = (&queue, &last, &wrong, &busy);
            scope.spawn(move || {
                for number in 1..=ITEMS {
                    let (last, wrong, busy) = (last.clone(), wrong.clone(), busy.clone());
                    let job = Job::new(move |_| {
                        let overlaps = busy.swap(true, Ordering::Relaxed);
                        let before = last[producer].swap(number, Ordering::Relaxed);
                        let bad = overlaps || before + 1 != number;
                        wrong.fetch_add(u64::from(bad), Ordering::Relaxed);
                        busy.store(false, Ordering::Relaxed);
                    });
                    assert!(queue.enqueue(job).is_queued());
                }
            });
        }
        let mut random = Random::new(7);
        for _ in 0..200 {
            flip(&queue, &mut random);
        }
    });
    queue.flush().unwrap();
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    assert!(last.iter().all(|last| last.load(Ordering::Relaxed) == ITEMS));
}

/// An item that records its CPU.
fn noting(log: &Log<u32>) -> Arc<Job> {
    let log = log.clone();
    Job::new(move |_| log.push(current_cpu()))
}

// Catches: an ordered queue that stays on its old CPUs until it is empty.
#[test]
fn a_busy_ordered_queue_moves_to_its_new_cpus() {
    let _watchdog = watchdog();
    let Some((old, new)) = two_cpus() else { return };
    let queue = queue("attrs").ordered().cpumask(mask(&[old])).build().unwrap();
    keep(&queue);
    let (log, started, may_end) = (Log::new(), Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    assert!(queue.enqueue(noting(&log)).is_queued());
    queue.set_cpumask(mask(&[new])).unwrap();
    for _ in 0..5 {
        assert!(queue.enqueue(noting(&log)).is_queued());
    }
    may_end.open();
    log.wait_for_count(6);
    // The first item was queued before the change, and may run on either side of it.
    assert_eq!(log.events()[1..], [new; 5]);
}

// Catches: attributes that are stored but have no effect.
#[test]
fn items_queued_afterwards_use_the_new_attributes() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let queue = queue("attrs").affinity_strict(true).build().unwrap();
    let cpu_of_a_run = |from: u32| {
        let log = Log::new();
        let job = noting(&log);
        assert!(on_cpu(from, || queue.enqueue(job).is_queued()));
        log.wait_for_count(1);
        log.events()[0]
    };
    for cpu in [here, there, here] {
        queue.set_cpumask(mask(&[cpu])).unwrap();
        assert_eq!(queue.cpumask(), mask(&[cpu]));
        assert_eq!((cpu_of_a_run(here), cpu_of_a_run(there)), (cpu, cpu));
    }
    queue.set_cpumask(mask(&cpus())).unwrap();
    queue.set_affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu)).unwrap();
    assert_eq!(queue.affinity_scope().unwrap().to_string(), "cpu");
    assert_eq!((cpu_of_a_run(here), cpu_of_a_run(there)), (here, there));
}

// Catches: a raised limit that does not start the waiting items that it permits, or a lowered one
// that is not kept.
#[test]
fn max_active_can_be_changed_while_items_wait_for_it() {
    let _watchdog = watchdog();
    for builder in [queue("attrs"), queue("attrs").per_cpu()] {
        let queue = builder.max_active(1).build().unwrap();
        keep(&queue);
        let cpu = cpus()[0];
        let gates: [(Gate, Gate); 4] = Default::default();
        for (started, may_end) in &gates {
            let held = Job::held(started, may_end);
            assert!(queue.enqueue_on(cpu, held).unwrap().is_queued());
        }
        gates[0].0.wait();
        assert!(!gates[1].0.is_open());
        queue.set_max_active(3).unwrap();
        gates[1].0.wait();
        gates[2].0.wait();
        assert!(!gates[3].0.is_open(), "three at once, not four");
        queue.set_max_active(1).unwrap();
        gates[0].1.open();
        gates[1].1.open();
        // Two items have ended and one runs: the fourth must wait.
        let behind = Job::counting();
        assert!(queue.enqueue_on(cpu, behind.clone()).unwrap().is_queued());
        for _ in 0..1_000 {
            std::thread::yield_now();
        }
        assert!(!gates[3].0.is_open() && behind.tally.started() == 0);
        gates[2].1.open();
        gates[3].0.wait();
        gates[3].1.open();
        until("all have run", || behind.tally.finished() == 1);
    }
}
