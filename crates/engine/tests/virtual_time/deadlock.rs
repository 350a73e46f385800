//! The watchdog names items that wait for each other; it does not name items that only wait for
//! long.

use std::sync::{Arc, OnceLock};

use uwork_engine::dump::{Awaited, Stall, Wants};
use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::flags::Flags;
use uwork_policy::scope::AffinityScope;

use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{MS, SEC, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};
use crate::watchdog::{ordered, stalls};

/// An engine with a threshold of a second.
fn with_threshold(machine: &'static str, body: impl FnOnce(&Arc<VirtualEngine>) + Send + 'static) {
    with_engine(Setup::exact(machine), |engine| {
        engine.set_watchdog_thresh(SEC);
        body(engine);
    });
}

/// How an item waits for another, or for that one's queue.
type Wait = fn(&VirtualEngine, &Arc<Item>, &VirtualQueue);

fn flush(engine: &VirtualEngine, item: &Arc<Item>, _: &VirtualQueue) {
    item.flush(engine);
}

fn flush_queue(_: &VirtualEngine, _: &Arc<Item>, queue: &VirtualQueue) {
    queue.flush().expect("not from an item of the queue");
}

fn cancel_sync(engine: &VirtualEngine, item: &Arc<Item>, _: &VirtualQueue) {
    item.cancel_sync(engine).expect("not that deep");
}

/// One item on each of several ordered queues, with another item behind it. Each waits, a little
/// later, for the running item or the item behind it in the next queue, as `waits` says. At least
/// one waits for an item behind, so that cancelling those items ends the deadlock. Returns the
/// reported stalls.
fn in_a_ring(engine: &Arc<VirtualEngine>, waits: &[(Wait, bool)]) -> Vec<Stall> {
    let host = engine.host();
    let queues: Vec<VirtualQueue> =
        (0..waits.len()).map(|at| ordered(engine, &format!("q{at}"))).collect();
    let behind: Vec<Arc<Item>> = waits.iter().map(|_| Item::new(|| {})).collect();
    let running: Vec<Arc<OnceLock<Arc<Item>>>> = waits.iter().map(|_| Arc::default()).collect();
    for (at, &(wait, for_pending)) in waits.iter().enumerate() {
        let next = (at + 1) % waits.len();
        let (queue, pending) = (queues[next].clone(), behind[next].clone());
        let (engine, runs) = (engine.clone(), running[next].clone());
        let item = Item::new(move || {
            engine.blocking(|| engine.host().doze(MS));
            let runs = runs.get().expect("set before the items run");
            wait(&engine, if for_pending { &pending } else { runs }, &queue);
        });
        running[at].set(item).ok().expect("set once");
    }
    for (queue, (runs, pending)) in queues.iter().zip(running.iter().zip(&behind)) {
        assert_eq!(runs.get().unwrap().queue(queue), Queued::Yes);
        assert_eq!(pending.queue(queue), Queued::Yes);
    }
    host.doze(30 * SEC);
    let stalls = stalls(host);
    // An item that waits for a cancelled item continues.
    let mut ended = false;
    for pending in behind {
        ended |= pending.cancel(engine);
    }
    assert!(ended || stalls.is_empty());
    queues.iter().for_each(|queue| queue.flush().unwrap());
    stalls
}

/// For each item of the stall, its queue and what it waits for.
fn steps(stall: &Stall) -> Vec<(&str, &Awaited)> {
    stall.deadlock.iter().map(|item| (item.queue.as_str(), &item.waits_for)).collect()
}

