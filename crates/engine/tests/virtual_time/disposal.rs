//! Destructors that a shutdown calls, and what they may do.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use uwork_engine::{Helped, Kind, QueueError, Queued, Shutdown, ShutdownReport};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

use crate::chance::Chaos;
use crate::host::BrokenSpawn;
use crate::item::Item;
use crate::setup::{
    MS, ON_PURPOSE, SEC, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine,
};

/// Calls a closure when it is dropped.
struct OnDrop(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl OnDrop {
    fn new(f: impl FnOnce() + Send + 'static) -> OnDrop {
        OnDrop(Mutex::new(Some(Box::new(f))))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let f = self.0.get_mut().unwrap().take();
        f.into_iter().for_each(|f| f());
    }
}

/// An item that never runs, with a destructor.
fn with_destructor(f: impl FnOnce() + Send + 'static) -> Arc<Item> {
    let on_drop = OnDrop::new(f);
    Item::new(move || {
        let _ = &on_drop;
        panic!("it was removed");
    })
}

/// An item that occupies the worker of CPU 1 for `ns`.
fn busy(engine: &Arc<VirtualEngine>, queue: &VirtualQueue, ns: u64) {
    let weak = Arc::downgrade(engine);
    let item = Item::new(move || weak.upgrade().expect("it runs this").host().burn(ns));
    assert_eq!(item.queue_on(queue, 1), Queued::Yes);
    engine.host().doze(MS);
}

fn kinds(engine: &VirtualEngine) -> [Kind; 3] {
    let attrs = attrs(engine, AffinityScope::System, false);
    [Kind::PerCpu, Kind::Unbound(attrs.clone()), Kind::Ordered(attrs)]
}

/// Queues three items behind a running one: a peer, an item whose destructor applies `what` to the
/// peers, and another peer. Then cancels everything.
fn cancel_with(
    what: impl Fn(&VirtualEngine, &VirtualQueue, &Arc<Item>) + Clone + Send + Sync + 'static,
) {
    for kind in 0..3 {
        for at in 0..3 {
            let what = what.clone();
            with_engine(Setup::exact("core:2"), move |engine| {
                let queue = make(engine, spec("q", kinds(engine)[kind].clone()));
                busy(engine, &queue, 100 * MS);
                let peers = [0; 2].map(|_| with_destructor(|| ()));
                let done = Arc::new(AtomicBool::new(false));
                let destructor = {
                    let (engine, queue) = (Arc::downgrade(engine), queue.clone());
                    let (peers, done) = (peers.clone(), done.clone());
                    move || {
                        let engine: Weak<VirtualEngine> = engine;
                        let engine = engine.upgrade().expect("it runs this");
                        peers.iter().for_each(|peer| what(&engine, &queue, peer));
                        done.store(true, Ordering::Relaxed);
                    }
                };
                let mut items = peers.to_vec();
                items.insert(at, with_destructor(destructor));
                for item in items {
                    assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
                }
                let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
                assert!(report.is_complete(), "{report}");
                assert_eq!((report.released, done.load(Ordering::Relaxed)), (3, true));
                assert!(report.took_ns <= 101 * MS, "{report}");
                assert!(peers.iter().all(|peer| !peer.is_pending()));
                assert!(peers.iter().all(|peer| Arc::strong_count(peer) == 1), "released");
            });
        }
    }
}

#[test]
fn a_destructor_cancels_its_peers() {
    cancel_with(|engine, _, peer| {
        peer.cancel_sync(engine).unwrap();
    });
}

#[test]
fn a_destructor_disables_its_peers() {
    cancel_with(|engine, _, peer| {
        peer.disable(engine).unwrap();
        assert_eq!(peer.enable(engine), Ok(true));
    });
}

#[test]
fn a_destructor_flushes_its_peers() {
    cancel_with(|engine, _, peer| {
        let _ = (peer.flush(engine), peer.flush_delayed(engine));
    });
}

/// The steps of a join.
#[test]
fn a_destructor_helps_its_peers() {
    cancel_with(|engine, _, peer| {
        let helped = peer.help(engine);
        assert!(helped == Helped::Ran || !peer.is_pending());
    });
}

#[test]
fn a_destructor_flushes_its_own_queue() {
    cancel_with(|_, queue, _| assert_eq!(queue.flush(), Err(QueueError::WouldDeadlock)));
}

#[test]
fn a_destructor_queues_its_peers() {
    cancel_with(|_, queue, peer| {
        assert!(matches!(peer.queue(queue), Queued::Refused | Queued::AlreadyPending));
        assert!(!peer.queue_delayed(queue, None, MS).is_queued());
    });
}

#[test]
fn a_destructor_destroys_another_queue() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let other = make(engine, spec("other", Kind::PerCpu));
        busy(engine, &queue, 20 * MS);
        let peer = with_destructor(|| ());
        let weak = Arc::downgrade(engine);
        let destroys = {
            let (other, peer) = (other.clone(), peer.clone());
            with_destructor(move || {
                peer.cancel_sync(&weak.upgrade().expect("it runs this")).unwrap();
                other.destroy().unwrap();
            })
        };
        assert_eq!(destroys.queue_on(&queue, 1), Queued::Yes);
        assert_eq!(peer.queue_on(&other, 1), Queued::Yes);
        drop((destroys, other));
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert!(report.is_complete() && report.released == 2, "{report}");
        assert_eq!(report.took_ns, 19 * MS);
    });
}

