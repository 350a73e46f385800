//! Deferrable items: no idle worker wakes for them, and the next worker that is awake runs them.

use std::sync::{Arc, Mutex};

use uwork_engine::{Attrs, Kind, Queued, Rearmed};
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

type Runs = Arc<Mutex<Vec<u64>>>;

/// An item that records when it runs.
fn noting(engine: &Arc<VirtualEngine>, runs: &Runs) -> Arc<Item> {
    let (host, runs) = (engine.host().clone(), runs.clone());
    Item::deferrable(move || runs.lock().unwrap().push(host.time()))
}

fn taken(runs: &Runs) -> Vec<u64> {
    std::mem::take(&mut runs.lock().unwrap())
}

fn run_something(queue: &VirtualQueue) {
    assert_eq!(Item::new(|| {}).queue(queue), Queued::Yes);
    queue.flush().unwrap();
}

/// A queue of each kind with pools of its own, whose workers are parked.
fn queues(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let all = Kind::Unbound(attrs(engine, AffinityScope::System, false));
    let pods = Kind::Unbound(attrs(engine, AffinityScope::Cpu, false));
    let ordered = Kind::Ordered(Attrs { nice: 1, ..attrs(engine, AffinityScope::Cpu, false) });
    let kinds = [("bound", Kind::PerCpu), ("all", all), ("pods", pods), ("ordered", ordered)];
    let queues = kinds.into_iter().map(|(name, kind)| make(engine, spec(name, kind))).collect();
    engine.host().doze(SEC);
    queues
}

#[test]
fn no_worker_wakes_for_a_deferrable_item_and_the_next_awake_one_runs_it() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        for queue in queues(engine) {
            let runs = Runs::default();
            let item = noting(engine, &runs);
            // The watcher may still check the CPUs because of the previous queue.
            host.doze(SEC);
            let before = host.counts().without_scans();
            assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
            assert_eq!(host.machine().next_event(), None, "something is going to happen");
            host.doze(1_000 * SEC);
            assert_eq!(host.counts().without_scans(), before, "no wake, no wake-up, no thread");
            assert!(taken(&runs).is_empty() && item.is_pending());
            run_something(&queue);
            // The item is queued behind the one for which the worker woke.
            queue.flush().unwrap();
            assert_eq!(taken(&runs), [host.time()]);
        }
    });
}

/// The watcher is awake for a while after a load, and checks for timers that are overdue.
#[test]
fn the_watcher_does_not_wake_for_deferrable_timers() {
    with_engine(Setup::exact("core:4"), |engine| {
        let host = engine.host();
        let queue =
            make(engine, spec("q", Kind::Unbound(attrs(engine, AffinityScope::System, false))));
        // Short items, of which a worker takes many at once: the watcher wakes for the items
        // behind.
        for _ in 0..2_000 {
            let busy = host.clone();
            assert_eq!(Item::new(move || busy.burn(US)).queue(&queue), Queued::Yes);
        }
        queue.drain().unwrap();
        host.doze(MS);
        let soon = host.time() + 11 * MS;
        assert!(host.machine().next_event().is_some_and(|at| at < soon), "the watcher is awake");
        let runs = Runs::default();
        let item = noting(engine, &runs);
        assert_eq!(item.queue_delayed(&queue, None, MS), Queued::Yes);
        host.doze(10 * SEC);
        assert!(taken(&runs).is_empty() && item.is_pending());
        assert!(item.cancel(engine));
    });
}

#[test]
fn a_busy_pool_runs_deferrable_items_on_time() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        for queue in queues(engine) {
            let (runs, left) = (Runs::default(), Arc::new(Mutex::new(50)));
            let (busy, own) = (host.clone(), queue.clone());
            let again = Arc::new_cyclic(|me: &std::sync::Weak<Mutex<Option<Arc<Item>>>>| {
                let me = me.clone();
                Mutex::new(Some(Item::new(move || {
                    busy.burn(MS);
                    let mut left = left.lock().unwrap();
                    *left -= 1;
                    let item = me.upgrade().and_then(|place| place.lock().unwrap().clone());
                    if let (Some(item), true) = (item, *left > 0) {
                        assert_eq!(item.queue(&own), Queued::Yes);
                    }
                })))
            });
            let working = again.lock().unwrap().clone().expect("put there above");
            let item = noting(engine, &runs);
            let begin = host.time();
            assert_eq!(working.queue(&queue), Queued::Yes);
            assert_eq!(item.queue_delayed(&queue, None, 20 * MS + MS / 2), Queued::Yes);
            host.doze(60 * MS);
            let ran = taken(&runs);
            let late = ran.first().map(|&at| at - begin).expect("it has run");
            assert!((20 * MS + MS / 2..=22 * MS + MS / 2).contains(&late), "after {late} ns");
            assert_eq!(ran.len(), 1);
            *again.lock().unwrap() = None;
        }
    });
}

/// Two expiries, one wake-up.
#[test]
fn a_worker_that_wakes_for_another_timer_runs_it() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let (item, timer) = (noting(engine, &runs), Item::new(|| {}));
        host.doze(MS);
        let begin = host.time();
        assert_eq!(timer.queue_delayed(&queue, None, 20 * MS), Queued::Yes);
        assert_eq!(item.queue_delayed(&queue, None, 5 * MS), Queued::Yes);
        host.doze(MS);
        let before = host.counts().without_scans();
        host.doze(SEC);
        let after = host.counts().without_scans();
        assert_eq!(taken(&runs), [begin + 20 * MS]);
        assert_eq!((after.wake_ups, after.wakes), (before.wake_ups + 1, before.wakes));
    });
}

