//! Drains of queues whose items queue more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::host::Report;
use uwork_engine::{Kind, Queued};

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, make, spec, with_engine};

/// An item that queues another like it on the same queue, until `left` have run. Each takes a
/// millisecond.
fn chained(queue: &VirtualQueue, left: u32, ran: &Arc<AtomicU32>) -> Arc<Item> {
    let (queue, ran) = (queue.clone(), ran.clone());
    Item::new(move || {
        queue.engine().host().burn(MS);
        if ran.fetch_add(1, Ordering::Relaxed) + 1 < left {
            assert_eq!(chained(&queue, left, &ran).queue(&queue), Queued::Yes);
        }
    })
}

fn rounds_reported(engine: &VirtualEngine) -> Vec<u32> {
    let rounds = |report: Report| match report {
        Report::DrainIsLong { queue, rounds } => {
            assert_eq!(queue, "q");
            rounds
        }
        other => panic!("{other:?}"),
    };
    engine.host().reports().into_iter().map(rounds).collect()
}

// Catches: a drain that ends after one round, or leaves the queue closed.
#[test]
fn a_drain_ends_with_the_last_of_the_chain() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let ran = Arc::<AtomicU32>::default();
        assert_eq!(chained(&queue, 5, &ran).queue_on(&queue, 1), Queued::Yes);
        queue.drain().unwrap();
        assert_eq!((ran.swap(0, Ordering::Relaxed), host.time()), (5, 5 * MS));
        assert!(queue.is_idle());

        // The drain has opened the queue again.
        assert_eq!(chained(&queue, 5, &ran).queue_on(&queue, 1), Queued::Yes);
        queue.drain().unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), host.time()), (5, 10 * MS));
        assert_eq!(engine.host().reports(), []);
    });
}

// Catches: a report at another round than the 10th and each 100th up to the 1,000th.
#[test]
fn a_long_drain_is_reported() {
    for (runs, expected) in [
        (9, vec![]),
        (60, vec![10]),
        (1_500, [10].into_iter().chain((1..=10).map(|n| n * 100)).collect()),
    ] {
        with_engine(Setup::exact("core:2"), move |engine| {
            let queue = make(engine, spec("q", Kind::PerCpu));
            let ran = Arc::<AtomicU32>::default();
            assert_eq!(chained(&queue, runs, &ran).queue_on(&queue, 1), Queued::Yes);
            queue.drain().unwrap();
            assert_eq!(rounds_reported(engine), expected);
        });
    }
}