#[test]
fn a_destructor_panics() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        busy(engine, &queue, 20 * MS);
        let dropped = Arc::new(AtomicU32::new(0));
        for n in 0..4 {
            let dropped = dropped.clone();
            let item = with_destructor(move || {
                dropped.fetch_add(1, Ordering::Relaxed);
                assert!(n % 2 == 1, "{ON_PURPOSE}");
            });
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        }
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert!(report.is_complete() && report.released == 4, "{report}");
        assert_eq!(dropped.load(Ordering::Relaxed), 4);
    });
}

/// Cancels everything while the destructor of the first of two items sleeps until 5 s. Returns the
/// report, and whether the second item was released.
fn beside_one_that_sleeps(limit_ns: u64) -> (ShutdownReport, bool) {
    with_engine(Setup::exact("core:2"), move |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        busy(engine, &queue, 5 * MS);
        let weak = Arc::downgrade(engine);
        let sleeps =
            with_destructor(move || weak.upgrade().expect("it runs this").host().doze(5 * SEC));
        let second = with_destructor(|| ());
        assert_eq!(sleeps.queue_on(&queue, 1), Queued::Yes);
        assert_eq!(second.queue_on(&queue, 1), Queued::Yes);
        drop(sleeps);
        let report = engine.shutdown(Shutdown::Cancel, limit_ns).unwrap();
        let (spawns, is_pending) = (engine.host().counts().spawns, second.is_pending());
        // A second call finds the destructor still running, and spawns no further thread for it.
        let again = engine.shutdown(Shutdown::Cancel, 0).unwrap();
        assert_eq!((again.released, again.releasing.len(), again.unreleased), (0, 1, 0), "{again}");
        assert_eq!(engine.host().counts().spawns, spawns);
        let last = engine.shutdown(Shutdown::Cancel, 10 * SEC).unwrap();
        assert!(last.is_complete(), "{last}");
        engine.host().doze(MS);
        (report, is_pending)
    })
}

#[test]
fn a_destructor_that_does_not_return_is_reported_by_name() {
    let (report, is_pending) = beside_one_that_sleeps(SEC);
    assert_eq!(report.took_ns, SEC, "{report}");
    assert!(report.unfinished.is_empty() && !report.is_complete());
    let [stuck] = &report.releasing[..] else { panic!("{report}") };
    assert_eq!((&*stuck.queue, stuck.function.name.as_deref()), ("q", Some("test::Item")));
    assert!(!is_pending, "the next item had a thread of its own");
    let text = report.to_string();
    assert!(
        text.contains("1 destructor did not return")
            && text.contains("destructor of test::Item, queue q"),
        "{text}"
    );
}

#[test]
fn a_stuck_destructor_delays_the_shutdown_by_a_bounded_time() {
    let (report, is_pending) = beside_one_that_sleeps(MS);
    assert_eq!((report.took_ns, is_pending), (50 * MS, false), "{report}");
}

/// Sixteen destructors are stuck: no further threads are spawned, and the items behind them are
/// counted.
#[test]
fn items_behind_many_stuck_destructors_are_counted_and_can_be_cancelled() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        busy(engine, &queue, 5 * MS);
        for _ in 0..16 {
            let weak = Arc::downgrade(engine);
            let sleeps =
                with_destructor(move || weak.upgrade().expect("it runs this").host().doze(5 * SEC));
            assert_eq!(sleeps.queue_on(&queue, 1), Queued::Yes);
        }
        let behind = [0; 3].map(|_| with_destructor(|| ()));
        for item in &behind {
            assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        }
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert_eq!((report.releasing.len(), report.unreleased), (16, 3), "{report}");
        assert!(behind.iter().all(|item| item.is_pending()));
        assert!(behind[0].cancel(engine));
        assert!(behind[1].flush(engine));
        assert_eq!((behind[0].released(), behind[1].released()), (0, 1));
        let last = engine.shutdown(Shutdown::Cancel, 10 * SEC).unwrap();
        assert!(last.is_complete(), "{last}");
        assert_eq!(behind[2].released(), 1);
        engine.host().doze(MS);
    });
}

