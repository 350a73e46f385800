//! Rescuers: queues that make progress without new threads (SEMANTICS 2.32), and the waits that
//! such a queue must not make (2.33).

use std::sync::{Arc, Mutex};

use uwork_engine::host::{Host, Report};
use uwork_engine::{Attrs, Kind, Queue, QueueError, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::host::{BrokenSpawn, Event};
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

const NO_MORE: BrokenSpawn = BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 };

fn reclaiming(name: &str, kind: Kind) -> QueueSpec {
    QueueSpec { flags: Flags::MEM_RECLAIM, ..spec(name, kind) }
}

/// A queue whose only worker on each of these CPUs is blocked until the event is set. No thread can
/// be spawned.
fn block_every_worker(engine: &Arc<VirtualEngine>, cpus: u32) -> (VirtualQueue, Vec<Arc<Event>>) {
    let host = engine.host();
    let queue = make(engine, spec("blocked", Kind::PerCpu));
    host.doze(MS);
    host.break_spawn(Some(NO_MORE));
    let events = (0..cpus).map(|cpu| {
        let event = Arc::new(Event::default());
        let (inner, waits_for) = (engine.clone(), event.clone());
        let item = Item::new(move || {
            inner.blocking(|| while !inner.host().park(&waits_for, None) {});
        });
        assert_eq!(item.queue_on(&queue, cpu), Queued::Yes);
        event
    });
    let events = events.collect();
    host.doze(MS);
    (queue, events)
}

fn release(engine: &VirtualEngine, events: &[Arc<Event>]) {
    // SAFETY: the events are live.
    events.iter().for_each(|event| unsafe { engine.host().wake(Arc::as_ptr(event)) });
}

type Runs = Arc<Mutex<Vec<(u32, u32)>>>;

/// An item that records its CPU and number, and that it runs on a rescuer.
fn noted(engine: &Arc<VirtualEngine>, runs: &Runs, cpu: u32, number: u32) -> Arc<Item> {
    let (engine, runs) = (engine.clone(), runs.clone());
    Item::new(move || {
        assert!(engine.is_rescuer());
        runs.lock().unwrap().push((cpu, number));
    })
}

#[test]
fn a_queue_with_a_rescuer_drains_though_every_worker_is_stuck() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, reclaiming("reclaim", Kind::PerCpu));
        let (blocked, events) = block_every_worker(engine, 1);
        let runs = Runs::default();
        for number in 0..100 {
            assert_eq!(noted(engine, &runs, 0, number).queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!(*runs.lock().unwrap(), (0..100).map(|number| (0, number)).collect::<Vec<_>>());
        assert_eq!(engine.workers(), 1);
        assert!(!engine.is_rescuer());
        release(engine, &events);
        blocked.flush().unwrap();
    });
}

#[test]
fn an_ordered_queue_keeps_its_order_through_the_rescuer() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (cpumask, scope) = (engine.config().allowed.clone(), AffinityScopeChoice::Default);
        let ordered =
            || Kind::Ordered(Attrs { nice: 0, cpumask: cpumask.clone(), scope, strict: true });
        let queue = make(engine, reclaiming("reclaim", ordered()));
        // The pool of this queue is also the pool of the first one, so its workers are stuck too.
        let stuck = make(engine, spec("stuck", ordered()));
        let host = engine.host();
        host.doze(MS);
        host.break_spawn(Some(NO_MORE));
        let event = Arc::new(Event::default());
        let (inner, waits_for) = (engine.clone(), event.clone());
        let item = Item::new(move || {
            inner.blocking(|| while !inner.host().park(&waits_for, None) {});
        });
        assert_eq!(item.queue(&stuck), Queued::Yes);
        host.doze(MS);
        let runs = Runs::default();
        for number in 0..50 {
            assert_eq!(noted(engine, &runs, 0, number).queue(&queue), Queued::Yes);
        }
        queue.flush().unwrap();
        assert_eq!(*runs.lock().unwrap(), (0..50).map(|number| (0, number)).collect::<Vec<_>>());
        release(engine, &[event]);
        stuck.flush().unwrap();
    });
}

/// After a batch of 16 the rescuer moves to the next pool.
#[test]
fn a_rescuer_serves_the_pools_in_turn() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, reclaiming("reclaim", Kind::PerCpu));
        let (blocked, events) = block_every_worker(engine, 2);
        let runs = Runs::default();
        // The rescuer is kept busy until both CPUs have their items.
        let first = {
            let engine = engine.clone();
            Item::new(move || engine.host().doze(MS))
        };
        assert_eq!(first.queue_on(&queue, 0), Queued::Yes);
        engine.host().doze(1);
        for number in 0..40 {
            for cpu in 0..2 {
                assert_eq!(noted(engine, &runs, cpu, number).queue_on(&queue, cpu), Queued::Yes);
            }
        }
        queue.flush().unwrap();
        let cpus: Vec<u32> = runs.lock().unwrap().iter().map(|&(cpu, _)| cpu).collect();
        let stretches: Vec<(u32, usize)> =
            cpus.chunk_by(|a, b| a == b).map(|stretch| (stretch[0], stretch.len())).collect();
        // The first batch of CPU 0 had one more item.
        assert_eq!(stretches, [(0, 15), (1, 16), (0, 16), (1, 16), (0, 9), (1, 8)]);
        release(engine, &events);
        blocked.flush().unwrap();
    });
}