/// The timer for which the worker was to wake was cancelled meanwhile.
#[test]
fn a_worker_that_wakes_for_a_cancelled_timer_runs_it() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let (item, timer) = (noting(engine, &runs), Item::new(|| {}));
        host.doze(MS);
        let begin = host.time();
        assert_eq!(timer.queue_delayed(&queue, None, 20 * MS), Queued::Yes);
        assert_eq!(item.queue_delayed(&queue, None, 5 * MS), Queued::Yes);
        host.doze(MS);
        assert!(timer.cancel(engine));
        host.doze(SEC);
        assert_eq!(taken(&runs), [begin + 20 * MS]);
    });
}

#[test]
fn every_operation_on_delayed_items_works_on_deferrable_ones() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let runs = Runs::default();
        let item = noting(engine, &runs);
        let arm = |delay| assert_eq!(item.queue_delayed(&queue, None, delay), Queued::Yes);

        arm(0);
        queue.flush().unwrap();
        assert_eq!(taken(&runs).len(), 1, "no delay, no timer");

        arm(SEC);
        assert!(item.flush_delayed(engine));
        assert_eq!(taken(&runs).len(), 1, "a flush runs it now");

        arm(MS);
        assert!(item.cancel(engine) && !item.cancel(engine));
        arm(MS);
        assert_eq!(item.disable(engine), Ok(true));
        assert_eq!(item.queue_delayed(&queue, None, MS), Queued::Disabled);
        host.doze(SEC);
        run_something(&queue);
        queue.flush().unwrap();
        assert!(taken(&runs).is_empty(), "cancelled and disabled");
        assert_eq!(item.enable(engine), Ok(true));

        assert_eq!(item.mod_delayed(&queue, MS), Ok(Rearmed::Armed));
        assert_eq!(item.mod_delayed(&queue, 10 * SEC), Ok(Rearmed::Moved));
        host.doze(SEC);
        run_something(&queue);
        queue.flush().unwrap();
        assert!(taken(&runs).is_empty(), "put off");
        assert_eq!(item.mod_delayed(&queue, MS), Ok(Rearmed::Moved));
        host.doze(SEC);
        run_something(&queue);
        queue.flush().unwrap();
        assert_eq!(taken(&runs).len(), 1);
    });
}

/// No queue remains that would wake a worker: one wakes for the timer, once.
#[test]
fn an_item_of_the_last_queue_is_released_when_it_is_due() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        for queue in queues(engine) {
            let runs = Runs::default();
            let item = noting(engine, &runs);
            assert_eq!(item.queue_delayed(&queue, None, 10 * SEC), Queued::Yes);
            drop(queue);
            host.doze(9 * SEC);
            assert_eq!((item.released(), item.is_pending()), (0, true));
            host.doze(SEC + MS);
            assert_eq!((item.released(), item.is_pending()), (1, false));
            assert!(taken(&runs).is_empty());
            host.doze(SEC);
            assert_eq!(host.machine().next_event(), None, "something is going to happen");
        }
    });
}

/// The same, but another queue uses the pool: no worker wakes, and the next one that is awake
/// releases the item.
#[test]
fn an_item_of_a_destroyed_queue_is_released_at_the_next_wake() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let keep = make(engine, spec("keep", Kind::PerCpu));
        let item = noting(engine, &Runs::default());
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        drop(queue);
        host.doze(MS);
        let before = host.counts().without_scans();
        host.doze(SEC);
        assert_eq!((host.counts().without_scans(), item.released()), (before, 0));
        run_something(&keep);
        keep.flush().unwrap();
        assert_eq!((item.released(), item.is_pending()), (1, false));
    });
}

/// A pool that was retired and is used again behaves as before.
#[test]
fn a_pool_that_is_used_again_does_not_wake_for_deferrable_timers() {
    with_engine(Setup::exact("core:1"), |engine| {
        let host = engine.host();
        let first = make(engine, spec("first", Kind::PerCpu));
        let runs = Runs::default();
        let (left, item) = (noting(engine, &runs), noting(engine, &runs));
        assert_eq!(left.queue_delayed(&first, None, 10 * MS), Queued::Yes);
        drop(first);
        let queue = make(engine, spec("second", Kind::PerCpu));
        host.doze(SEC);
        run_something(&queue);
        assert_eq!(left.released(), 1);
        let before = host.counts().without_scans();
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        host.doze(SEC);
        assert_eq!(host.counts().without_scans(), before);
        assert!(item.cancel(engine));
    });
}

/// After a change of attributes no submission reaches the previous pool: only its timers can wake a
/// worker there.
#[test]
fn an_item_of_a_queue_that_has_moved_still_runs() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cpu, false));
        let queue = make(engine, spec("q", kind));
        let runs = Runs::default();
        let item = noting(engine, &runs);
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        let moves = || {
            queue.change_attrs(|attrs| {
                attrs.scope = AffinityScopeChoice::Explicit(AffinityScope::System)
            })
        };
        host.unpreempted(moves).unwrap();
        host.doze(20 * MS);
        assert_eq!(taken(&runs).len(), 1);
        assert!(!item.is_pending());
        // After the change back, submissions reach the pool again, and no worker wakes for the next
        // timer.
        let moves = || {
            queue.change_attrs(|attrs| {
                attrs.scope = AffinityScopeChoice::Explicit(AffinityScope::Cpu)
            })
        };
        host.unpreempted(moves).unwrap();
        assert_eq!(item.queue_delayed(&queue, None, 10 * MS), Queued::Yes);
        host.doze(20 * MS);
        assert!(item.is_pending());
        assert!(item.cancel(engine));
    });
}