/// A drain does not run armed items: it treats their destructors in the same way.
#[test]
fn the_destructor_of_an_armed_item_that_does_not_return_is_reported() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let (weak, peer) = (Arc::downgrade(engine), with_destructor(|| ()));
        let cancels = peer.clone();
        let sleeps = with_destructor(move || {
            let engine = weak.upgrade().expect("it runs this");
            cancels.cancel_sync(&engine).unwrap();
            engine.host().doze(2 * SEC);
        });
        assert_eq!(sleeps.queue_delayed(&queue, None, 3 * SEC), Queued::Yes);
        assert_eq!(peer.queue_delayed(&queue, None, 4 * SEC), Queued::Yes);
        drop(sleeps);
        let report = engine.shutdown(Shutdown::Drain, SEC).unwrap();
        let [stuck] = &report.releasing[..] else { panic!("{report}") };
        assert_eq!((&*stuck.queue, report.took_ns, report.released), ("q", SEC, 2), "{report}");
        assert!(!peer.is_pending());
        assert!(engine.shutdown(Shutdown::Drain, 10 * SEC).unwrap().is_complete());
        engine.host().doze(MS);
    });
}

#[test]
fn a_shutdown_without_destructors_creates_no_thread() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        busy(engine, &queue, 5 * MS);
        let spawns = engine.host().counts().spawns;
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        assert!(report.is_complete(), "{report}");
        assert_eq!(engine.host().counts().spawns, spawns);
    });
}

#[test]
fn without_a_thread_the_caller_of_the_shutdown_releases_the_items() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        busy(engine, &queue, 5 * MS);
        let (weak, peer) = (Arc::downgrade(engine), with_destructor(|| ()));
        let cancels = peer.clone();
        let item = with_destructor(move || {
            cancels.cancel_sync(&weak.upgrade().expect("it runs this")).unwrap();
        });
        assert_eq!(item.queue_on(&queue, 1), Queued::Yes);
        assert_eq!(peer.queue_on(&queue, 1), Queued::Yes);
        drop(item);
        engine.host().break_spawn(Some(BrokenSpawn { after: 0, takes_ns: 0, lags_ns: 0 }));
        let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
        engine.host().break_spawn(None);
        assert!(report.is_complete() && report.released == 2, "{report}");
        assert_eq!(Arc::strong_count(&peer), 1);
    });
}

/// Flushers that waited when the shutdown began, concurrent cancels, and several shutdowns at once.
#[test]
fn every_item_is_released_once_whatever_happens_during_a_shutdown() {
    for seed in 0..200 {
        let chaos = Chaos {
            drawn_order: true,
            preempt_one_in: 4,
            early_one_in: 20,
            spawn_fails_one_in: 8,
            ..Chaos::STEADY
        };
        with_engine(Setup { machine: "llc:2 core:2", chaos, seed }, |engine| {
            let queues: Vec<_> = kinds(engine)
                .into_iter()
                .zip(["p", "u", "o"])
                .map(|(kind, name)| make(engine, spec(name, kind)))
                .collect();
            let items: Vec<Arc<Item>> = (0..12).map(|_| Item::new(|| ())).collect();
            let queued: u32 = (0..12)
                .map(|n| match n % 4 {
                    3 => items[n].queue_delayed(&queues[n % 3], None, 20 * MS),
                    _ => items[n].queue(&queues[n % 3]),
                })
                .map(|queued| u32::from(queued.is_queued()))
                .sum();
            let taken_back = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..4_u32)
                .map(|thread| {
                    let (weak, items) = (Arc::downgrade(engine), items.clone());
                    let taken_back = taken_back.clone();
                    engine.host().start(&CpuSet::single(thread), move || {
                        let engine = weak.upgrade().expect("the test has it");
                        for (n, item) in items.iter().enumerate() {
                            match (n as u32 + thread) % 4 {
                                0 => {
                                    item.flush(&engine);
                                }
                                1 => {
                                    let was = item.cancel_sync(&engine).unwrap();
                                    taken_back.fetch_add(u32::from(was), Ordering::Relaxed);
                                }
                                2 => {
                                    item.help(&engine);
                                }
                                _ => {
                                    let report = engine.shutdown(Shutdown::Cancel, SEC).unwrap();
                                    assert!(report.is_complete(), "{report}");
                                }
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join(engine.host()));
            assert!(engine.shutdown(Shutdown::Cancel, SEC).unwrap().is_complete());
            let released: u32 = items.iter().map(|item| item.released()).sum();
            assert!(released + taken_back.load(Ordering::Relaxed) <= queued);
            for (n, item) in items.iter().enumerate() {
                assert!(!item.is_pending() && Arc::strong_count(item) == 1, "item {n}");
            }
        });
    }
}