/// The pool that could not get a worker gets one as soon as a spawn succeeds again, although no
/// submitter queues another item.
#[test]
fn a_spawn_for_a_pool_without_workers_is_tried_again() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (queue, events) = block_every_worker(engine, 1);
        let host = engine.host();
        let done = Arc::new(Mutex::new(None));
        let (clock, place) = (host.clone(), done.clone());
        let item = Item::new(move || *place.lock().unwrap() = Some(clock.time()));
        assert_eq!(item.queue(&queue), Queued::Yes);
        host.doze(100 * MS);
        assert_eq!(*done.lock().unwrap(), None);
        host.break_spawn(None);
        host.doze(2 * SEC);
        let at = done.lock().unwrap().expect("it ran while the first one was still stuck");
        // The cool-down after a failure is a second.
        assert!(at < SEC + 20 * MS, "{at}");
        let failures = host.reports().len();
        assert_eq!(failures, 1, "{:?}", host.reports());
        release(engine, &events);
        queue.flush().unwrap();
    });
}

#[test]
fn a_queue_whose_rescuer_cannot_be_spawned_is_not_created() {
    // The spawn limit covers a worker, the watcher, and no third thread.
    for after in 0..3 {
        with_engine(Setup::exact("core:1"), move |engine| {
            let host = engine.host();
            host.break_spawn(Some(BrokenSpawn { after, ..NO_MORE }));
            let refused = Queue::new(engine, reclaiming("reclaim", Kind::PerCpu)).err();
            assert_eq!(refused, Some(QueueError::NoThread("no thread to be had".to_owned())));
            host.break_spawn(None);
            let queue = make(engine, reclaiming("reclaim", Kind::PerCpu));
            assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
            queue.destroy().unwrap();
        });
    }
}

#[test]
fn the_rescuer_ends_with_its_queue_and_is_idle_until_called() {
    with_engine(Setup::exact("core:1"), |engine| {
        let host = engine.host();
        let keep = make(engine, spec("keep", Kind::PerCpu));
        let queue = make(engine, reclaiming("reclaim", Kind::PerCpu));
        host.doze(MS);
        let before = host.counts();
        host.doze(SEC);
        assert_eq!(host.counts().wake_ups, before.wake_ups);
        let threads = host.threads();
        drop(queue);
        host.doze(MS);
        assert_eq!(host.threads(), threads - 1);
        drop(keep);
    });
}

/// Checks which pairs of queues are reported when an item of the first flushes the second.
fn dependencies(flush: impl Fn(&VirtualQueue) + Send + Sync + Copy + 'static) {
    with_engine(Setup::exact("core:2"), move |engine| {
        let unbound =
            |engine: &VirtualEngine| Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let safe = make(engine, reclaiming("safe", unbound(engine)));
        let other_safe = make(engine, reclaiming("other-safe", unbound(engine)));
        let plain = make(engine, spec("plain", unbound(engine)));
        let reported = |from: &VirtualQueue, on: &VirtualQueue| {
            let before = engine.host().reports().len();
            for _ in 0..2 {
                let on = on.clone();
                assert_eq!(Item::new(move || flush(&on)).queue(from), Queued::Yes);
                from.flush().unwrap();
            }
            engine.host().reports()[before..].to_vec()
        };
        assert_eq!(reported(&plain, &safe), []);
        assert_eq!(reported(&plain, &plain.clone()), []);
        assert_eq!(reported(&safe, &other_safe), []);
        let (from, on) = ("safe".to_owned(), "plain".to_owned());
        // Once for each queue.
        assert_eq!(reported(&safe, &plain), [Report::FlushDependency { from, on }]);
    });
}

#[test]
fn a_reclaiming_item_that_flushes_a_queue_without_rescuer_is_reported() {
    dependencies(|on| {
        let _ = on.flush();
    });
}

#[test]
fn a_reclaiming_item_that_flushes_an_item_of_such_a_queue_is_reported() {
    dependencies(|on| {
        let engine = on.engine().clone();
        let item = Item::new(|| {});
        assert_eq!(item.queue(on), Queued::Yes);
        item.flush(&engine);
    });
}

#[test]
fn a_cancel_is_no_dependency() {
    with_engine(Setup::exact("core:2"), |engine| {
        let unbound = Kind::Unbound(attrs(engine, AffinityScope::System, false));
        let safe = make(engine, reclaiming("safe", unbound));
        let plain = make(engine, spec("plain", Kind::PerCpu));
        let (host, inner) = (engine.host().clone(), engine.clone());
        let running = Item::new(move || host.doze(5 * MS));
        let target = running.clone();
        assert_eq!(running.queue(&plain), Queued::Yes);
        engine.host().doze(MS);
        let item = Item::new(move || assert_eq!(target.cancel_sync(&inner), Ok(false)));
        assert_eq!(item.queue(&safe), Queued::Yes);
        safe.flush().unwrap();
        assert_eq!(engine.host().time(), 5 * MS, "it waited");
        assert_eq!(engine.host().reports(), []);
    });
}

/// All workers are blocked and none can be spawned: the watcher covers the pool's timers, and
/// spawns a worker for one as soon as it can.
#[test]
fn timers_of_a_pool_without_workers_are_covered() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (queue, events) = block_every_worker(engine, 1);
        let host = engine.host();
        let done = Arc::new(Mutex::new(None));
        let (clock, place) = (host.clone(), done.clone());
        let item = Item::new(move || *place.lock().unwrap() = Some(clock.time()));
        assert_eq!(item.queue_delayed(&queue, None, 3 * SEC), Queued::Yes);
        host.doze(SEC);
        host.break_spawn(None);
        host.doze(4 * SEC);
        let at = done.lock().unwrap().expect("it ran while the first one was still stuck");
        assert!((3 * SEC..3 * SEC + 20 * MS).contains(&at), "{at}");
        release(engine, &events);
        queue.flush().unwrap();
    });
}
