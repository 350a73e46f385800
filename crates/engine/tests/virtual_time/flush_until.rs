//! Flushes that give up.

use std::sync::Arc;

use uwork_engine::{Kind, QueueError, Queued};

use crate::chance::Chaos;
use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, make, spec, with_engine};

/// Random order, and preemption at every possible point.
const CHAOS: Chaos =
    Chaos { drawn_order: true, preempt_one_in: 4, early_one_in: 20, ..Chaos::STEADY };

fn burning(engine: &Arc<VirtualEngine>, ns: u64) -> Arc<Item> {
    let engine = Arc::downgrade(engine);
    Item::new(move || engine.upgrade().expect("it runs this").host().burn(ns))
}

#[test]
fn a_flush_gives_up_at_its_deadline_and_not_before() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        assert_eq!(queue.flush_until(0), Ok(true), "nothing is queued");
        let item = burning(engine, 10 * MS);
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        assert_eq!((queue.flush_until(3 * MS), host.time()), (Ok(false), 3 * MS));
        assert_eq!((queue.flush_until(3 * MS), host.time()), (Ok(false), 3 * MS));
        assert_eq!((queue.flush_until(50 * MS), host.time()), (Ok(true), 10 * MS));
        assert_eq!(queue.dump().flushers, 0);
    });
}

/// More flushes give up than there are colours. The flushes that follow find no colour free, and
/// get one when one ends. The old flushes, for which no flusher waits any more, must not delay them
/// until all have ended.
#[test]
fn flushes_that_gave_up_do_not_delay_later_flushes() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        for n in 1..=20 {
            let item = burning(engine, 10 * MS);
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
            let until = host.time() + 100 * US;
            assert_eq!(queue.flush_until(until), Ok(false), "flush {n}");
        }
        assert_eq!(host.time(), 2 * MS);
        // One colour is free when the first item has ended, and then this flush begins: it waits
        // for the items that were queued by then, and not for later ones.
        let late = queue.clone();
        let (weak, last) = (Arc::downgrade(engine), burning(engine, 500 * MS));
        let flusher = host.start(&uwork_policy::cpuset::CpuSet::single(0), move || {
            let engine = weak.upgrade().expect("the test has it");
            late.flush().unwrap();
            assert_eq!(engine.host().time(), 200 * MS);
        });
        host.doze(50 * MS);
        assert_eq!(last.queue_on(&queue, 1), Queued::Yes);
        flusher.join(host);
        queue.flush().unwrap();
    });
}

/// The item ends about when the time does. In either order the result is right, the waiter is in no
/// chain any more, and the next flush works.
#[test]
fn the_deadline_and_the_end_of_the_items_at_once() {
    for seed in 0..400 {
        let chaos = CHAOS;
        with_engine(Setup { machine: "core:3", chaos, seed }, move |engine| {
            let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
            for round in 0..6 {
                let item = burning(engine, 100 * US);
                assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
                let handle = queue.clone();
                let other = host.start(&uwork_policy::cpuset::CpuSet::single(2), move || {
                    handle.flush().unwrap();
                });
                let deadline = host.time() + (60 + seed % 80) * US;
                let ended = queue.flush_until(deadline).unwrap();
                assert!(!ended || !item.is_pending(), "round {round}: an item is left");
                assert!(ended || host.time() >= deadline, "round {round}: too early");
                other.join(host);
                assert_eq!((queue.dump().flushers, queue.dump().in_flight()), (0, 0));
                assert_eq!(queue.flush_until(0), Ok(true));
            }
        });
    }
}

#[test]
fn not_from_inside_the_queue() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let handle = queue.clone();
        let item = Item::new(move || {
            assert_eq!(handle.flush_until(u64::MAX), Err(QueueError::WouldDeadlock));
        });
        assert_eq!(item.queue(&queue), Queued::Yes);
        queue.flush().unwrap();
        drop(item);
    });
}