// Catches: a deadlock that is not detected, or from only one of its queues; wrong queue names.
#[test]
fn two_items_that_wait_for_each_other_are_named() {
    with_threshold("core:2", |engine| {
        let stalls = in_a_ring(engine, &[(flush, true), (flush, true)]);
        assert_eq!(stalls.len(), 1, "once, though each of the queues stands still");
        for stall in &stalls {
            let steps = steps(stall);
            assert_eq!(steps.len(), 2);
            for (at, (queue, awaited)) in steps.into_iter().enumerate() {
                assert_eq!(queue, format!("q{at}"));
                let Awaited::Pending { queue, ordered: true, function, .. } = awaited else {
                    panic!("{awaited:?}");
                };
                assert_eq!(*queue, format!("q{}", 1 - at));
                assert_eq!(function.as_ref().unwrap().name.as_deref(), Some("test::Item"));
            }
            let [first, second] = &stall.deadlock[..] else { panic!("{stall}") };
            let Awaited::Pending { address, .. } = &first.waits_for else { panic!("{stall}") };
            let line = format!(
                "  deadlock: item test::Item {:#x} (slot {}) of queue \"q0\" waits for item test::Item {address:#x}, \
                 which waits behind test::Item {:#x} (slot {}) in ordered queue \"q1\"",
                first.address, first.slot, second.address, second.slot,
            );
            assert!(stall.to_string().lines().any(|said| said == line), "{line}\n{stall}");
        }
    });
}

#[test]
fn three_items_that_wait_in_a_ring_are_named() {
    let rings: [[(Wait, bool); 3]; 3] = [
        [(flush, true), (flush, true), (flush, true)],
        [(flush, true), (cancel_sync, false), (flush_queue, false)],
        [(cancel_sync, false), (flush, false), (flush, true)],
    ];
    for ring in rings {
        with_threshold("core:2", move |engine| {
            let stalls = in_a_ring(engine, &ring);
            assert_eq!(stalls.len(), 1);
            for stall in &stalls {
                let mut queues: Vec<&str> = steps(stall).iter().map(|&(queue, _)| queue).collect();
                queues.sort_unstable();
                assert_eq!(queues, ["q0", "q1", "q2"], "{stall}");
                for item in &stall.deadlock {
                    let at: usize = item.queue[1..].parse().unwrap();
                    let (wait, for_pending) = ring[at];
                    let next = format!("q{}", (at + 1) % 3);
                    match &item.waits_for {
                        Awaited::Queue(queue) => {
                            assert!(std::ptr::fn_addr_eq(wait, flush_queue as Wait));
                            assert_eq!(*queue, next);
                        }
                        Awaited::Running => assert!(!for_pending),
                        Awaited::Pending { queue, .. } => assert!(for_pending && *queue == next),
                    }
                }
            }
        });
    }
}

// Catches: a wait that ends and is reported as one that does not.
#[test]
fn a_chain_of_waits_with_an_end_is_no_deadlock() {
    with_threshold("core:2", |engine| {
        let host = engine.host();
        let queues: Vec<VirtualQueue> =
            (0..3).map(|at| ordered(engine, &format!("q{at}"))).collect();
        let inner = engine.clone();
        let mut last = Item::new(move || inner.blocking(|| inner.host().doze(10 * SEC)));
        let mut kept = Vec::new();
        for (at, queue) in queues.iter().enumerate().rev() {
            assert_eq!(last.queue(queue), Queued::Yes);
            let behind = Item::new(|| {});
            assert_eq!(behind.queue(queue), Queued::Yes);
            kept.push(last);
            let (engine, queue) = (engine.clone(), queue.clone());
            last = Item::new(move || match at {
                2 => drop(queue.flush()),
                _ => drop(behind.flush(&engine)),
            });
        }
        host.doze(30 * SEC);
        assert!(queues.iter().all(|queue| queue.is_idle()));
        let stalls = stalls(host);
        assert_eq!(stalls.len(), 3, "they did not move for long");
        assert!(stalls.iter().all(|stall| stall.deadlock.is_empty()), "{stalls:?}");
    });
}

