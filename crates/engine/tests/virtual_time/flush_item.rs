//! What a flush of one item waits for and returns, and the state after a cancel.

use std::sync::{Arc, OnceLock, Weak};

use uwork_engine::{Kind, QueueSpec, Queued};

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, make, spec, with_engine};

fn one_at_a_time(engine: &Arc<VirtualEngine>) -> VirtualQueue {
    make(engine, QueueSpec { max_active: 1, ..spec("q", Kind::PerCpu) })
}

/// An item that keeps its CPU for 5 ms.
fn burning(engine: &Arc<VirtualEngine>) -> Arc<Item> {
    let host = engine.host().clone();
    Item::new(move || host.burn(5 * MS))
}

// Catches: a flush that waits for an item that was not queued, or returns that it did.
#[test]
fn an_armed_item_is_not_waited_for() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), one_at_a_time(engine));
        let item = burning(engine);
        assert!(!item.flush(engine), "never queued");
        assert_eq!(item.queue_delayed(&queue, Some(1), 20 * MS), Queued::Yes);
        assert_eq!((item.flush(engine), host.time()), (false, 0));
        assert!(item.cancel(engine));
    });
}

// Catches: a flush that misses the run when the item is armed again, or waits for the timer too.
#[test]
fn an_armed_item_that_still_runs_is_waited_for_until_the_run_ends() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), one_at_a_time(engine));
        let myself = Arc::new(OnceLock::<Weak<Item>>::new());
        let (this, home) = (myself.clone(), queue.clone());
        let item = Item::new(move || {
            let item = this.get().and_then(Weak::upgrade).expect("the test has it");
            let _ = item.queue_delayed(&home, Some(1), 50 * MS);
            home.engine().host().burn(5 * MS);
        });
        myself.set(Arc::downgrade(&item)).expect("set once");
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        host.doze(MS);
        assert!(item.is_pending(), "it has armed itself");
        assert_eq!((item.flush(engine), host.time()), (true, 5 * MS));
        assert_eq!((item.flush(engine), host.time()), (false, 5 * MS));
        assert!(item.cancel(engine));
    });
}

// Catches: a flush that returns before the item has run, or that polls until it has run and misses
// the run.
#[test]
fn a_queued_item_is_waited_for_until_its_run_ends() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), one_at_a_time(engine));
        let (first, long, short) = (burning(engine), burning(engine), Item::new(|| {}));
        assert_eq!(first.queue_on(&queue, 1), Queued::Yes);
        assert_eq!(long.queue_on(&queue, 1), Queued::Yes);
        assert_eq!((long.flush(engine), host.time()), (true, 10 * MS));
        assert_eq!(first.queue_on(&queue, 1), Queued::Yes);
        assert_eq!(short.queue_on(&queue, 1), Queued::Yes);
        assert_eq!((short.flush(engine), host.time()), (true, 15 * MS));
    });
}

// Catches: a permit, or a pending item, that is still counted after the item was cancelled.
#[test]
fn cancelled_items_do_not_count_as_congestion() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), one_at_a_time(engine));
        let (first, item) = (burning(engine), burning(engine));
        assert_eq!(first.queue_on(&queue, 1), Queued::Yes);
        host.doze(MS);
        for _ in 0..3 {
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
            assert_eq!(queue.is_congested(Some(1)), Ok(true));
            assert!(item.cancel(engine));
            assert_eq!(queue.is_congested(Some(1)), Ok(false));
        }
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        queue.flush().unwrap();
        assert_eq!(host.time(), 10 * MS);
    });
}
