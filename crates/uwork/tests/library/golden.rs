//! The kernel's concurrency scenarios, on real threads: which item starts while another one is
//! blocked, and which one only after another has finished. Only the order is asserted, never the
//! time.
//!
//! w0 burns, sleeps, burns; w1 and w2 burn, then sleep. All are queued at once for one CPU.
//!
//! | case | w1 starts | w2 starts |
//! |---|---|---|
//! | one thread per queue, max_active 1 | after w0 has finished | after w1 has finished |
//! | max_active >= 3 | when w0 sleeps | when w1 sleeps too |
//! | max_active 2 | when w0 sleeps | after one of them has finished |
//! | w1 and w2 CPU-intensive | when w0 sleeps | when w0 sleeps |

use std::sync::Arc;

use crate::support::child::{alone, alone_with};
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::cpus;
use crate::support::tiers::VARIABLE;
use crate::support::{queue, watchdog};
use uwork::{Queue, sysfs};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Starts(usize),
    Sleeps(usize),
    WakesUp(usize),
    Finishes(usize),
}
use Event::{Finishes, Sleeps, Starts, WakesUp};

/// Runs `scene` in a process of its own in which only a declared wait lets another item start. A
/// worker that sleeps on the lock of the log, or computes for long on a slow machine, is not
/// replaced.
#[track_caller]
fn declared_only(test: &str, scene: impl FnOnce()) {
    let declared = |command: &mut std::process::Command| _ = command.env(VARIABLE, "declared");
    alone_with(test, declared, || {
        let _watchdog = watchdog();
        sysfs::set("module/parameters/cpu_intensive_thresh_us", "0").unwrap();
        scene();
    });
}

/// The three items, and the log of their events.
struct Scene {
    log: Log<Event>,
    wake_up: [Gate; 3],
}

/// Computes for a while, as far as the pool can tell, and gives other items every chance to start
/// wrongly.
fn burn() {
    for _ in 0..300 {
        std::thread::yield_now();
    }
}

impl Scene {
    fn new() -> Scene {
        Scene { log: Log::new(), wake_up: Default::default() }
    }

    /// Burns, sleeps until woken, burns again.
    fn item(&self, number: usize) -> Arc<Job> {
        self.item_that(number, burn)
    }

    fn item_that(&self, number: usize, burns: impl Fn() + Send + Sync + 'static) -> Arc<Job> {
        let (log, wake_up) = (self.log.clone(), self.wake_up[number].clone());
        Job::new(move |_| {
            log.push(Starts(number));
            burns();
            // Logged before the wait begins: an item that starts because of the wait logs after
            // this line.
            log.push(Sleeps(number));
            wake_up.wait_blocking();
            log.push(WakesUp(number));
            burn();
            log.push(Finishes(number));
        })
    }

    fn wake_up(&self, number: usize) {
        self.wake_up[number].open();
    }

    fn is(&self, events: &[Event]) {
        self.log.wait_for_count(events.len());
        assert_eq!(self.log.events(), events);
    }
}

fn enqueue_here(queue: &Queue, item: Arc<Job>) {
    assert!(queue.enqueue_on(cpus()[0], item).unwrap().is_queued());
}

/// Occupies the pool with a computing item of `other` while `enqueue` queues items, so that one
/// worker finds all of them. Before that, makes the pool estimate the items of `queue` as short, so
/// that the worker takes several at once.
fn enqueue_as_a_batch(queue: &Queue, other: &Queue, enqueue: impl FnOnce()) {
    for _ in 0..3_000 {
        enqueue_here(queue, Job::counting());
    }
    queue.flush().unwrap();
    let (computes, may_stop) = (Gate::new(), Gate::new());
    let (entered, stop) = (computes.clone(), may_stop.clone());
    enqueue_here(
        other,
        Job::new(move |_| {
            entered.open();
            stop.wait();
        }),
    );
    computes.wait();
    enqueue();
    may_stop.open();
}

/// Queues w0, w1 and w2 and plays the scene in which each starts only when the previous one has
/// finished.
fn one_after_the_other(queue: &Queue) {
    let scene = Scene::new();
    for number in 0..3 {
        enqueue_here(queue, scene.item(number));
    }
    let mut events = Vec::new();
    for number in 0..3 {
        events.extend([Starts(number), Sleeps(number)]);
        scene.is(&events);
        // No item starts while this one sleeps, although none computes.
        burn();
        scene.is(&events);
        scene.wake_up(number);
        events.extend([WakesUp(number), Finishes(number)]);
        scene.log.wait_for(&Finishes(number));
    }
    queue.flush().unwrap();
    scene.is(&events);
}

// Catches: an ordered queue, or max_active 1, that lets another item start during a declared wait.
#[test]
fn golden_one_at_a_time() {
    // In every tier: whatever a worker waits for, no other may start.
    alone("golden_one_at_a_time", || {
        let _watchdog = watchdog();
        one_after_the_other(&queue("golden").ordered().build().unwrap());
        one_after_the_other(&queue("golden").per_cpu().max_active(1).build().unwrap());
    });
}

