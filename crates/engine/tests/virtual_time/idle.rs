//! An idle engine makes no wake-ups and ends its excess threads.

use std::sync::{Arc, Mutex};

use uwork_engine::{Kind, Queued};
use uwork_policy::scope::AffinityScope;

use crate::item::Item;
use crate::setup::{
    MS, SEC, Setup, US, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// The time after which idle workers beyond two retire.
const IDLE_TIMEOUT: u64 = 300 * SEC;

/// `count` items that wait at the same time, for 1, 2, 3, ... ms: the pool spawns as many workers.
fn raise_workers(engine: &Arc<VirtualEngine>, queue: &VirtualQueue, count: u64) {
    for index in 0..count {
        let engine = engine.clone();
        let wait = (count + index) * MS;
        let item = Item::new(move || engine.blocking(|| engine.host().doze(wait)));
        assert_eq!(item.queue(queue), Queued::Yes);
    }
    queue.drain().unwrap();
    engine.host().doze(MS);
}

#[test]
fn no_wake_up_after_the_load() {
    with_engine(Setup::exact("llc:2 core:4"), |engine| {
        let host = engine.host().clone();
        let kind = Kind::Unbound(attrs(engine, AffinityScope::Cache, false));
        let queues = [make(engine, spec("bound", Kind::PerCpu)), make(engine, spec("pod", kind))];
        for queue in &queues {
            for index in 0..500 {
                let busy = host.clone();
                let item = Item::new(move || busy.burn(10 * US));
                assert_eq!(item.queue_on(queue, index % 8), Queued::Yes);
            }
        }
        queues.iter().for_each(|queue| queue.drain().unwrap());
        host.doze(IDLE_TIMEOUT + SEC);
        let before = host.counts();
        assert_eq!(host.machine().next_event(), None, "something is going to happen");
        host.doze(1_000_000 * SEC);
        assert_eq!(host.counts(), before);
    });
}

#[test]
fn excess_idle_workers_retire_and_two_stay() {
    for count in [3, 4, 8, 40] {
        with_engine(Setup::exact("core:1"), move |engine| {
            let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
            raise_workers(engine, &queue, count);
            assert_eq!(engine.workers(), count as u32);
            // One second before the first of them times out, all still exist.
            host.doze(IDLE_TIMEOUT - count * MS - SEC);
            assert_eq!(engine.workers(), count as u32);
            host.doze(2 * IDLE_TIMEOUT);
            assert_eq!(engine.workers(), 2, "of {count}");
            assert_eq!(host.machine().next_event(), None, "something is going to happen");
        });
    }
}

#[test]
fn two_idle_workers_stay_for_ever() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        raise_workers(engine, &queue, 2);
        // The watcher checks the CPUs once more after the load.
        host.doze(SEC);
        let before = host.counts();
        host.doze(10 * IDLE_TIMEOUT);
        assert_eq!((engine.workers(), host.counts()), (2, before));
    });
}

/// The worker that parked last has warm stack and caches; the others may retire.
#[test]
fn the_last_worker_to_park_is_woken_first() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        raise_workers(engine, &queue, 4);
        let slots = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..8 {
            let (inner, slots) = (engine.clone(), slots.clone());
            let item = Item::new(move || {
                slots.lock().unwrap().extend(inner.dump_queues(|_| true)[0].slots.clone());
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
            engine.host().doze(MS);
        }
        let mut slots = slots.lock().unwrap();
        assert_eq!(slots.len(), 8);
        slots.dedup();
        assert_eq!(slots.len(), 1, "{slots:?}");
    });
}

#[test]
fn a_busy_pool_keeps_idle_workers_for_its_busy_ones() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        // 16 wait for long; of the 7 that become idle, (7 - 2) * 4 >= 16 retires one, and (6 - 2) *
        // 4 >= 16 another.
        let waits = (0..23).map(|index| if index < 16 { 4 * IDLE_TIMEOUT } else { MS });
        for wait in waits {
            let engine = engine.clone();
            let item = Item::new(move || engine.blocking(|| engine.host().doze(wait)));
            assert_eq!(item.queue(&queue), Queued::Yes);
        }
        host.doze(2 * IDLE_TIMEOUT);
        assert_eq!(engine.workers(), 16 + 5);
        queue.drain().unwrap();
    });
}

#[test]
fn an_item_is_queued_and_run_for_one_wake() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        host.doze(MS);
        let before = host.counts();
        for _ in 0..100 {
            assert_eq!(Item::new(|| {}).queue(&queue), Queued::Yes);
            host.doze(MS);
        }
        let after = host.counts();
        assert_eq!(after.wakes - before.wakes, 100);
        assert_eq!(after.wake_ups - before.wake_ups, 100);
        assert_eq!(after.spawns, before.spawns);
    });
}