/// The queue's rescuer runs an item because no worker can be spawned. The item waits for the one
/// behind it, but itself holds the queue's only permit.
#[test]
fn an_item_that_waits_for_the_item_behind_it_is_named() {
    with_threshold("core:1", |engine| {
        let host = engine.host();
        let blocked = make(engine, spec("blocked", Kind::PerCpu));
        let narrow =
            QueueSpec { max_active: 1, flags: Flags::MEM_RECLAIM, ..spec("q", Kind::PerCpu) };
        let q = make(engine, narrow);
        host.doze(MS);
        host.break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        let inner = engine.clone();
        let blocks = Item::new(move || inner.blocking(|| inner.host().doze(60 * SEC)));
        assert_eq!(blocks.queue(&blocked), Queued::Yes);
        host.doze(MS);
        let behind = Item::new(|| {});
        let (inner, other) = (engine.clone(), behind.clone());
        let first = Item::new(move || {
            assert!(inner.is_rescuer());
            inner.blocking(|| inner.host().doze(MS));
            other.flush(&inner);
        });
        assert_eq!(first.queue(&q), Queued::Yes);
        assert_eq!(behind.queue(&q), Queued::Yes);
        host.doze(30 * SEC);
        let stalls = stalls(host);
        let named = stalls.iter().find(|stall| stall.queues == ["q"]).expect("it is stuck");
        let [item] = &named.deadlock[..] else { panic!("{named}") };
        assert_eq!((item.address, item.queue.as_str()), (Arc::as_ptr(&first).addr(), "q"));
        let Awaited::Pending { address, ordered: false, .. } = item.waits_for else {
            panic!("{named}");
        };
        assert_eq!(address, Arc::as_ptr(&behind).addr());
        assert!(behind.cancel(engine));
        q.flush().unwrap();
        blocked.flush().unwrap();
    });
}

// Catches: a deadlock with no pending item behind it, which is therefore never checked; one that is
// reported twice, or checked for ever; a wait that ends in time.
#[test]
fn two_runs_that_wait_for_each_other_are_reported() {
    let waits: [(Wait, u64); 4] = [(flush, 1), (flush, 3), (cancel_sync, 1), (cancel_sync, 3)];
    for ((wait, begins_ms), stays) in waits.into_iter().flat_map(|w| [(w, true), (w, false)]) {
        with_threshold("core:2", move |engine| {
            let host = engine.host();
            let queues = ["qa", "qb"].map(|name| {
                let kind = Kind::Unbound(attrs(engine, AffinityScope::System, false));
                make(engine, spec(name, kind))
            });
            let (inner, theirs) = (engine.clone(), queues[0].clone());
            let gives_up = if stays { 10_000 * SEC } else { SEC / 2 };
            let second = Item::new(move || {
                inner.blocking(|| inner.host().doze(2 * MS));
                let deadline = inner.host().time() + gives_up;
                assert_eq!(theirs.flush_until(deadline), Ok(false));
            });
            let (inner, other, theirs) = (engine.clone(), second.clone(), queues[1].clone());
            let first = Item::new(move || {
                inner.blocking(|| inner.host().doze(begins_ms * MS));
                wait(&inner, &other, &theirs);
            });
            assert_eq!(first.queue(&queues[0]), Queued::Yes);
            assert_eq!(second.queue(&queues[1]), Queued::Yes);
            host.doze(30 * SEC);
            let found = stalls(host);
            assert_eq!(found.len(), usize::from(stays), "{found:?}");
            if let [stall] = &found[..] {
                assert_deadlock_of_runs(stall);
            }
            let before = host.counts();
            host.doze(1_000 * SEC);
            assert_eq!((stalls(host).len(), host.counts()), (found.len(), before));
            host.doze(10_000 * SEC);
            assert!(queues.iter().all(|queue| queue.is_idle()));
        });
    }
}

fn assert_deadlock_of_runs(stall: &Stall) {
    assert_eq!((stall.wants, stall.pending), (Wants::EachOther, 0));
    assert!(stall.stalled_ns >= SEC && stall.at_ns < 2 * SEC, "{stall}");
    let mut queues = stall.queues.clone();
    queues.sort_unstable();
    assert_eq!(queues, ["qa", "qb"], "{stall}");
    assert_eq!(stall.workers.iter().filter(|worker| worker.blocks).count(), 2);
    let awaited: Vec<_> = steps(stall).into_iter().map(|(_, awaited)| awaited).collect();
    assert!(awaited.contains(&&Awaited::Running), "{stall}");
    assert!(awaited.contains(&&Awaited::Queue("qa".to_owned())), "{stall}");
    let text = stall.to_string();
    assert!(text.contains("; 2 items wait for each other\n  in the way: "), "{text}");
}