// Catches: a wait that wakes no worker, more than one computing item, items that stay scheduled
// behind the waiting one.
#[test]
fn golden_max_active_three() {
    declared_only("golden_max_active_three", || {
        let other = queue("golden").per_cpu().build().unwrap();
        for (limit, as_a_batch) in [(3, false), (3, true), (1024, false), (1024, true)] {
            let queue = queue("golden").per_cpu().max_active(limit).build().unwrap();
            crate::support::keep(&queue);
            let scene = Scene::new();
            let enqueue = || (0..3).for_each(|number| enqueue_here(&queue, scene.item(number)));
            match as_a_batch {
                true => enqueue_as_a_batch(&queue, &other, enqueue),
                false => enqueue(),
            }
            let asleep = [Starts(0), Sleeps(0), Starts(1), Sleeps(1), Starts(2), Sleeps(2)];
            scene.is(&asleep);
            (0..3).for_each(|number| scene.wake_up(number));
            queue.flush().unwrap();
            assert_eq!(scene.log.events()[..6], asleep);
            for number in 0..3 {
                scene.log.assert_order(&WakesUp(number), &Finishes(number));
                assert!(scene.log.has(&Finishes(number)));
            }
        }
    });
}

// Catches: a limit that does not count waiting items, or that is not checked again when one of them
// has finished.
#[test]
fn golden_max_active_two() {
    declared_only("golden_max_active_two", || {
        for first_to_finish in [0, 1] {
            let queue = queue("golden").per_cpu().max_active(2).build().unwrap();
            let scene = Scene::new();
            for number in 0..3 {
                enqueue_here(&queue, scene.item(number));
            }
            let asleep = [Starts(0), Sleeps(0), Starts(1), Sleeps(1)];
            scene.is(&asleep);
            burn();
            scene.is(&asleep);
            scene.wake_up(first_to_finish);
            scene.log.wait_for(&Sleeps(2));
            scene.log.assert_order(&Finishes(first_to_finish), &Starts(2));
            assert!(!scene.log.has(&WakesUp(1 - first_to_finish)));
            scene.wake_up(1 - first_to_finish);
            scene.wake_up(2);
            queue.flush().unwrap();
            assert_eq!(scene.log.events().len(), 12);
        }
    });
}

// Catches: CPU-intensive items that delay each other, or that start while another item computes and
// none waits.
#[test]
fn golden_cpu_intensive() {
    declared_only("golden_cpu_intensive", || {
        let normal = queue("golden").per_cpu().build().unwrap();
        let intensive = queue("golden").per_cpu().cpu_intensive().build().unwrap();
        let scene = Scene::new();
        // Each of the two items computes until the other has started.
        let meet = |number: usize, other: usize| {
            let log = scene.log.clone();
            scene.item_that(number, move || log.wait_for(&Starts(other)))
        };
        enqueue_here(&normal, scene.item(0));
        scene.log.wait_for(&Starts(0));
        enqueue_here(&intensive, meet(1, 2));
        enqueue_here(&intensive, meet(2, 1));
        (1..3).for_each(|number| scene.log.wait_for(&Sleeps(number)));
        assert!(!scene.log.has(&WakesUp(0)), "both started, and went to sleep, while w0 slept");
        // Whether w0 still computed when w1 and w2 were queued is random; the order is not.
        scene.log.assert_order(&Sleeps(0), &Starts(1));
        scene.log.assert_order(&Sleeps(0), &Starts(2));
        scene.log.assert_order(&Starts(2), &Sleeps(1));
        scene.log.assert_order(&Starts(1), &Sleeps(2));
        (0..3).for_each(|number| scene.wake_up(number));
        normal.flush().unwrap();
        intensive.flush().unwrap();
        assert_eq!(scene.log.events().len(), 12);
    });
}

// Catches: items that stay scheduled behind a CPU-intensive one that waits. The first item of a
// batch waits for the second.
#[test]
fn golden_cpu_intensive_items_that_wait_give_their_batch_back() {
    declared_only("golden_cpu_intensive_items_that_wait_give_their_batch_back", || {
        let other = queue("golden").per_cpu().build().unwrap();
        for _ in 0..4 {
            let queue = queue("golden").per_cpu().cpu_intensive().max_active(2).build().unwrap();
            crate::support::keep(&queue);
            let (ends, second_ran) = (Log::new(), Gate::new());
            let (log, gate) = (ends.clone(), second_ran.clone());
            let first = Job::new(move |_| {
                gate.wait_blocking();
                log.push("first");
            });
            let log = ends.clone();
            let second = Job::new(move |_| {
                log.push("second");
                second_ran.open();
            });
            enqueue_as_a_batch(&queue, &other, || {
                // Where two may be active, one worker's share is two of four.
                for job in [first, second, Job::counting(), Job::counting()] {
                    enqueue_here(&queue, job);
                }
            });
            ends.wait_for_count(2);
            assert_eq!(ends.events(), ["second", "first"]);
        }
    });
}
